<?php

/**
 * A PHP handler that processes each webhook once.
 *
 *     SUREHOOK_URL=https://surehook.example.com SUREHOOK_TOKEN=… ORDERS=orders.ndjson php -S 127.0.0.1:8000 handler.php
 */

declare(strict_types=1);

require_once 'Surehook.php';

define('LEASE', (float) (getenv('LEASE') ?: 30));

header('Content-Type: application/json');
$client = new Surehook\Client(getenv('SUREHOOK_URL'), getenv('SUREHOOK_TOKEN'));
$webhookId = $_SERVER['HTTP_WEBHOOK_ID'] ?? '';
$order = json_decode(file_get_contents('php://input'), true);
try {
    $receipt = $client->once('orders', $webhookId, fn ($claim) => createOrder($claim, $order), lease: LEASE);
    echo json_encode($receipt);
} catch (Surehook\InProgressException $busy) {
    http_response_code(503);
    header("Retry-After: $busy->retryAfter");
    echo json_encode(['error' => $busy->getMessage()]);
}

/** Appends a line to a file; yours writes to a database and calls other services. */
function createOrder(Surehook\Claimed $claim, array $order): array
{
    $receipt = ['order' => $order['id'], 'operation' => $claim->operationId, 'resumed' => $claim->resumed];
    file_put_contents(getenv('ORDERS'), json_encode($receipt) . "\n", FILE_APPEND | LOCK_EX);
    return $receipt;
}
