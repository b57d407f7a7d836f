<?php

/**
 * Client of Surehook's idempotency service: do the work behind a key once.
 *
 *     require_once 'Surehook.php';
 *
 *     $client = new Surehook\Client('https://surehook.example.com', $token);
 *     $order = $client->once('orders', $messageId, fn () => createOrder($payload));
 *
 * One file, PHP 8.1 or newer, no extension needed (HTTPS needs openssl, as always). Durations are seconds. What holds
 * when answers are lost or processes crash is in README.md beside this folder.
 */

declare(strict_types=1);

namespace Surehook;

/** Base of all errors. `$problem` is the gateway's problem code; `$status` is 0 if there was no answer. */
class SurehookException extends \RuntimeException
{
    public function __construct(
        string $message,
        public readonly string $problem = '',
        public readonly int $status = 0,
        ?\Throwable $previous = null,
    ) {
        parent::__construct($message, 0, $previous);
    }
}

/** Another holder works on the key. Its lease ends in `$retryAfter` seconds, unless it is extended. */
final class InProgressException extends SurehookException
{
    public function __construct(string $message, public readonly int $retryAfter)
    {
        parent::__construct($message, 'in_progress');
    }
}

/** The key was used for a request with another fingerprint. */
final class FingerprintMismatchException extends SurehookException
{
}

/** The claim is no longer yours: the lease ended and another holder claimed the key, or it was released. */
final class StaleTokenException extends SurehookException
{
}

/** The result is not JSON, or larger than 64 KiB. */
final class ResultException extends SurehookException
{
}

/** The API token is unknown, or may not use this namespace. */
final class UnauthorizedException extends SurehookException
{
}

/** The gateway refused the request, for example because of an invalid namespace or lease. */
final class InvalidRequestException extends SurehookException
{
}

/** No usable answer after all attempts. The last one may have taken effect. */
final class UnavailableException extends SurehookException
{
}

/** The answer to a claim: Claimed, InProgress or Completed. */
interface Claim
{
}

/**
 * The key is yours until the lease ends: do the work, then complete or release it.
 *
 * `$fence` grows with every grant of a key. `$operationId` stays the same when the work of a crashed holder is
 * `$resumed`: derive ids from it, and the resumed work creates things once.
 */
final class Claimed implements Claim
{
    public function __construct(
        public readonly string $namespace,
        public readonly string $key,
        #[\SensitiveParameter] public readonly string $token,
        public readonly int $fence = 0,
        public readonly string $operationId = '',
        public readonly string $startedAt = '',
        public readonly bool $resumed = false,
    ) {
    }

    /** Leaves the token out of var_dump and print_r. */
    public function __debugInfo(): array
    {
        return array_diff_key(get_object_vars($this), ['token' => true]);
    }
}

/** Another holder has the lease for `$retryAfter` more seconds. */
final class InProgress implements Claim
{
    public function __construct(public readonly int $retryAfter)
    {
    }
}

/** The work was done before, with this result. JSON objects are arrays with names as keys. */
final class Completed implements Claim
{
    public function __construct(public readonly mixed $result, public readonly string $completedAt = '')
    {
    }
}

/** One entry per item, in order. An item that failed has its exception; a stored completion has null. */
final class BatchResult
{
    /**
     * @param list<Claim|SurehookException> $claims
     * @param list<?SurehookException> $completions
     */
    public function __construct(public readonly array $claims, public readonly array $completions)
    {
    }
}

/** Talks to one gateway. `$timeout` is for each of at most `$attempts` attempts of a call. */
final class Client
{
    /** The longest time for which the gateway lets one call wait. */
    private const WAIT_MAX = 30;
    /** A gateway that asks for a longer delay (Retry-After) is not waited for. */
    private const RETRY_DELAY_MAX = 5;

    private readonly string $url;

    public function __construct(
        string $url,
        #[\SensitiveParameter] private readonly string $token,
        private readonly float $timeout = 10,
        private readonly int $attempts = 5,
    ) {
        if (!preg_match('~^https?://[^/@?#\s]+(/[^@?#\s]*)?$~D', $url)) {
            throw new \InvalidArgumentException('url must be http://host or https://host, without user and password');
        }
        if (!preg_match('/^[!-~]+$/D', $token)) {
            throw new \InvalidArgumentException('token must be the text of an API token, without spaces or line breaks');
        }
        $this->url = rtrim($url, '/') . '/api/v1/idempotency';
    }

    /**
     * Runs the work once per key and returns its result, as JSON would; duplicates get the stored result.
     *
     * PHP has no background threads: the lease must be longer than the work, or the work extends it from time to time
     * with `$client->extend($claim)`. If the work throws, the key is released, and the next call runs it again. While
     * another holder works, this waits up to `$wait` seconds and then throws InProgressException.
     *
     * @param callable(Claimed): mixed $work
     */
    public function once(
        string $namespace,
        string $key,
        callable $work,
        float $lease = 30,
        ?float $ttl = null,
        float $wait = 0,
        ?string $fingerprint = null,
    ): mixed {
        $claim = $this->claimWithin($wait, $namespace, $key, $lease, $ttl, $fingerprint);
        if ($claim instanceof Completed) {
            return $claim->result;
        }
        if ($claim instanceof InProgress) {
            throw new InProgressException(
                "$namespace/$key is being processed by another holder; try again in $claim->retryAfter s",
                $claim->retryAfter,
            );
        }
        try {
            $result = $work($claim);
        } catch (\Throwable $error) {
            $this->releaseQuietly($claim);
            throw $error;
        }
        return $this->completeWork($claim, $result, $ttl);
    }

    /** Claims a key. `$wait` (up to 30 s) lets the gateway answer when the current holder is done. */
    public function claim(
        string $namespace,
        string $key,
        float $lease = 30,
        ?float $ttl = null,
        float $wait = 0,
        ?string $fingerprint = null,
    ): Claim {
        $body = self::claimBody($lease, $ttl, $fingerprint) + ['wait' => self::duration($wait)];
        return self::readClaim($namespace, $key, $this->post(self::keyPath($namespace, $key), $body, $wait));
    }

    /** Lets the lease end `$lease` seconds from now. */
    public function extend(Claimed $claim, float $lease = 30): void
    {
        $this->update($claim, 'extend', ['lease' => self::duration($lease)]);
    }

    /** Stores the result for later claims. Repeating it with the same claim changes nothing and succeeds. */
    public function complete(Claimed $claim, mixed $result = null, ?float $ttl = null): void
    {
        $this->update($claim, 'complete', self::completionBody($result, $ttl));
    }

    /** Gives the key back without a result: the next claim gets it. */
    public function release(Claimed $claim): void
    {
        $this->update($claim, 'release', []);
    }

    /**
     * Claims and completes up to 100 keys in one call.
     *
     * @param list<array{namespace: string, key: string, lease?: float, ttl?: float, fingerprint?: string}> $claims
     * @param list<array{claim: Claimed, result?: mixed, ttl?: float}> $completions
     */
    public function batch(array $claims = [], array $completions = []): BatchResult
    {
        $answer = $this->post('', [
            'claims' => array_map(
                fn (array $item) => ['namespace' => $item['namespace'], 'key' => $item['key']]
                    + self::claimBody($item['lease'] ?? 30, $item['ttl'] ?? null, $item['fingerprint'] ?? null),
                $claims,
            ),
            'completions' => array_map(
                fn (array $item) => [
                    'namespace' => $item['claim']->namespace,
                    'key' => $item['claim']->key,
                    'token' => $item['claim']->token,
                ] + self::completionBody($item['result'] ?? null, $item['ttl'] ?? null),
                $completions,
            ),
        ]);
        return new BatchResult(
            array_map(
                fn (array $item, array $got) => self::itemError($got)
                    ?? self::readClaim($item['namespace'], $item['key'], $got),
                $claims,
                $answer['claims'],
            ),
            array_map(self::itemError(...), $answer['completions']),
        );
    }

    /** Leaves the API token out of var_dump and print_r. */
    public function __debugInfo(): array
    {
        return ['url' => $this->url];
    }

    private function claimWithin(
        float $wait,
        string $namespace,
        string $key,
        float $lease,
        ?float $ttl,
        ?string $fingerprint,
    ): Claim {
        $deadline = self::now() + $wait;
        for (;;) {
            $left = max(0.0, $deadline - self::now());
            $claim = $this->claim($namespace, $key, $lease, $ttl, min($left, self::WAIT_MAX), $fingerprint);
            $left = $deadline - self::now();
            if (!$claim instanceof InProgress || $left <= 0) {
                return $claim;
            }
            self::sleep(min($left, 0.2));
        }
    }

    private function completeWork(Claimed $claim, mixed $result, ?float $ttl): mixed
    {
        try {
            // Duplicates get arrays for objects; so does the first call.
            $stored = json_decode(self::toJson($result), true);
            $this->complete($claim, $result, $ttl);
            return $stored;
        } catch (ResultException $error) {
            // Releasing the key would do the work again with every retry.
            $this->complete($claim, null, $ttl);
            $message = "$claim->namespace/$claim->key is done and will not run again, but its result was not stored: ";
            throw new ResultException($message . $error->getMessage(), $error->problem, $error->status, $error);
        }
    }

    /** The error of the work matters more; without a release the key is free when its lease ends. */
    private function releaseQuietly(Claimed $claim): void
    {
        try {
            $this->release($claim);
        } catch (SurehookException) {
        }
    }

    private function update(Claimed $claim, string $step, array $body): void
    {
        $this->post(self::keyPath($claim->namespace, $claim->key) . "/$step", $body + ['token' => $claim->token]);
    }

    /** Sends a request until there is an answer. All requests of this service may be repeated. */
    private function post(string $path, #[\SensitiveParameter] array $body, float $wait = 0): array
    {
        $payload = self::toJson($body);
        $attempts = max(1, $this->attempts);
        $delay = 0.0;
        for ($attempt = 0; $attempt < $attempts; $attempt++) {
            self::sleep($delay * random_int(500, 1000) / 1000);
            $delay = min(0.2 * 2 ** $attempt, self::RETRY_DELAY_MAX);
            [$status, $retryAfter, $text] = $this->exchange($path, $payload, $this->timeout + $wait);
            $answer = json_decode($text, true);
            if ($status === 200 && is_array($answer)) {
                return $answer;
            }
            $reason = $answer['detail'] ?? ($status === 0 ? $text : "HTTP status $status");
            if ($status >= 300 && $status < 500 && $status !== 408 && $status !== 429) {
                throw self::problem($status, $answer['code'] ?? '', $reason);
            }
            $delay = max($delay, $retryAfter);
            if ($delay > self::RETRY_DELAY_MAX) {
                break;
            }
        }
        $host = parse_url($this->url, PHP_URL_HOST);
        throw new UnavailableException("$host is not available: $reason", 'unavailable');
    }

    /** @return array{int, int, string} status, Retry-After and body; status 0 and the reason without an answer */
    private function exchange(string $path, #[\SensitiveParameter] string $payload, float $timeout): array
    {
        $context = stream_context_create(['http' => [
            'method' => 'POST',
            'header' => ["Authorization: Bearer $this->token", 'Content-Type: application/json'],
            'content' => $payload,
            'protocol_version' => 1.1,
            'timeout' => $timeout,
            'follow_location' => 0,
            'ignore_errors' => true,
        ]]);
        error_clear_last();
        $stream = @fopen($this->url . $path, 'rb', false, $context);
        if ($stream === false) {
            return [0, 0, self::lastError('connection failed')];
        }
        $text = @stream_get_contents($stream);
        $meta = stream_get_meta_data($stream);
        fclose($stream);
        if ($text === false || $meta['timed_out']) {
            return [0, 0, 'the answer ended early'];
        }
        $head = implode("\n", $meta['wrapper_data']);
        $status = preg_match('~^HTTP/\S+ (\d{3})~', $head, $found) ? (int) $found[1] : 0;
        $retryAfter = preg_match('~^retry-after:\s*(\d+)~mi', $head, $found) ? (int) $found[1] : 0;
        return [$status, $retryAfter, $text];
    }

    private static function lastError(string $default): string
    {
        // "fopen(URL): Failed to open stream: reason"
        $parts = explode('): ', error_get_last()['message'] ?? $default, 2);
        return end($parts);
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    private static function sleep(float $seconds): void
    {
        usleep((int) round($seconds * 1e6));
    }

    private static function duration(float $seconds): string
    {
        return (int) round($seconds * 1000) . 'ms';
    }

    private static function keyPath(string $namespace, string $key): string
    {
        foreach ([$namespace, $key] as $text) {
            // Proxies and URL libraries remove dot segments: the request would be about another key.
            if (in_array($text, ['', '.', '..'], true)) {
                throw new InvalidRequestException("namespace and key must not be \"$text\"", 'invalid_key');
            }
        }
        return '/' . rawurlencode($namespace) . '/' . rawurlencode($key);
    }

    private static function claimBody(float $lease, ?float $ttl, ?string $fingerprint): array
    {
        $ttl = $ttl === null ? null : self::duration($ttl);
        return array_filter(
            ['lease' => self::duration($lease), 'ttl' => $ttl, 'fingerprint' => $fingerprint],
            fn ($value) => $value !== null,
        );
    }

    private static function completionBody(mixed $result, ?float $ttl): array
    {
        self::toJson($result);
        return ['result' => $result] + ($ttl === null ? [] : ['ttl' => self::duration($ttl)]);
    }

    private static function toJson(mixed $value): string
    {
        try {
            return json_encode($value, JSON_THROW_ON_ERROR | JSON_PRESERVE_ZERO_FRACTION | JSON_UNESCAPED_UNICODE);
        } catch (\JsonException $error) {
            throw new ResultException('the value is not JSON: ' . $error->getMessage(), 'result_not_json', 0, $error);
        }
    }

    private static function readClaim(string $namespace, string $key, array $answer): Claim
    {
        return match ($answer['status']) {
            'completed' => new Completed($answer['result'] ?? null, $answer['completed_at']),
            'in_progress' => new InProgress($answer['retry_after']),
            default => new Claimed(
                $namespace,
                $key,
                $answer['token'],
                $answer['fence'],
                $answer['operation']['id'],
                $answer['operation']['started_at'],
                $answer['resumed'],
            ),
        };
    }

    private static function itemError(array $answer): ?SurehookException
    {
        return match ($answer['status']) {
            'stale_token' => self::problem(409, 'stale_token', 'the claim is no longer yours'),
            'error' => self::problem(0, $answer['code'], $answer['detail']),
            default => null,
        };
    }

    private static function problem(int $status, string $code, string $detail): SurehookException
    {
        $kind = match ($code) {
            'fingerprint_mismatch' => FingerprintMismatchException::class,
            'namespace_not_allowed' => UnauthorizedException::class,
            'result_too_large' => ResultException::class,
            'stale_token' => StaleTokenException::class,
            'too_many_idempotency_keys' => UnavailableException::class,
            default => match ($status) {
                401, 403 => UnauthorizedException::class,
                413 => ResultException::class,
                default => InvalidRequestException::class,
            },
        };
        return new $kind($detail, $code, $status);
    }
}
