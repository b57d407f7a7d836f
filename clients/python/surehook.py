"""Client of Surehook's idempotency service: do the work behind a key once.

    import surehook

    client = surehook.Client("https://surehook.example.com", token)
    order = client.once("orders", message_id, lambda claim: create_order(payload))

One file, Python 3.9 or newer, no dependencies. A client can be shared between threads and survives a fork.
Durations are seconds. What holds when answers are lost or processes crash is in README.md beside this folder.
"""

from __future__ import annotations

import collections
import http.client
import json
import os
import random
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Sequence, Union

# The longest time for which the gateway lets one call wait.
_WAIT_MAX = 30.0
# The gateway closes idle connections; older ones are not used again.
_IDLE_MAX = 4.0
# A gateway that asks for a longer delay (Retry-After) is not waited for.
_RETRY_DELAY_MAX = 5.0


class SurehookError(Exception):
    """Base of all errors. `code` is the gateway's problem code; `status` is 0 if there was no answer."""

    def __init__(self, message: str, code: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class InProgressError(SurehookError):
    """Another holder works on the key. Its lease ends in `retry_after` seconds, unless it is extended."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message, "in_progress")
        self.retry_after = retry_after


class FingerprintMismatchError(SurehookError):
    """The key was used for a request with another fingerprint."""


class StaleTokenError(SurehookError):
    """The claim is no longer yours: the lease ended and another holder claimed the key, or it was released."""


class ResultError(SurehookError):
    """The result is not JSON, or larger than 64 KiB."""


class UnauthorizedError(SurehookError):
    """The API token is unknown, or may not use this namespace."""


class InvalidRequestError(SurehookError):
    """The gateway refused the request, for example because of an invalid namespace or lease."""


class UnavailableError(SurehookError):
    """No usable answer after all attempts. The last one may have taken effect."""


@dataclass(frozen=True)
class Claimed:
    """The key is yours until the lease ends: do the work, then complete or release it.

    `fence` grows with every grant of a key. `operation_id` stays the same when the work of a crashed holder is
    `resumed`: derive ids from it, and the resumed work creates things once.
    """

    namespace: str
    key: str
    token: str = field(repr=False)
    fence: int = 0
    operation_id: str = ""
    started_at: str = ""
    resumed: bool = False


@dataclass(frozen=True)
class InProgress:
    """Another holder has the lease for `retry_after` more seconds."""

    retry_after: int


@dataclass(frozen=True)
class Completed:
    """The work was done before, with this result."""

    result: Any
    completed_at: str = ""


Claim = Union[Claimed, InProgress, Completed]


@dataclass(frozen=True)
class BatchResult:
    """One entry per item, in order. An item that failed has its error; a stored completion has None."""

    claims: list[Union[Claim, SurehookError]]
    completions: list[Optional[SurehookError]]


class Client:
    """Talks to one gateway. `timeout` is for each of at most `attempts` attempts of a call."""

    def __init__(self, url: str, token: str, *, timeout: float = 10.0, attempts: int = 5) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("url must be http://host or https://host, without user and password")
        if not token or not all("!" <= character <= "~" for character in token):
            raise ValueError("token must be the text of an API token, without spaces or line breaks")
        self._is_tls = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._path = parts.path.rstrip("/") + "/api/v1/idempotency"
        self._headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        self._timeout, self._attempts = timeout, max(1, attempts)
        # Its methods are atomic; a lock could be held by another thread during a fork.
        self._idle: collections.deque[tuple[float, http.client.HTTPConnection]] = collections.deque()
        self._pid = os.getpid()

    def once(
        self,
        namespace: str,
        key: str,
        work: Callable[[Claimed], Any],
        *,
        lease: float = 30.0,
        ttl: Optional[float] = None,
        wait: float = 0.0,
        fingerprint: Optional[str] = None,
    ) -> Any:
        """Runs `work(claim)` once per key and returns its result, as JSON would; duplicates get the stored result.

        The lease is extended while the work runs. If the work raises, the key is released, and the next call runs
        it again. While another holder works, this waits up to `wait` seconds and then raises InProgressError.
        """
        claim = self._claim_within(wait, namespace, key, lease=lease, ttl=ttl, fingerprint=fingerprint)
        if isinstance(claim, Completed):
            return claim.result
        if isinstance(claim, InProgress):
            raise InProgressError(
                f"{namespace}/{key} is being processed by another holder; try again in {claim.retry_after} s",
                claim.retry_after,
            )
        done = threading.Event()
        threading.Thread(target=self._keep_lease, args=(claim, lease, done), daemon=True).start()
        try:
            try:
                result = work(claim)
            except BaseException:
                self._release_quietly(claim)
                raise
            return self._complete_work(claim, result, ttl)
        finally:
            done.set()

    def claim(
        self,
        namespace: str,
        key: str,
        *,
        lease: float = 30.0,
        ttl: Optional[float] = None,
        wait: float = 0.0,
        fingerprint: Optional[str] = None,
    ) -> Claim:
        """Claims a key. `wait` (up to 30 s) lets the gateway answer when the current holder is done."""
        body = _claim_body(lease, ttl, fingerprint)
        body["wait"] = _duration(wait)
        return _read_claim(namespace, key, self._post(_key_path(namespace, key), body, wait))

    def extend(self, claim: Claimed, lease: float = 30.0) -> None:
        """Lets the lease end `lease` seconds from now."""
        self._update(claim, "extend", {"lease": _duration(lease)})

    def complete(self, claim: Claimed, result: Any = None, *, ttl: Optional[float] = None) -> None:
        """Stores the result for later claims. Repeating it with the same claim changes nothing and succeeds."""
        self._update(claim, "complete", _completion_body(result, ttl))

    def release(self, claim: Claimed) -> None:
        """Gives the key back without a result: the next claim gets it."""
        self._update(claim, "release", {})

    def batch(self, claims: Sequence[dict] = (), completions: Sequence[dict] = ()) -> BatchResult:
        """Claims and completes up to 100 keys in one call.

        A claim is {"namespace", "key"} and optionally "lease", "ttl" and "fingerprint"; a completion is {"claim",
        "result"} and optionally "ttl".
        """
        body: dict[str, Any] = {"claims": [], "completions": []}
        for item in claims:
            options = _claim_body(item.get("lease", 30.0), item.get("ttl"), item.get("fingerprint"))
            body["claims"].append({"namespace": item["namespace"], "key": item["key"], **options})
        for item in completions:
            claim = item["claim"]
            options = _completion_body(item.get("result"), item.get("ttl"))
            body["completions"].append(
                {"namespace": claim.namespace, "key": claim.key, "token": claim.token, **options}
            )
        answer = self._post("", body)
        return BatchResult(
            [_item_error(got) or _read_claim(item["namespace"], item["key"], got)
             for item, got in zip(claims, answer["claims"])],
            [_item_error(got) for got in answer["completions"]],
        )

    def close(self) -> None:
        """Closes idle connections. The client can still be used."""
        self._close_idle(0.0)

    def __repr__(self) -> str:
        return f"surehook.Client({self._host!r})"

    def _claim_within(self, wait: float, namespace: str, key: str, **options: Any) -> Claim:
        deadline = time.monotonic() + wait
        while True:
            left = max(0.0, deadline - time.monotonic())
            claim = self.claim(namespace, key, wait=min(left, _WAIT_MAX), **options)
            left = deadline - time.monotonic()
            if not isinstance(claim, InProgress) or left <= 0:
                return claim
            time.sleep(min(left, 0.2))

    def _complete_work(self, claim: Claimed, result: Any, ttl: Optional[float]) -> Any:
        try:
            stored = json.loads(_to_json(result))
            self.complete(claim, stored, ttl=ttl)
            return stored
        except ResultError as error:
            # Releasing the key would do the work again with every retry.
            self.complete(claim, None, ttl=ttl)
            raise ResultError(
                f"{claim.namespace}/{claim.key} is done and will not run again, but its result was not stored: {error}",
                error.code,
                error.status,
            ) from error

    def _keep_lease(self, claim: Claimed, lease: float, done: threading.Event) -> None:
        while not done.wait(lease / 3):
            try:
                self.extend(claim, lease)
            except StaleTokenError:
                return
            except SurehookError:
                pass

    def _release_quietly(self, claim: Claimed) -> None:
        """The error of the work matters more; without a release the key is free when its lease ends."""
        try:
            self.release(claim)
        except SurehookError:
            pass

    def _update(self, claim: Claimed, step: str, body: dict) -> None:
        body["token"] = claim.token
        self._post(f"{_key_path(claim.namespace, claim.key)}/{step}", body)

    def _post(self, path: str, body: dict, wait: float = 0.0) -> dict:
        """Sends a request until there is an answer. All requests of this service may be repeated."""
        payload = _to_json(body).encode()
        failure: Optional[BaseException] = None
        reason, delay = "", 0.0
        for attempt in range(self._attempts):
            time.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(0.2 * 2**attempt, _RETRY_DELAY_MAX)
            try:
                status, retry_after, text = self._exchange(path, payload, self._timeout + wait)
            except (OSError, http.client.HTTPException) as error:
                failure, reason = error, f"{type(error).__name__}: {error}"
                continue
            answer = _read_object(text)
            if status == 200 and answer:
                return answer
            code, detail = answer.get("code", ""), answer.get("detail", f"HTTP status {status}")
            if 300 <= status < 500 and status not in (408, 429):
                raise _error(status, code, detail)
            failure, reason = None, detail
            if retry_after.isdigit():
                delay = max(delay, float(retry_after))
            if delay > _RETRY_DELAY_MAX:
                break
        raise UnavailableError(f"{self._host} is not available: {reason}", "unavailable") from failure

    def _exchange(self, path: str, payload: bytes, timeout: float) -> tuple[int, str, bytes]:
        connection = self._take_connection(timeout)
        try:
            connection.request("POST", self._path + path, payload, self._headers)
            response = connection.getresponse()
            text = response.read()
        except BaseException:
            connection.close()
            # The idle ones are probably as dead as this one.
            self._close_idle(0.0)
            raise
        if not response.will_close:
            self._idle.append((time.monotonic(), connection))
            self._close_idle(_IDLE_MAX)
        return response.status, response.getheader("Retry-After", ""), text

    def _take_connection(self, timeout: float) -> http.client.HTTPConnection:
        # After a fork, parent and child would read each other's answers.
        if self._pid != os.getpid():
            self.close()
            self._pid = os.getpid()
        self._close_idle(_IDLE_MAX)
        try:
            _, connection = self._idle.pop()
            connection.sock.settimeout(timeout)
            return connection
        except IndexError:
            pass
        kind = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=timeout)

    def _close_idle(self, age: float) -> None:
        """Closes connections that have been idle for so many seconds; the oldest are on the left."""
        try:
            while time.monotonic() - self._idle[0][0] >= age:
                self._idle.popleft()[1].close()
        except IndexError:
            pass


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _key_path(namespace: str, key: str) -> str:
    for text in (namespace, key):
        # Proxies and URL libraries remove dot segments: the request would be about another key.
        if text in ("", ".", ".."):
            raise InvalidRequestError(f"namespace and key must not be {text!r}", "invalid_key")
    return f"/{urllib.parse.quote(namespace, safe='')}/{urllib.parse.quote(key, safe='')}"


def _claim_body(lease: float, ttl: Optional[float], fingerprint: Optional[str]) -> dict:
    body = {"lease": _duration(lease)}
    if ttl is not None:
        body["ttl"] = _duration(ttl)
    if fingerprint is not None:
        body["fingerprint"] = fingerprint
    return body


def _completion_body(result: Any, ttl: Optional[float]) -> dict:
    _to_json(result)
    return {"result": result} if ttl is None else {"result": result, "ttl": _duration(ttl)}


def _to_json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError(f"the value is not JSON: {error}", "result_not_json") from error


def _read_object(text: bytes) -> dict:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _read_claim(namespace: str, key: str, answer: dict) -> Claim:
    if answer["status"] == "completed":
        return Completed(answer.get("result"), answer.get("completed_at", ""))
    if answer["status"] == "in_progress":
        return InProgress(answer["retry_after"])
    operation = answer["operation"]
    return Claimed(
        namespace, key, answer["token"], answer["fence"], operation["id"], operation["started_at"], answer["resumed"]
    )


def _item_error(answer: dict) -> Optional[SurehookError]:
    if answer["status"] == "stale_token":
        return _error(409, "stale_token", "the claim is no longer yours")
    if answer["status"] == "error":
        return _error(0, answer["code"], answer["detail"])
    return None


def _error(status: int, code: str, detail: str) -> SurehookError:
    by_status = {401: UnauthorizedError, 403: UnauthorizedError, 413: ResultError}
    by_code = {
        "fingerprint_mismatch": FingerprintMismatchError,
        "namespace_not_allowed": UnauthorizedError,
        "result_too_large": ResultError,
        "stale_token": StaleTokenError,
        "too_many_idempotency_keys": UnavailableError,
    }
    kind = by_code.get(code) or by_status.get(status, InvalidRequestError)
    return kind(detail, code, status)
