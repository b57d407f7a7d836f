"""A Django view that processes each webhook once, as a project in one file.

    SUREHOOK_URL=https://surehook.example.com SUREHOOK_TOKEN=… ORDERS=orders.ndjson python django_app.py 127.0.0.1:8000
"""

import fcntl
import json
import os
import sys

import surehook
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

LEASE = float(os.environ.get("LEASE", "30"))

client = surehook.Client(os.environ["SUREHOOK_URL"], os.environ["SUREHOOK_TOKEN"])


@csrf_exempt
@require_POST
def receive_order(request):
    webhook_id, order = request.headers["webhook-id"], json.loads(request.body)
    try:
        receipt = client.once("orders", webhook_id, lambda claim: create_order(claim, order), lease=LEASE)
    except surehook.InProgressError as busy:
        return JsonResponse({"error": str(busy)}, status=503, headers={"Retry-After": str(busy.retry_after)})
    return JsonResponse(receipt)


def create_order(claim, order):
    """Appends a line to a file; yours writes to a database and calls other services."""
    receipt = {"order": order["id"], "operation": claim.operation_id, "resumed": claim.resumed}
    with open(os.environ["ORDERS"], "a", encoding="utf-8") as orders:
        fcntl.flock(orders, fcntl.LOCK_EX)
        orders.write(json.dumps(receipt) + "\n")
    return receipt


urlpatterns = [path("orders", receive_order)]

if __name__ == "__main__":
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="only for this example")
    application = get_wsgi_application()
    execute_from_command_line([sys.argv[0], "runserver", "--noreload", *sys.argv[1:]])
