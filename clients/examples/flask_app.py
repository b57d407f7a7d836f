"""A Flask handler that processes each webhook once.

    SUREHOOK_URL=https://surehook.example.com SUREHOOK_TOKEN=… ORDERS=orders.ndjson flask --app flask_app run
"""

import fcntl
import json
import os

import surehook
from flask import Flask, jsonify, request

LEASE = float(os.environ.get("LEASE", "30"))

app = Flask(__name__)
client = surehook.Client(os.environ["SUREHOOK_URL"], os.environ["SUREHOOK_TOKEN"])


@app.post("/orders")
def receive_order():
    webhook_id, order = request.headers["webhook-id"], request.get_json()
    try:
        receipt = client.once("orders", webhook_id, lambda claim: create_order(claim, order), lease=LEASE)
    except surehook.InProgressError as busy:
        return jsonify(error=str(busy)), 503, {"Retry-After": str(busy.retry_after)}
    return jsonify(receipt)


def create_order(claim, order):
    """Appends a line to a file; yours writes to a database and calls other services."""
    receipt = {"order": order["id"], "operation": claim.operation_id, "resumed": claim.resumed}
    with open(os.environ["ORDERS"], "a", encoding="utf-8") as orders:
        fcntl.flock(orders, fcntl.LOCK_EX)
        orders.write(json.dumps(receipt) + "\n")
    return receipt
