# frozen_string_literal: true

# Client of Surehook's idempotency service: do the work behind a key once.
#
#   require_relative "surehook"
#
#   client = Surehook::Client.new("https://surehook.example.com", token)
#   order = client.once("orders", message_id) { |claim| create_order(payload) }
#
# One file, Ruby 3.0 or newer, no dependencies. A client can be shared between threads and survives a fork.
# Durations are seconds. What holds when answers are lost or processes crash is in README.md beside this folder.

require "json"
require "net/http"
require "openssl"
require "uri"

module Surehook
  # Base of all errors. `code` is the gateway's problem code; `status` is 0 if there was no answer.
  class Error < StandardError
    attr_reader :code, :status

    def initialize(message, code: "", status: 0)
      super(message)
      @code = code
      @status = status
    end
  end

  # Another holder works on the key. Its lease ends in `retry_after` seconds, unless it is extended.
  class InProgressError < Error
    attr_reader :retry_after

    def initialize(message, retry_after)
      super(message, code: "in_progress")
      @retry_after = retry_after
    end
  end

  # The key was used for a request with another fingerprint.
  class FingerprintMismatchError < Error; end

  # The claim is no longer yours: the lease ended and another holder claimed the key, or it was released.
  class StaleTokenError < Error; end

  # The result is not JSON, or larger than 64 KiB.
  class ResultError < Error; end

  # The API token is unknown, or may not use this namespace.
  class UnauthorizedError < Error; end

  # The gateway refused the request, for example because of an invalid namespace or lease.
  class InvalidRequestError < Error; end

  # No usable answer after all attempts. The last one may have taken effect.
  class UnavailableError < Error; end

  # The key is yours until the lease ends: do the work, then complete or release it.
  #
  # `fence` grows with every grant of a key. `operation_id` stays the same when the work of a crashed holder is
  # `resumed`: derive ids from it, and the resumed work creates things once.
  Claimed = Struct.new(:namespace, :key, :token, :fence, :operation_id, :started_at, :resumed, keyword_init: true) do
    # Leaves the token out.
    def inspect
      "#<Surehook::Claimed #{namespace}/#{key} fence=#{fence} resumed=#{resumed}>"
    end
    alias_method :to_s, :inspect
  end

  # Another holder has the lease for `retry_after` more seconds.
  InProgress = Struct.new(:retry_after, keyword_init: true)

  # The work was done before, with this result.
  Completed = Struct.new(:result, :completed_at, keyword_init: true)

  # One entry per item, in order. An item that failed has its error; a stored completion has nil.
  BatchResult = Struct.new(:claims, :completions, keyword_init: true)

  # Talks to one gateway. `timeout` is for each of at most `attempts` attempts of a call.
  class Client
    # The longest time for which the gateway lets one call wait.
    WAIT_MAX = 30
    # A gateway that asks for a longer delay (Retry-After) is not waited for.
    RETRY_DELAY_MAX = 5
    # The gateway closes idle connections; older ones are not used again.
    IDLE_MAX = 4
    NETWORK_ERRORS = [SystemCallError, SocketError, IOError, Timeout::Error, OpenSSL::SSL::SSLError,
                      Net::ProtocolError, Net::HTTPBadResponse, Net::HTTPHeaderSyntaxError].freeze
    private_constant :WAIT_MAX, :RETRY_DELAY_MAX, :IDLE_MAX, :NETWORK_ERRORS

    def initialize(url, token, timeout: 10, attempts: 5)
      uri = URI(url)
      unless uri.is_a?(URI::HTTP) && uri.hostname && !uri.userinfo
        raise ArgumentError, "url must be http://host or https://host, without user and password"
      end
      unless token.is_a?(String) && token.match?(/\A[!-~]+\z/)
        raise ArgumentError, "token must be the text of an API token, without spaces or line breaks"
      end

      @uri = uri
      @path = "#{uri.path.chomp("/")}/api/v1/idempotency"
      @headers = { "Authorization" => "Bearer #{token}", "Content-Type" => "application/json" }
      @timeout = timeout
      @attempts = [1, attempts].max
      @lock = Mutex.new
      @idle = []
      @pid = Process.pid
    end

    # Runs the block once per key and returns its result, as JSON would; duplicates get the stored result.
    #
    # The lease is extended while the block runs. If the block raises, the key is released, and the next call runs it
    # again. While another holder works, this waits up to `wait` seconds and then raises InProgressError.
    def once(namespace, key, lease: 30, ttl: nil, wait: 0, fingerprint: nil)
      claim = claim_within(wait, namespace, key, lease: lease, ttl: ttl, fingerprint: fingerprint)
      case claim
      when Completed then return claim.result
      when InProgress
        raise InProgressError.new("#{namespace}/#{key} is being processed by another holder; " \
                                  "try again in #{claim.retry_after} s", claim.retry_after)
      end
      stop_extending = keep_lease(claim, lease)
      begin
        has_returned = false
        result = yield claim
        has_returned = true
        complete_work(claim, result, ttl)
      ensure
        # Also after `break`, `throw` and the shutdown of a worker, which are no StandardError.
        release_quietly(claim) unless has_returned
        stop_extending.call
      end
    end

    # Claims a key. `wait` (up to 30 s) lets the gateway answer when the current holder is done.
    def claim(namespace, key, lease: 30, ttl: nil, wait: 0, fingerprint: nil)
      body = claim_body(lease, ttl, fingerprint).merge(wait: duration(wait))
      read_claim(namespace, key, post(key_path(namespace, key), body, wait))
    end

    # Lets the lease end `lease` seconds from now.
    def extend(claim, lease: 30)
      update(claim, "extend", lease: duration(lease))
    end

    # Stores the result for later claims. Repeating it with the same claim changes nothing and succeeds.
    def complete(claim, result = nil, ttl: nil)
      update(claim, "complete", **completion_body(result, ttl))
    end

    # Gives the key back without a result: the next claim gets it.
    def release(claim)
      update(claim, "release")
    end

    # Claims and completes up to 100 keys in one call.
    #
    # A claim is `{ namespace:, key: }` and optionally `lease:`, `ttl:` and `fingerprint:`; a completion is
    # `{ claim:, result: }` and optionally `ttl:`.
    def batch(claims: [], completions: [])
      answer = post("", {
        claims: claims.map do |item|
          options = claim_body(item.fetch(:lease, 30), item[:ttl], item[:fingerprint])
          { namespace: item.fetch(:namespace), key: item.fetch(:key), **options }
        end,
        completions: completions.map do |item|
          claim = item.fetch(:claim)
          { namespace: claim.namespace, key: claim.key, token: claim.token,
            **completion_body(item[:result], item[:ttl]) }
        end
      })
      BatchResult.new(
        claims: claims.zip(answer.fetch("claims")).map do |item, got|
          item_error(got) || read_claim(item.fetch(:namespace), item.fetch(:key), got)
        end,
        completions: answer.fetch("completions").map { |got| item_error(got) }
      )
    end

    # Closes idle connections. The client can still be used.
    def close
      @lock.synchronize { close_idle(0) }
    end

    # Leaves the API token out.
    def inspect
      "#<Surehook::Client #{@uri.hostname}>"
    end

    private

    def claim_within(wait, namespace, key, **options)
      deadline = now + wait
      loop do
        left = [deadline - now, 0].max
        claim = claim(namespace, key, wait: [left, WAIT_MAX].min, **options)
        left = deadline - now
        return claim if !claim.is_a?(InProgress) || left <= 0

        sleep([left, 0.2].min)
      end
    end

    def complete_work(claim, result, ttl)
      # Duplicates get strings for symbols; so does the first call.
      stored = JSON.parse(generate_json(result))
      complete(claim, stored, ttl: ttl)
      stored
    rescue ResultError => e
      # Releasing the key would do the work again with every retry.
      complete(claim, nil, ttl: ttl)
      raise ResultError.new("#{claim.namespace}/#{claim.key} is done and will not run again, " \
                            "but its result was not stored: #{e.message}", code: e.code, status: e.status)
    end

    # Extends the lease on a thread until the returned function is called.
    def keep_lease(claim, lease)
      lock = Mutex.new
      stopped = ConditionVariable.new
      is_stopped = false
      thread = Thread.new do
        loop do
          lock.synchronize { stopped.wait(lock, lease / 3.0) unless is_stopped }
          break if is_stopped

          begin
            extend(claim, lease: lease)
          rescue StaleTokenError
            break
          rescue Error
            next
          end
        end
      end
      thread.report_on_exception = false
      lambda do
        lock.synchronize do
          is_stopped = true
          stopped.signal
        end
      end
    end

    # The error of the work matters more; without a release the key is free when its lease ends.
    def release_quietly(claim)
      release(claim)
    rescue Error
      nil
    end

    def update(claim, step, **body)
      post("#{key_path(claim.namespace, claim.key)}/#{step}", body.merge(token: claim.token))
      nil
    end

    # Sends a request until there is an answer. All requests of this service may be repeated.
    def post(path, body, wait = 0)
      payload = generate_json(body)
      reason = ""
      delay = 0
      @attempts.times do |attempt|
        sleep(delay * rand(0.5..1.0))
        delay = [0.2 * (2**attempt), RETRY_DELAY_MAX].min
        begin
          response = exchange(path, payload, @timeout + wait)
        rescue *NETWORK_ERRORS => e
          reason = "#{e.class}: #{e.message}"
          next
        end
        status = response.code.to_i
        answer = read_object(response.body)
        return answer if status == 200 && !answer.empty?

        detail = answer.fetch("detail", "HTTP status #{status}")
        raise error(status, answer.fetch("code", ""), detail) if (300...500).cover?(status) && ![408, 429].include?(status)

        reason = detail
        delay = [delay, response["Retry-After"].to_i].max
        break if delay > RETRY_DELAY_MAX
      end
      raise UnavailableError.new("#{@uri.hostname} is not available: #{reason}", code: "unavailable")
    end

    def exchange(path, payload, timeout)
      http = take_connection
      http.open_timeout = @timeout
      http.read_timeout = timeout
      http.write_timeout = @timeout
      http.start unless http.started?
      response = http.request(Net::HTTP::Post.new(@path + path, @headers), payload)
      is_complete = true
      @lock.synchronize do
        @idle.push([now, http])
        close_idle(IDLE_MAX)
      end
      response
    ensure
      unless is_complete
        # Half an answer must not be taken for the next one. The idle ones are probably as dead as this one.
        http.finish if http&.started?
        close
      end
    end

    def take_connection
      @lock.synchronize do
        # After a fork, parent and child would read each other's answers.
        # They are not closed: with TLS that would end the parent's connections, too.
        @idle = [] if @pid != Process.pid
        @pid = Process.pid
        close_idle(IDLE_MAX)
        @idle.empty? ? new_connection : @idle.pop.last
      end
    end

    # Closes connections that have been idle for so many seconds; the oldest come first.
    def close_idle(age)
      @idle.shift.last.finish while @idle.any? && now - @idle.first.first >= age
    end

    def new_connection
      http = Net::HTTP.new(@uri.hostname, @uri.port, nil)
      http.use_ssl = @uri.is_a?(URI::HTTPS)
      http.max_retries = 0
      http.keep_alive_timeout = IDLE_MAX
      http
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def duration(seconds)
      "#{(seconds * 1000).round}ms"
    end

    def key_path(namespace, key)
      [namespace.to_s, key.to_s].map do |text|
        # Proxies and URL libraries remove dot segments: the request would be about another key.
        if ["", ".", ".."].include?(text)
          raise InvalidRequestError.new("namespace and key must not be #{text.inspect}", code: "invalid_key")
        end

        "/#{URI.encode_www_form_component(text).gsub("+", "%20")}"
      end.join
    end

    def claim_body(lease, ttl, fingerprint)
      { lease: duration(lease), ttl: ttl && duration(ttl), fingerprint: fingerprint }.compact
    end

    def completion_body(result, ttl)
      generate_json(result)
      ttl ? { result: result, ttl: duration(ttl) } : { result: result }
    end

    def generate_json(value)
      JSON.generate(value)
    rescue JSON::JSONError, EncodingError => e
      raise ResultError.new("the value is not JSON: #{e.message}", code: "result_not_json")
    end

    def read_object(text)
      value = JSON.parse(text.to_s)
      value.is_a?(Hash) ? value : {}
    rescue JSON::ParserError
      {}
    end

    def read_claim(namespace, key, answer)
      case answer.fetch("status")
      when "completed" then Completed.new(result: answer["result"], completed_at: answer["completed_at"])
      when "in_progress" then InProgress.new(retry_after: answer.fetch("retry_after"))
      else
        operation = answer.fetch("operation")
        Claimed.new(namespace: namespace, key: key, token: answer.fetch("token"), fence: answer.fetch("fence"),
                    operation_id: operation.fetch("id"), started_at: operation.fetch("started_at"),
                    resumed: answer.fetch("resumed"))
      end
    end

    def item_error(answer)
      case answer.fetch("status")
      when "stale_token" then error(409, "stale_token", "the claim is no longer yours")
      when "error" then error(0, answer.fetch("code"), answer.fetch("detail"))
      end
    end

    def error(status, code, detail)
      kind = { 401 => UnauthorizedError, 403 => UnauthorizedError, 413 => ResultError }
             .fetch(status, InvalidRequestError)
      kind = case code
             when "fingerprint_mismatch" then FingerprintMismatchError
             when "namespace_not_allowed" then UnauthorizedError
             when "result_too_large" then ResultError
             when "stale_token" then StaleTokenError
             when "too_many_idempotency_keys" then UnavailableError
             else kind
             end
      kind.new(detail, code: code, status: status)
    end
  end
end
