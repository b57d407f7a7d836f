/**
 * An Express handler that processes each webhook once.
 *
 *     SUREHOOK_URL=https://surehook.example.com SUREHOOK_TOKEN=… ORDERS=orders.ndjson PORT=8000 node express_app.js
 */

import { appendFile } from "node:fs/promises";

import express from "express";

import { Claimed, Client, InProgressError } from "./surehook.js";

const env = (name: string, fallback = "") => process.env[name] ?? fallback;
const LEASE = Number(env("LEASE", "30"));

const app = express();
const client = new Client(env("SUREHOOK_URL"), env("SUREHOOK_TOKEN"));

app.post("/orders", express.json(), async (request, response, next) => {
  try {
    const webhookId = String(request.headers["webhook-id"] ?? "");
    const work = (claim: Claimed) => createOrder(claim, request.body);
    response.json(await client.once("orders", webhookId, work, { lease: LEASE }));
  } catch (error) {
    if (error instanceof InProgressError) {
      response.status(503).set("Retry-After", String(error.retryAfter)).json({ error: error.message });
    } else {
      next(error);
    }
  }
});

/** Appends a line to a file; yours writes to a database and calls other services. */
async function createOrder(claim: Claimed, order: { id: number }) {
  const receipt = { order: order.id, operation: claim.operationId, resumed: claim.resumed };
  await appendFile(env("ORDERS"), `${JSON.stringify(receipt)}\n`);
  return receipt;
}

app.listen(Number(env("PORT", "8000")), "127.0.0.1");
