/**
 * Every call of clients/typescript/surehook.ts against a real gateway; prints one line per case.
 *
 * The arguments are the URL of the gateway, the API token, the URL of a proxy that loses the first answer per path,
 * an API token for another namespace, and the URLs of a TLS proxy that is trusted and of one that is not.
 */

import { inspect } from "node:util";

import { Claimed, Client, InProgressError, SurehookError } from "./surehook.js";
import type { Claim } from "./surehook.js";

const [url = "", token = "", lossyUrl = "", otherToken = "", tlsUrl = "", untrustedUrl = ""] = process.argv.slice(2);
const NAMESPACE = "typescript";
const client = new Client(url, token);

function show(text: string, ...values: unknown[]): void {
  console.log(`${text} ${JSON.stringify(values)}`);
}

/** Claims a key that is expected to be free. */
async function grab(key: string, options = {}): Promise<Claimed> {
  const claim = await client.claim(NAMESPACE, key, options);
  if (claim.status !== "claimed") {
    throw new Error(`${key} is ${claim.status}`);
  }
  return claim;
}

function retryAfter(claim: Claim): number {
  return claim.status === "in_progress" ? claim.retryAfter : 0;
}

async function resultOf(key: string): Promise<unknown> {
  const claim = await client.claim(NAMESPACE, key);
  return claim.status === "completed" ? claim.result : claim;
}

function nameOf(value: unknown): string {
  return value instanceof SurehookError ? value.name.replace("Error", "") : String(value);
}

async function errorOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (inspect(error).includes(token)) {
    throw new Error("the error shows the token");
  }
  return nameOf(error);
}

function refuse(): never {
  throw new Error("must not run");
}

async function processMessage(message: Message): Promise<unknown> {
  try {
    return await client.once("messages", message.id, () => createOrder(message), { lease: 60, ttl: 7 * 86400 });
  } catch (error) {
    if (error instanceof InProgressError) {
      return `try again in ${error.retryAfter} s`;
    }
    throw error;
  }
}

interface Message {
  id: string;
  order: number;
}

function createOrder(message: Message): object {
  return { order: message.order };
}

const messages = [7, 8].map((order) => ({ id: "wamid.1", order }));
show("README", await processMessage(messages[0] as Message), await processMessage(messages[1] as Message));
await client.claim("messages", "wamid.2", { lease: 20 });
show("README while held", String(await processMessage({ id: "wamid.2", order: 9 })).startsWith("try again in "));

const first = await grab("order", { lease: 60 });
const isHidden = !inspect(first).includes(first.token) && !inspect(client).includes(token);
show("claim", first.status, first.resumed, isHidden);
const busy = await client.claim(NAMESPACE, "order");
show("claim while held", busy.status, retryAfter(busy) >= 1 && retryAfter(busy) <= 60);
await client.extend(first, 600);
show("extend", retryAfter(await client.claim(NAMESPACE, "order")) > 300);
await client.complete(first, { order: 7, note: "açaí" });
await client.complete(first, { order: 8 });
show("complete twice", (await client.claim(NAMESPACE, "order")).status, await resultOf("order"));

await grab("body", { fingerprint: "a" });
show("other fingerprint", await errorOf(client.claim(NAMESPACE, "body", { fingerprint: "b" })));

const old = await grab("released");
await client.release(old);
const next = await grab("released");
show("claim after release", next.status, next.resumed, next.fence > old.fence, next.operationId !== old.operationId);
show(
  "stale token",
  await errorOf(client.extend(old)),
  await errorOf(client.complete(old, 1)),
  await errorOf(client.release(old)),
);

const crashed = await grab("crashed", { lease: 1 });
const resumed = await grab("crashed", { wait: 20 });
show("claim after the lease", resumed.status, resumed.resumed, resumed.operationId === crashed.operationId);

const held = await grab("batch-held");
const batch = await client.batch({
  claims: [
    { namespace: NAMESPACE, key: "batch-new", lease: 5, ttl: 60, fingerprint: "a" },
    { namespace: NAMESPACE, key: "batch-new" },
    { namespace: NAMESPACE, key: "order" },
    { namespace: "Not Valid", key: "order" },
  ],
  completions: [
    { claim: held, result: [1], ttl: 60 },
    { claim: old, result: 1 },
  ],
});
const statuses = batch.claims.map((item) => (item instanceof SurehookError ? nameOf(item) : item.status));
show("batch of claims", ...statuses);
show("batch of completions", batch.completions[0], nameOf(batch.completions[1]));
show("result of the batch", await resultOf("batch-held"));

let runs = 0;
const countRun = () => ({ run: (runs += 1) });
const results: unknown[] = [];
for (let call = 0; call < 3; call += 1) {
  results.push(await client.once(NAMESPACE, "once", countRun));
}
show("once", ...results);
show("once while held", await errorOf(client.once(NAMESPACE, "body", refuse)));
const boom: unknown = await client
  .once(NAMESPACE, "raises", () => Promise.reject(new Error("boom")))
  .catch((error: Error) => error.message);
show("once with exception", boom, await client.once(NAMESPACE, "raises", () => "second run"));

const seen = await client.once(
  NAMESPACE,
  "long",
  async () => {
    const began = performance.now();
    const kinds = new Set<string>();
    while (performance.now() - began < 4500) {
      kinds.add((await client.claim(NAMESPACE, "long", { wait: 0.5 })).status);
    }
    return [...kinds];
  },
  { lease: 2 },
);
show("once longer than its lease", seen);
show(
  "result that is not JSON",
  await errorOf(client.once(NAMESPACE, "no-json", () => 1n)),
  await client.once(NAMESPACE, "no-json", refuse),
);
show(
  "result that is too large",
  await errorOf(client.once(NAMESPACE, "large", () => "x".repeat(70_000))),
  await client.once(NAMESPACE, "large", refuse),
);

const keys = ["a/b c?ü%2F&+", "a"];
for (const key of keys) {
  await client.complete(await grab(key), key);
}
show("keys of any text", ...(await Promise.all(keys.map(resultOf))));
show("dot segments", await errorOf(client.claim(NAMESPACE, "..")), await errorOf(client.claim("..", "a")));
show("invalid lease", await errorOf(client.claim(NAMESPACE, "lease", { lease: 0.001 })));
show("wrong API token", await errorOf(new Client(url, `wrong-${token}`).claim(NAMESPACE, "a")));
const foreign = new Client(url, otherToken);
show("token of another namespace", await errorOf(foreign.claim(NAMESPACE, "a")));
show("TLS", (await new Client(tlsUrl, token).claim(NAMESPACE, "tls")).status);
const untrusted = new Client(untrustedUrl, token, { attempts: 2 });
show("untrusted TLS", await errorOf(untrusted.claim(NAMESPACE, "a")));
const absent = new Client("http://127.0.0.1:1", token, { attempts: 2 });
show("no gateway", await errorOf(absent.claim(NAMESPACE, "a")));

const lossy = new Client(lossyUrl, token);
show("lost answer of a claim", (await lossy.claim(NAMESPACE, "lost")).status);
await lossy.complete(await grab("lost-completion"), "stored");
show("lost answer of a completion", await resultOf("lost-completion"));

let executions = 0;
const countExecution = (claim: Claimed) => {
  executions += 1;
  return claim.operationId;
};
const callers = Array.from({ length: 50 }, () => client.once(NAMESPACE, "race", countExecution, { wait: 30 }));
const answers = await Promise.all(callers);
show("50 concurrent callers", executions, answers.length, new Set(answers).size);
