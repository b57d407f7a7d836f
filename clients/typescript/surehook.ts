/**
 * Client of Surehook's idempotency service: do the work behind a key once.
 *
 *     import { Client } from "./surehook.js";
 *
 *     const client = new Client("https://surehook.example.com", token);
 *     const order = await client.once("orders", messageId, () => createOrder(payload));
 *
 * One file, no dependencies: Node 20 or newer, or anything else with `fetch`. Durations are seconds. What holds when
 * answers are lost or processes crash is in README.md beside this folder.
 */

/** The longest time for which the gateway lets one call wait. */
const WAIT_MAX = 30;
/** A gateway that asks for a longer delay (Retry-After) is not waited for. */
const RETRY_DELAY_MAX = 5;

/** Base of all errors. `code` is the gateway's problem code; `status` is 0 if there was no answer. */
export class SurehookError extends Error {
  readonly code: string;
  readonly status: number;

  constructor(message: string, code = "", status = 0, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
    this.status = status;
  }
}

/** Another holder works on the key. Its lease ends in `retryAfter` seconds, unless it is extended. */
export class InProgressError extends SurehookError {
  readonly retryAfter: number;

  constructor(message: string, retryAfter: number) {
    super(message, "in_progress");
    this.retryAfter = retryAfter;
  }
}

/** The key was used for a request with another fingerprint. */
export class FingerprintMismatchError extends SurehookError {}

/** The claim is no longer yours: the lease ended and another holder claimed the key, or it was released. */
export class StaleTokenError extends SurehookError {}

/** The result is not JSON, or larger than 64 KiB. */
export class ResultError extends SurehookError {}

/** The API token is unknown, or may not use this namespace. */
export class UnauthorizedError extends SurehookError {}

/** The gateway refused the request, for example because of an invalid namespace or lease. */
export class InvalidRequestError extends SurehookError {}

/** No usable answer after all attempts. The last one may have taken effect. */
export class UnavailableError extends SurehookError {}

/**
 * The key is yours until the lease ends: do the work, then complete or release it.
 *
 * `fence` grows with every grant of a key. `operationId` stays the same when the work of a crashed holder is
 * `resumed`: derive ids from it, and the resumed work creates things once.
 */
export class Claimed {
  readonly status = "claimed";
  readonly namespace: string;
  readonly key: string;
  readonly fence: number;
  readonly operationId: string;
  readonly startedAt: string;
  readonly resumed: boolean;
  /** Private, so that it is not logged with the claim. */
  readonly #token: string;

  constructor(
    namespace: string,
    key: string,
    token: string,
    fence = 0,
    operationId = "",
    startedAt = "",
    resumed = false,
  ) {
    this.namespace = namespace;
    this.key = key;
    this.#token = token;
    this.fence = fence;
    this.operationId = operationId;
    this.startedAt = startedAt;
    this.resumed = resumed;
  }

  get token(): string {
    return this.#token;
  }
}

/** Another holder has the lease for `retryAfter` more seconds. */
export interface InProgress {
  readonly status: "in_progress";
  readonly retryAfter: number;
}

/** The work was done before, with this result. */
export interface Completed {
  readonly status: "completed";
  readonly result: unknown;
  readonly completedAt: string;
}

export type Claim = Claimed | InProgress | Completed;

export interface ClaimOptions {
  /** Seconds until another caller may claim the key if this one neither extends nor completes it; 30 by default. */
  lease?: number | undefined;
  /** Seconds for which the key and its result are remembered; a day by default. */
  ttl?: number | undefined;
  /** Seconds to wait while another holder works; 0 by default. */
  wait?: number | undefined;
  /** What makes the request, for example a hash of its body: the same key with another one is an error. */
  fingerprint?: string | undefined;
}

export interface BatchClaim extends Omit<ClaimOptions, "wait"> {
  namespace: string;
  key: string;
}

export interface BatchCompletion {
  claim: Claimed;
  result?: unknown;
  ttl?: number | undefined;
}

/** One entry per item, in order. An item that failed has its error; a stored completion has null. */
export interface BatchResult {
  readonly claims: (Claim | SurehookError)[];
  readonly completions: (SurehookError | null)[];
}

/** The fields of all answers; which of them are set depends on `status`. */
interface Answer {
  status: string;
  token: string;
  fence: number;
  operation: { id: string; started_at: string };
  resumed: boolean;
  retry_after: number;
  result: unknown;
  completed_at: string;
  code: string;
  detail: string;
}

/** Talks to one gateway. `timeout` (seconds) is for each of at most `attempts` attempts of a call. */
export class Client {
  readonly #url: string;
  readonly #token: string;
  readonly #timeout: number;
  readonly #attempts: number;

  constructor(url: string, token: string, options: { timeout?: number | undefined; attempts?: number | undefined } = {}) {
    if (!/^https?:\/\/[^/@?#]+(\/[^@?#]*)?$/.test(url)) {
      throw new TypeError("url must be http://host or https://host, without user and password");
    }
    if (!/^[!-~]+$/.test(token)) {
      throw new TypeError("token must be the text of an API token, without spaces or line breaks");
    }
    this.#url = `${url.replace(/\/+$/, "")}/api/v1/idempotency`;
    this.#token = token;
    this.#timeout = options.timeout ?? 10;
    this.#attempts = Math.max(1, options.attempts ?? 5);
  }

  /**
   * Runs the work once per key and returns its result, as JSON would; duplicates get the stored result.
   *
   * The lease is extended while the work runs. If the work throws, the key is released, and the next call runs it
   * again. While another holder works, this waits up to `wait` seconds and then throws InProgressError.
   */
  async once<T>(
    namespace: string,
    key: string,
    work: (claim: Claimed) => T | Promise<T>,
    options: ClaimOptions = {},
  ): Promise<T> {
    const claim = await this.#claimWithin(namespace, key, options);
    if (claim.status === "completed") {
      return claim.result as T;
    }
    if (claim.status === "in_progress") {
      throw new InProgressError(
        `${namespace}/${key} is being processed by another holder; try again in ${claim.retryAfter} s`,
        claim.retryAfter,
      );
    }
    const stopExtending = this.#keepLease(claim, options.lease ?? 30);
    try {
      let result: T;
      try {
        result = await work(claim);
      } catch (error) {
        await this.#releaseQuietly(claim);
        throw error;
      }
      return await this.#completeWork(claim, result, options.ttl);
    } finally {
      stopExtending();
    }
  }

  /** Claims a key. `wait` (up to 30 s) lets the gateway answer when the current holder is done. */
  async claim(namespace: string, key: string, options: ClaimOptions = {}): Promise<Claim> {
    const wait = options.wait ?? 0;
    const body = { ...claimBody(options), wait: duration(wait) };
    return readClaim(namespace, key, await this.#post<Answer>(keyPath(namespace, key), body, wait));
  }

  /** Lets the lease end `lease` seconds from now. */
  async extend(claim: Claimed, lease = 30): Promise<void> {
    await this.#update(claim, "extend", { lease: duration(lease) });
  }

  /** Stores the result for later claims. Repeating it with the same claim changes nothing and succeeds. */
  async complete(claim: Claimed, result: unknown = null, options: { ttl?: number | undefined } = {}): Promise<void> {
    await this.#update(claim, "complete", completionBody(result, options.ttl));
  }

  /** Gives the key back without a result: the next claim gets it. */
  async release(claim: Claimed): Promise<void> {
    await this.#update(claim, "release", {});
  }

  /** Claims and completes up to 100 keys in one call. */
  async batch(items: { claims?: BatchClaim[]; completions?: BatchCompletion[] }): Promise<BatchResult> {
    const claims = items.claims ?? [];
    const completions = items.completions ?? [];
    const answer = await this.#post<{ claims: Answer[]; completions: Answer[] }>("", {
      claims: claims.map((item) => ({ namespace: item.namespace, key: item.key, ...claimBody(item) })),
      completions: completions.map(({ claim, result, ttl }) => ({
        namespace: claim.namespace,
        key: claim.key,
        token: claim.token,
        ...completionBody(result, ttl),
      })),
    });
    return {
      claims: answer.claims.map((got, index) => {
        const { namespace, key } = claims[index] as BatchClaim;
        return itemError(got) ?? readClaim(namespace, key, got);
      }),
      completions: answer.completions.map(itemError),
    };
  }

  async #claimWithin(namespace: string, key: string, options: ClaimOptions): Promise<Claim> {
    const deadline = performance.now() / 1000 + (options.wait ?? 0);
    const timeLeft = () => Math.max(0, deadline - performance.now() / 1000);
    for (;;) {
      const claim = await this.claim(namespace, key, { ...options, wait: Math.min(timeLeft(), WAIT_MAX) });
      if (claim.status !== "in_progress" || timeLeft() === 0) {
        return claim;
      }
      await sleep(Math.min(timeLeft(), 0.2));
    }
  }

  async #completeWork<T>(claim: Claimed, result: T, ttl: number | undefined): Promise<T> {
    try {
      const stored = JSON.parse(toJson(result ?? null)) as T;
      await this.complete(claim, stored, { ttl });
      return stored;
    } catch (error) {
      if (!(error instanceof ResultError)) {
        throw error;
      }
      // Releasing the key would do the work again with every retry.
      await this.complete(claim, null, { ttl });
      const text = `${claim.namespace}/${claim.key} is done and will not run again, but its result was not stored`;
      throw new ResultError(`${text}: ${error.message}`, error.code, error.status, { cause: error });
    }
  }

  /** Extends the lease by a timer until the returned function is called. */
  #keepLease(claim: Claimed, lease: number): () => void {
    let isExtending = false;
    const timer = setInterval(
      async () => {
        if (isExtending) {
          return;
        }
        isExtending = true;
        try {
          await this.extend(claim, lease);
        } catch (error) {
          if (error instanceof StaleTokenError) {
            clearInterval(timer);
          }
        } finally {
          isExtending = false;
        }
      },
      (lease * 1000) / 3,
    );
    return () => clearInterval(timer);
  }

  /** The error of the work matters more; without a release the key is free when its lease ends. */
  async #releaseQuietly(claim: Claimed): Promise<void> {
    await this.release(claim).catch(() => undefined);
  }

  async #update(claim: Claimed, step: string, body: object): Promise<void> {
    await this.#post(`${keyPath(claim.namespace, claim.key)}/${step}`, { ...body, token: claim.token });
  }

  /** Sends a request until there is an answer. All requests of this service may be repeated. */
  async #post<T>(path: string, body: object, wait = 0): Promise<T> {
    const payload = toJson(body);
    let cause: unknown;
    let reason = "";
    let delay = 0;
    for (let attempt = 0; attempt < this.#attempts; attempt += 1) {
      await sleep(delay * (0.5 + Math.random() / 2));
      delay = Math.min(0.2 * 2 ** attempt, RETRY_DELAY_MAX);
      let response: Response;
      let text: string;
      try {
        response = await fetch(this.#url + path, {
          method: "POST",
          headers: { Authorization: `Bearer ${this.#token}`, "Content-Type": "application/json" },
          body: payload,
          redirect: "manual",
          signal: AbortSignal.timeout(Math.ceil((this.#timeout + wait) * 1000)),
        });
        text = await response.text();
      } catch (error) {
        cause = error;
        reason = describe(error);
        continue;
      }
      const answer = readObject(text);
      if (response.status === 200 && answer) {
        return answer as T;
      }
      const detail = String(answer?.["detail"] ?? `HTTP status ${response.status}`);
      if (response.status < 500 && ![200, 408, 429].includes(response.status)) {
        throw problem(response.status, String(answer?.["code"] ?? ""), detail);
      }
      cause = undefined;
      reason = detail;
      delay = Math.max(delay, Number(response.headers.get("Retry-After")) || 0);
      if (delay > RETRY_DELAY_MAX) {
        break;
      }
    }
    const { host } = new URL(this.#url);
    throw new UnavailableError(`${host} is not available: ${reason}`, "unavailable", 0, { cause });
  }
}

function sleep(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}

/** `fetch` says only "fetch failed"; the reason is its cause. */
function describe(error: unknown): string {
  const { message, cause } = error as Error;
  return cause instanceof Error && cause.message ? `${message}: ${cause.message}` : message;
}

function duration(seconds: number): string {
  return `${Math.round(seconds * 1000)}ms`;
}

function keyPath(namespace: string, key: string): string {
  for (const text of [namespace, key]) {
    // URL libraries and proxies remove dot segments: the request would be about another key.
    if (["", ".", ".."].includes(text)) {
      throw new InvalidRequestError(`namespace and key must not be ${JSON.stringify(text)}`, "invalid_key");
    }
  }
  return `/${encodeURIComponent(namespace)}/${encodeURIComponent(key)}`;
}

function claimBody({ lease = 30, ttl, fingerprint }: ClaimOptions): object {
  return { lease: duration(lease), ttl: ttl === undefined ? ttl : duration(ttl), fingerprint };
}

function completionBody(result: unknown, ttl: number | undefined): object {
  toJson(result);
  return { result: result ?? null, ttl: ttl === undefined ? ttl : duration(ttl) };
}

function toJson(value: unknown): string {
  try {
    return JSON.stringify(value) ?? "null";
  } catch (error) {
    throw new ResultError(`the value is not JSON: ${(error as Error).message}`, "result_not_json", 0, { cause: error });
  }
}

function readObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function readClaim(namespace: string, key: string, answer: Answer): Claim {
  switch (answer.status) {
    case "completed":
      return { status: "completed", result: answer.result ?? null, completedAt: answer.completed_at };
    case "in_progress":
      return { status: "in_progress", retryAfter: answer.retry_after };
    default: {
      const { token, fence, operation, resumed } = answer;
      return new Claimed(namespace, key, token, fence, operation.id, operation.started_at, resumed);
    }
  }
}

function itemError(answer: Answer): SurehookError | null {
  switch (answer.status) {
    case "stale_token":
      return problem(409, "stale_token", "the claim is no longer yours");
    case "error":
      return problem(0, answer.code, answer.detail);
    default:
      return null;
  }
}

function problem(status: number, code: string, detail: string): SurehookError {
  const byStatus = { 401: UnauthorizedError, 403: UnauthorizedError, 413: ResultError };
  const byCode = {
    fingerprint_mismatch: FingerprintMismatchError,
    namespace_not_allowed: UnauthorizedError,
    result_too_large: ResultError,
    stale_token: StaleTokenError,
    too_many_idempotency_keys: UnavailableError,
  };
  const kind =
    byCode[code as keyof typeof byCode] ?? byStatus[status as keyof typeof byStatus] ?? InvalidRequestError;
  return new kind(detail, code, status);
}
