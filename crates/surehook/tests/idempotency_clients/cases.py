"""Every call of clients/python/surehook.py against a real gateway; prints one line per case.

The arguments are the URL of the gateway, the API token, the URL of a proxy that loses the first answer per path,
an API token for another namespace, and the URLs of a TLS proxy that is trusted and of one that is not.
"""

import json
import os
import sys
import threading
import time

import surehook

url, token, lossy_url, other_token, tls_url, untrusted_url = sys.argv[1:]
client = surehook.Client(url, token)
NAMESPACE = "python"


def show(case, *values):
    print(case, json.dumps(values, ensure_ascii=False, separators=(",", ":")))


def kind(claim):
    return {surehook.Claimed: "claimed", surehook.InProgress: "in_progress", surehook.Completed: "completed"}[type(claim)]


def error_of(action):
    try:
        action()
    except surehook.SurehookError as error:
        assert token not in str(error) + repr(error), "the error shows the token"
        return type(error).__name__.replace("Error", "")
    return None


def fail(text):
    raise RuntimeError(text)


def process_message(message):
    try:
        return client.once("messages", message["id"], lambda claim: create_order(message), lease=60, ttl=7 * 86400)
    except surehook.InProgressError as busy:
        return f"try again in {busy.retry_after} s"


def create_order(message):
    return {"order": message["order"]}


show("README", *[process_message({"id": "wamid.1", "order": order}) for order in (7, 8)])
client.claim("messages", "wamid.2", lease=20)
show("README while held", process_message({"id": "wamid.2"}).startswith("try again in "))

first = client.claim(NAMESPACE, "order", lease=60)
show("claim", kind(first), first.resumed, first.token not in repr(first) and token not in repr(client))
busy = client.claim(NAMESPACE, "order")
show("claim while held", kind(busy), 1 <= busy.retry_after <= 60)
client.extend(first, 600)
show("extend", client.claim(NAMESPACE, "order").retry_after > 300)
client.complete(first, {"order": 7, "note": "açaí"})
client.complete(first, {"order": 8})
done = client.claim(NAMESPACE, "order")
show("complete twice", kind(done), done.result)

client.claim(NAMESPACE, "body", fingerprint="a")
show("other fingerprint", error_of(lambda: client.claim(NAMESPACE, "body", fingerprint="b")))

old = client.claim(NAMESPACE, "released")
client.release(old)
new = client.claim(NAMESPACE, "released")
show("claim after release", kind(new), new.resumed, new.fence > old.fence, new.operation_id != old.operation_id)
show(
    "stale token",
    error_of(lambda: client.extend(old)),
    error_of(lambda: client.complete(old, 1)),
    error_of(lambda: client.release(old)),
)

crashed = client.claim(NAMESPACE, "crashed", lease=1)
resumed = client.claim(NAMESPACE, "crashed", wait=20)
show("claim after the lease", kind(resumed), resumed.resumed, resumed.operation_id == crashed.operation_id)

held = client.claim(NAMESPACE, "batch-held")
batch = client.batch(
    claims=[
        {"namespace": NAMESPACE, "key": "batch-new", "lease": 5, "ttl": 60, "fingerprint": "a"},
        {"namespace": NAMESPACE, "key": "batch-new"},
        {"namespace": NAMESPACE, "key": "order"},
        {"namespace": "Not Valid", "key": "order"},
    ],
    completions=[{"claim": held, "result": [1], "ttl": 60}, {"claim": old, "result": 1}],
)
show("batch of claims", *[kind(claim) for claim in batch.claims[:3]], type(batch.claims[3]).__name__[:-5])
show("batch of completions", batch.completions[0], type(batch.completions[1]).__name__[:-5])
show("result of the batch", client.claim(NAMESPACE, "batch-held").result)

runs = []


def count_run(claim):
    runs.append(claim.key)
    return {"run": len(runs)}


show("once", *[client.once(NAMESPACE, "once", count_run) for _ in range(3)])
show("once while held", error_of(lambda: client.once(NAMESPACE, "body", lambda claim: fail("must not run"))))
try:
    client.once(NAMESPACE, "raises", lambda claim: fail("boom"))
except RuntimeError as error:
    show("once with exception", str(error), client.once(NAMESPACE, "raises", lambda claim: "second run"))


def outlast_the_lease(claim):
    began, seen = time.monotonic(), set()
    while time.monotonic() - began < 4.5:
        seen.add(kind(client.claim(NAMESPACE, "long", wait=0.5)))
    return sorted(seen)


show("once longer than its lease", client.once(NAMESPACE, "long", outlast_the_lease, lease=2))
show(
    "result that is not JSON",
    error_of(lambda: client.once(NAMESPACE, "no-json", lambda claim: object())),
    client.once(NAMESPACE, "no-json", lambda claim: fail("must not run")),
)
show(
    "result that is too large",
    error_of(lambda: client.once(NAMESPACE, "large", lambda claim: "x" * 70_000)),
    client.once(NAMESPACE, "large", lambda claim: fail("must not run")),
)

for key in ("a/b c?ü%2F&+", "a"):
    client.complete(client.claim(NAMESPACE, key), key)
show("keys of any text", *[client.claim(NAMESPACE, key).result for key in ("a/b c?ü%2F&+", "a")])
show("dot segments", error_of(lambda: client.claim(NAMESPACE, "..")), error_of(lambda: client.claim("..", "a")))
show("invalid lease", error_of(lambda: client.claim(NAMESPACE, "lease", lease=0.001)))
show("wrong API token", error_of(lambda: surehook.Client(url, "wrong-" + token).claim(NAMESPACE, "a")))
show("token of another namespace", error_of(lambda: surehook.Client(url, other_token).claim(NAMESPACE, "a")))
show("TLS", kind(surehook.Client(tls_url, token).claim(NAMESPACE, "tls")))
show("untrusted TLS", error_of(lambda: surehook.Client(untrusted_url, token, attempts=2).claim(NAMESPACE, "a")))
show("no gateway", error_of(lambda: surehook.Client("http://127.0.0.1:1", token, attempts=2).claim(NAMESPACE, "a")))

lossy = surehook.Client(lossy_url, token)
show("lost answer of a claim", kind(lossy.claim(NAMESPACE, "lost")))
claim = client.claim(NAMESPACE, "lost-completion")
lossy.complete(claim, "stored")
show("lost answer of a completion", client.claim(NAMESPACE, "lost-completion").result)

executions, answers = [], []
callers = [
    threading.Thread(
        target=lambda: answers.append(
            client.once(NAMESPACE, "race", lambda claim: executions.append(1) or claim.operation_id, wait=30)
        )
    )
    for _ in range(50)
]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
show("50 concurrent callers", len(executions), len(answers), len(set(answers)))

# Open connections are not shared with the children of a fork: each gets its own answers.
children = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        for number in range(20):
            text = f"fork-{child}-{number}"
            client.once(NAMESPACE, text, lambda claim: text) == text or os._exit(1)
        os._exit(0)
    children.append(pid)
client.once(NAMESPACE, "parent", lambda claim: None)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children), "a child got the answer of another process"
