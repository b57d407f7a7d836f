"""An S3 server for the tests: moto stores the objects, botocore verifies the signatures.

moto alone accepts any presigned URL. So every request is first checked here as S3 does: botocore,
Amazon's own library, computes the signature of the received request again; the key must be known, the
scope right and the URL not expired. Only then does moto get the request.

Prints `port N` and exits when its standard input is closed.

    s3_server.py BUCKET ACCESS_KEY SECRET_KEY REGION
"""

import hmac
import os
import sys
import threading
import time
from calendar import timegm
from urllib.parse import parse_qsl

from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET, ACCESS_KEY, SECRET_KEY, REGION = sys.argv[1:5]
# Seven days.
EXPIRES_MAX = 604_800
# Allowed clock difference in seconds.
SKEW = 15 * 60


class RejectedRequest(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def check(environ):
    """Raises unless the request is signed in its query by the key, for now."""
    raw = environ["RAW_URI"]
    path, _, query = raw.partition("?")
    pairs = dict(parse_qsl(query, keep_blank_values=True))
    if "X-Amz-Signature" not in pairs:
        raise RejectedRequest(403, "AccessDenied", "Access Denied")
    wanted = ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders"]
    if any(f"X-Amz-{name}" not in pairs for name in wanted):
        raise RejectedRequest(400, "AuthorizationQueryParametersError", "a parameter is missing")
    if pairs["X-Amz-Algorithm"] != "AWS4-HMAC-SHA256":
        raise RejectedRequest(400, "AuthorizationQueryParametersError", "unknown algorithm")
    date, expires = pairs["X-Amz-Date"], int(pairs["X-Amz-Expires"])
    key, day, region, service, end = pairs["X-Amz-Credential"].split("/")
    if key != ACCESS_KEY:
        raise RejectedRequest(403, "InvalidAccessKeyId", "no such key")
    if (day, region, service, end) != (date[:8], REGION, "s3", "aws4_request"):
        raise RejectedRequest(400, "AuthorizationQueryParametersError", "the scope is wrong")
    if not 0 < expires <= EXPIRES_MAX:
        raise RejectedRequest(400, "AuthorizationQueryParametersError", "X-Amz-Expires is out of range")
    names = pairs["X-Amz-SignedHeaders"].split(";")
    if "host" not in names:
        raise RejectedRequest(403, "AccessDenied", "host is not signed")
    headers = {name: environ.get(cgi_name(name), "") for name in names}
    unsigned = "&".join(part for part in query.split("&") if not part.startswith("X-Amz-Signature="))
    url = f"http://{environ['HTTP_HOST']}{path}?{unsigned}"
    request = AWSRequest(method=environ["REQUEST_METHOD"], url=url, headers=headers)
    request.context["timestamp"] = date
    auth = S3SigV4QueryAuth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", REGION, expires)
    canonical = auth.canonical_request(request)
    signature = auth.signature(auth.string_to_sign(request, canonical), request)
    if not hmac.compare_digest(signature, pairs["X-Amz-Signature"]):
        raise RejectedRequest(403, "SignatureDoesNotMatch", "the signature is another one")
    signed_at, now = timegm(time.strptime(date, "%Y%m%dT%H%M%SZ")), time.time()
    if signed_at > now + SKEW:
        raise RejectedRequest(403, "AccessDenied", "Request is not valid yet")
    if signed_at + expires < now:
        raise RejectedRequest(403, "AccessDenied", "Request has expired")


def cgi_name(header):
    name = header.upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"


def strict(app):
    """Wraps the app with the check."""

    def guarded(environ, start_response):
        try:
            check(environ)
        except RejectedRequest as rejected:
            body = (
                f"<?xml version=\"1.0\"?><Error><Code>{rejected.code}</Code>"
                f"<Message>{rejected.message}</Message></Error>"
            ).encode()
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            start_response(f"{rejected.status} Rejected", headers)
            return [body]
        return app(environ, start_response)

    return guarded


class SilentRequestHandler(WSGIRequestHandler):
    def log(self, *_):
        pass


def main():
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(BUCKET, REGION)
    server = make_server(
        "127.0.0.1", 0, strict(create_backend_app("s3")), threaded=True, request_handler=SilentRequestHandler
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"port {server.server_port}", flush=True)
    sys.stdin.read()
    os._exit(0)


main()
