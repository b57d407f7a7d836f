# frozen_string_literal: true

# Every call of clients/ruby/surehook.rb against a real gateway; prints one line per case.
#
# The arguments are the URL of the gateway, the API token, the URL of a proxy that loses the first answer per path,
# an API token for another namespace, and the URLs of a TLS proxy that is trusted and of one that is not.

require "json"
require "surehook"

$stdout.sync = true
URL, TOKEN, LOSSY_URL, OTHER_TOKEN, TLS_URL, UNTRUSTED_URL = ARGV
NAMESPACE = "ruby"
KINDS = { Surehook::Claimed => "claimed", Surehook::InProgress => "in_progress", Surehook::Completed => "completed" }.freeze
client = Surehook::Client.new(URL, TOKEN)

def show(text, *values)
  puts "#{text} #{JSON.generate(values)}"
end

def kind(claim)
  KINDS.fetch(claim.class)
end

def name_of(error)
  error.class.name[/::(\w+)Error\z/, 1]
end

def error_of
  yield
  nil
rescue Surehook::Error => e
  raise "the error shows the token" if "#{e.message}#{e.inspect}".include?(TOKEN)

  name_of(e)
end

def process_message(client, message)
  client.once("messages", message["id"], lease: 60, ttl: 7 * 86_400) { |claim| create_order(message) }
rescue Surehook::InProgressError => busy
  "try again in #{busy.retry_after} s"
end

def create_order(message)
  { order: message["order"] }
end

show "README", *[7, 8].map { |order| process_message(client, { "id" => "wamid.1", "order" => order }) }
client.claim("messages", "wamid.2", lease: 20)
show "README while held", process_message(client, { "id" => "wamid.2" }).start_with?("try again in ")

first = client.claim(NAMESPACE, "order", lease: 60)
show "claim", kind(first), first.resumed, !first.inspect.include?(first.token) && !client.inspect.include?(TOKEN)
busy = client.claim(NAMESPACE, "order")
show "claim while held", kind(busy), busy.retry_after.between?(1, 60)
client.extend(first, lease: 600)
show "extend", client.claim(NAMESPACE, "order").retry_after > 300
client.complete(first, { order: 7, note: "açaí" })
client.complete(first, { order: 8 })
done = client.claim(NAMESPACE, "order")
show "complete twice", kind(done), done.result

client.claim(NAMESPACE, "body", fingerprint: "a")
show "other fingerprint", error_of { client.claim(NAMESPACE, "body", fingerprint: "b") }

old = client.claim(NAMESPACE, "released")
client.release(old)
new = client.claim(NAMESPACE, "released")
show "claim after release", kind(new), new.resumed, new.fence > old.fence, new.operation_id != old.operation_id
show "stale token", error_of { client.extend(old) }, error_of { client.complete(old, 1) }, error_of { client.release(old) }

crashed = client.claim(NAMESPACE, "crashed", lease: 1)
resumed = client.claim(NAMESPACE, "crashed", wait: 20)
show "claim after the lease", kind(resumed), resumed.resumed, resumed.operation_id == crashed.operation_id

held = client.claim(NAMESPACE, "batch-held")
batch = client.batch(
  claims: [
    { namespace: NAMESPACE, key: "batch-new", lease: 5, ttl: 60, fingerprint: "a" },
    { namespace: NAMESPACE, key: "batch-new" },
    { namespace: NAMESPACE, key: "order" },
    { namespace: "Not Valid", key: "order" }
  ],
  completions: [{ claim: held, result: [1], ttl: 60 }, { claim: old, result: 1 }]
)
show "batch of claims", *batch.claims.first(3).map { |claim| kind(claim) }, name_of(batch.claims.last)
show "batch of completions", batch.completions.first, name_of(batch.completions.last)
show "result of the batch", client.claim(NAMESPACE, "batch-held").result

runs = 0
show "once", *Array.new(3) { client.once(NAMESPACE, "once") { { run: runs += 1 } } }
show "once while held", error_of { client.once(NAMESPACE, "body") { raise "must not run" } }
begin
  client.once(NAMESPACE, "raises") { raise "boom" }
rescue RuntimeError => e
  show "once with exception", e.message, client.once(NAMESPACE, "raises") { "second run" }
end

seen = client.once(NAMESPACE, "long", lease: 2) do
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  kinds = []
  while Process.clock_gettime(Process::CLOCK_MONOTONIC) - began < 4.5
    kinds |= [kind(client.claim(NAMESPACE, "long", wait: 0.5))]
  end
  kinds
end
show "once longer than its lease", seen
show "result that is not JSON", error_of { client.once(NAMESPACE, "no-json") { Float::NAN } },
     client.once(NAMESPACE, "no-json") { raise "must not run" }
show "result that is too large", error_of { client.once(NAMESPACE, "large") { "x" * 70_000 } },
     client.once(NAMESPACE, "large") { raise "must not run" }

keys = ["a/b c?ü%2F&+", "a"]
keys.each { |key| client.complete(client.claim(NAMESPACE, key), key) }
show "keys of any text", *keys.map { |key| client.claim(NAMESPACE, key).result }
show "dot segments", error_of { client.claim(NAMESPACE, "..") }, error_of { client.claim("..", "a") }
show "invalid lease", error_of { client.claim(NAMESPACE, "lease", lease: 0.001) }
show "wrong API token", error_of { Surehook::Client.new(URL, "wrong-#{TOKEN}").claim(NAMESPACE, "a") }
show "token of another namespace", error_of { Surehook::Client.new(URL, OTHER_TOKEN).claim(NAMESPACE, "a") }
show "TLS", kind(Surehook::Client.new(TLS_URL, TOKEN).claim(NAMESPACE, "tls"))
show "untrusted TLS", error_of { Surehook::Client.new(UNTRUSTED_URL, TOKEN, attempts: 2).claim(NAMESPACE, "a") }
show "no gateway", error_of { Surehook::Client.new("http://127.0.0.1:1", TOKEN, attempts: 2).claim(NAMESPACE, "a") }

lossy = Surehook::Client.new(LOSSY_URL, TOKEN)
show "lost answer of a claim", kind(lossy.claim(NAMESPACE, "lost"))
claim = client.claim(NAMESPACE, "lost-completion")
lossy.complete(claim, "stored")
show "lost answer of a completion", client.claim(NAMESPACE, "lost-completion").result

executions = Queue.new
callers = Array.new(50) do
  Thread.new do
    client.once(NAMESPACE, "race", wait: 30) do |race|
      executions << race
      race.operation_id
    end
  end
end
answers = callers.map(&:value)
show "50 concurrent callers", executions.size, answers.size, answers.uniq.size

# `break` leaves the block without an exception, and Sidekiq stops a job with an Interrupt: the key is free again.
client.once(NAMESPACE, "break") { break }
raise "break kept the key" unless kind(client.claim(NAMESPACE, "break")) == "claimed"

begin
  client.once(NAMESPACE, "interrupt") { raise Interrupt }
rescue Interrupt
  raise "an interrupt kept the key" unless kind(client.claim(NAMESPACE, "interrupt")) == "claimed"
end

# Open connections are not shared with the children of a fork: each gets its own answers.
children = Array.new(4) do |child|
  fork do
    ok = Array.new(20) { |number| "fork-#{child}-#{number}" }.all? { |text| client.once(NAMESPACE, text) { text } == text }
    exit!(ok)
  end
end
client.once(NAMESPACE, "parent") { nil }
raise "a child got the answer of another process" unless children.all? { |pid| Process.wait2(pid).last.success? }
