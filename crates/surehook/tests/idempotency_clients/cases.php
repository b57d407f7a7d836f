<?php

/**
 * Every call of clients/php/Surehook.php against a real gateway; prints one line per case.
 *
 * The arguments are the URL of the gateway, the API token, the URL of a proxy that loses the first answer per path,
 * an API token for another namespace, and the URLs of a TLS proxy that is trusted and of one that is not.
 */

declare(strict_types=1);

require_once 'Surehook.php';

use Surehook\Claim;
use Surehook\Claimed;
use Surehook\Client;
use Surehook\Completed;
use Surehook\InProgress;
use Surehook\SurehookException;

set_error_handler(fn (int $level, string $text) => error_reporting() & $level ? throw new ErrorException($text) : true);

[, $url, $token, $lossyUrl, $otherToken, $tlsUrl, $untrustedUrl] = $argv;
const NAME = 'php';
$client = new Client($url, $token);

function show(string $text, mixed ...$values): void
{
    echo $text, ' ', json_encode($values, JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES), "\n";
}

function kind(Claim $claim): string
{
    return [Claimed::class => 'claimed', InProgress::class => 'in_progress', Completed::class => 'completed'][$claim::class];
}

function nameOf(object $error): string
{
    return substr($error::class, strlen('Surehook\\'), -strlen('Exception'));
}

function errorOf(callable $action): ?string
{
    global $token;
    try {
        $action();
        return null;
    } catch (SurehookException $error) {
        if (str_contains((string) $error, $token)) {
            throw new LogicException('the error shows the token');
        }
        return nameOf($error);
    }
}

function processMessage(Client $client, array $message): mixed
{
    try {
        return $client->once('messages', $message['id'], fn () => createOrder($message), lease: 60, ttl: 7 * 86400);
    } catch (Surehook\InProgressException $busy) {
        return "try again in $busy->retryAfter s";
    }
}

function createOrder(array $message): array
{
    return ['order' => $message['order']];
}

$processed = array_map(fn ($order) => processMessage($client, ['id' => 'wamid.1', 'order' => $order]), [7, 8]);
show('README', ...$processed);
$client->claim('messages', 'wamid.2', lease: 20);
show('README while held', str_starts_with(processMessage($client, ['id' => 'wamid.2']), 'try again in '));

$refuse = fn () => throw new LogicException('must not run');

$first = $client->claim(NAME, 'order', lease: 60);
$dumps = print_r($first, true) . print_r($client, true);
show('claim', kind($first), $first->resumed, !str_contains($dumps, $first->token) && !str_contains($dumps, $token));
$busy = $client->claim(NAME, 'order');
show('claim while held', kind($busy), $busy->retryAfter >= 1 && $busy->retryAfter <= 60);
$client->extend($first, 600);
show('extend', $client->claim(NAME, 'order')->retryAfter > 300);
$client->complete($first, ['order' => 7, 'note' => 'açaí']);
$client->complete($first, ['order' => 8]);
$done = $client->claim(NAME, 'order');
show('complete twice', kind($done), $done->result);

$client->claim(NAME, 'body', fingerprint: 'a');
show('other fingerprint', errorOf(fn () => $client->claim(NAME, 'body', fingerprint: 'b')));

$old = $client->claim(NAME, 'released');
$client->release($old);
$new = $client->claim(NAME, 'released');
$isNewOperation = $new->operationId !== $old->operationId;
show('claim after release', kind($new), $new->resumed, $new->fence > $old->fence, $isNewOperation);
show(
    'stale token',
    errorOf(fn () => $client->extend($old)),
    errorOf(fn () => $client->complete($old, 1)),
    errorOf(fn () => $client->release($old)),
);

$crashed = $client->claim(NAME, 'crashed', lease: 1);
$resumed = $client->claim(NAME, 'crashed', wait: 20);
show('claim after the lease', kind($resumed), $resumed->resumed, $resumed->operationId === $crashed->operationId);

$held = $client->claim(NAME, 'batch-held');
$batch = $client->batch(
    claims: [
        ['namespace' => NAME, 'key' => 'batch-new', 'lease' => 5, 'ttl' => 60, 'fingerprint' => 'a'],
        ['namespace' => NAME, 'key' => 'batch-new'],
        ['namespace' => NAME, 'key' => 'order'],
        ['namespace' => 'Not Valid', 'key' => 'order'],
    ],
    completions: [['claim' => $held, 'result' => [1], 'ttl' => 60], ['claim' => $old, 'result' => 1]],
);
show('batch of claims', ...[...array_map(kind(...), array_slice($batch->claims, 0, 3)), nameOf($batch->claims[3])]);
show('batch of completions', $batch->completions[0], nameOf($batch->completions[1]));
show('result of the batch', $client->claim(NAME, 'batch-held')->result);

$runs = 0;
$countRun = function () use (&$runs): array {
    return ['run' => ++$runs];
};
show('once', ...array_map(fn () => $client->once(NAME, 'once', $countRun), range(1, 3)));
show('once while held', errorOf(fn () => $client->once(NAME, 'body', $refuse)));
try {
    $client->once(NAME, 'raises', fn () => throw new DomainException('boom'));
} catch (DomainException $error) {
    show('once with exception', $error->getMessage(), $client->once(NAME, 'raises', fn () => 'second run'));
}

$seen = $client->once(NAME, 'long', function (Claimed $claim) use ($client): array {
    $began = hrtime(true);
    $kinds = [];
    while (hrtime(true) - $began < 4.5e9) {
        $client->extend($claim, 2);
        $kinds[] = kind($client->claim(NAME, 'long', wait: 0.5));
    }
    return array_values(array_unique($kinds));
}, lease: 2);
show('once longer than its lease', $seen);
show(
    'result that is not JSON',
    errorOf(fn () => $client->once(NAME, 'no-json', fn () => NAN)),
    $client->once(NAME, 'no-json', $refuse),
);
show(
    'result that is too large',
    errorOf(fn () => $client->once(NAME, 'large', fn () => str_repeat('x', 70_000))),
    $client->once(NAME, 'large', $refuse),
);

$keys = ['a/b c?ü%2F&+', 'a'];
foreach ($keys as $key) {
    $client->complete($client->claim(NAME, $key), $key);
}
show('keys of any text', ...array_map(fn ($key) => $client->claim(NAME, $key)->result, $keys));
show('dot segments', errorOf(fn () => $client->claim(NAME, '..')), errorOf(fn () => $client->claim('..', 'a')));
show('invalid lease', errorOf(fn () => $client->claim(NAME, 'lease', lease: 0.001)));
show('wrong API token', errorOf(fn () => (new Client($url, "wrong-$token"))->claim(NAME, 'a')));
show('token of another namespace', errorOf(fn () => (new Client($url, $otherToken))->claim(NAME, 'a')));
show('TLS', kind((new Client($tlsUrl, $token))->claim(NAME, 'tls')));
show('untrusted TLS', errorOf(fn () => (new Client($untrustedUrl, $token, attempts: 2))->claim(NAME, 'a')));
show('no gateway', errorOf(fn () => (new Client('http://127.0.0.1:1', $token, attempts: 2))->claim(NAME, 'a')));

$lossy = new Client($lossyUrl, $token);
show('lost answer of a claim', kind($lossy->claim(NAME, 'lost')));
$claim = $client->claim(NAME, 'lost-completion');
$lossy->complete($claim, 'stored');
show('lost answer of a completion', $client->claim(NAME, 'lost-completion')->result);

// PHP has no threads: 50 processes.
$work = tempnam(sys_get_temp_dir(), 'executions');
$answered = tempnam(sys_get_temp_dir(), 'answers');
for ($caller = 0; $caller < 50; $caller++) {
    if (pcntl_fork() === 0) {
        $answer = $client->once(NAME, 'race', function (Claimed $claim) use ($work): string {
            file_put_contents($work, "$claim->operationId\n", FILE_APPEND | LOCK_EX);
            return $claim->operationId;
        }, wait: 30);
        file_put_contents($answered, "$answer\n", FILE_APPEND | LOCK_EX);
        exit(0);
    }
}
while (pcntl_wait($status) > 0) {
}
$answers = file($answered);
show('50 concurrent callers', count(file($work)), count($answers), count(array_unique($answers)));
array_map(unlink(...), [$work, $answered]);
