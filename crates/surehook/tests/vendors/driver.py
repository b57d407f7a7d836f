"""Signs and verifies webhooks with the vendors' own Python libraries.

Reads one JSON object per line and writes one per line:

    {"op": "list"}
        -> {"libraries": [{"vendor", "library", "version", "signs"}]}
    {"op": "sign", "vendor", "secret", "url", "body_base64", "now", "headers"}
        -> {"headers": {...}}, and {"url": ...} where the signature is part of the URL
    {"op": "verify", "vendor", "secret", "url", "body_base64", "headers"}
        -> {"ok": true | false, "error"}
    {"op": "keys"}
        -> {"certificate", "private_key"}, in PEM, as PayPal has them

No signature is computed here: where a library cannot sign, the response is {"unsupported": reason}.
Header names are lower case. `secret` is the vendor's secret: a text, or an object with several parts.
"""

import asyncio
import base64
import contextlib
import importlib.metadata
import json
import logging
import sys
import uuid
from datetime import datetime, timezone
from urllib.parse import parse_qs, parse_qsl, urlsplit, urlunsplit

import jwt
import razorpay
from Adyen import util as adyen_util
from discord_interactions import verify_key
from hubspot.utils.signature import Signature
from mercadopago.webhook import WebhookSignatureValidator
from nacl.signing import SigningKey
from OpenSSL import crypto
from paddle_billing.Notifications import Secret as PaddleSecret
from paddle_billing.Notifications import Verifier as PaddleVerifier
from paypalrestsdk.notifications import WebhookEvent
from pywa.utils import webhook_updates_validator
from slack_sdk.signature import SignatureVerifier
from square.utils.webhooks_helper import verify_signature
from standardwebhooks import Webhook
from stripe import WebhookSignature
from svix.webhooks import Webhook as SvixWebhook
from twilio.request_validator import RequestValidator
from twitchAPI.eventsub.webhook import EventSubWebhook


class Call:
    """One request line."""

    def __init__(self, fields):
        self.secret = fields.get("secret")
        self.url = fields.get("url", "")
        self.headers = fields.get("headers", {})
        self.body = base64.b64decode(fields.get("body_base64", ""))
        self.now = fields.get("now", 0)

    @property
    def text(self):
        return self.body.decode("utf-8")


# ---- stripe --------------------------------------------------------------------------------------


def stripe_sign(call):
    header = WebhookSignature.generate_signature_header(call.text, call.secret, call.now)
    return {"headers": {"stripe-signature": header}}


def stripe_verify(call):
    # Raises if the signature is invalid.
    return WebhookSignature.verify_header(
        call.text, call.headers["stripe-signature"], call.secret, tolerance=300
    )


# ---- standard webhooks and svix ------------------------------------------------------------------


def standard(library, prefix):
    def sign(call):
        message = "msg_" + uuid.uuid4().hex
        at = datetime.fromtimestamp(call.now, tz=timezone.utc)
        return {
            "headers": {
                f"{prefix}-id": message,
                f"{prefix}-timestamp": str(call.now),
                f"{prefix}-signature": library(call.secret).sign(message, at, call.text),
            }
        }

    def verify(call):
        library(call.secret).verify(call.body, call.headers)
        return True

    return sign, verify


# ---- slack ---------------------------------------------------------------------------------------


def slack_sign(call):
    timestamp = str(call.now)
    signature = SignatureVerifier(call.secret).generate_signature(timestamp=timestamp, body=call.body)
    return {"headers": {"x-slack-request-timestamp": timestamp, "x-slack-signature": signature}}


def slack_verify(call):
    return SignatureVerifier(call.secret).is_valid_request(call.body, call.headers)


# ---- adyen -----------------------------------------------------------------------------------------
# Standard webhooks carry a signature in each item, the others one in a header.


def adyen_sign(call):
    signature = adyen_util.generate_payload_sig(call.body, call.secret)
    return {"headers": {"hmacsignature": signature.decode()}}


def adyen_verify(call):
    if "hmacsignature" in call.headers:
        return adyen_util.is_valid_hmac_payload(
            call.headers["hmacsignature"], call.secret, call.body
        )
    # The function looks at the first item only.
    items = json.loads(call.body)["notificationItems"]
    return all(
        adyen_util.is_valid_hmac_notification({"notificationItems": [item]}, call.secret)
        for item in items
    )


# ---- twitch ----------------------------------------------------------------------------------------
# Twitch has no library of its own; this is a widely used one. It only verifies.


class TwitchRequest:
    """A request in the shape of aiohttp, which the library expects."""

    def __init__(self, call):
        self.headers = {name.title(): value for name, value in call.headers.items()}
        self.call = call

    async def text(self):
        return self.call.text


def twitch_verify(call):
    # Without its constructor, which starts a client of Twitch's API.
    hook = object.__new__(EventSubWebhook)
    hook.secret = call.secret
    return asyncio.run(hook._verify_signature(TwitchRequest(call)))


# ---- paddle ----------------------------------------------------------------------------------------


class PaddleRequest:
    """A request in the shape of Django, which the library expects."""

    def __init__(self, call):
        self.headers = {"Paddle-Signature": call.headers["paddle-signature"]}
        self.body = call.body


def paddle_verify(call):
    return PaddleVerifier(maximum_variance=60).verify(PaddleRequest(call), PaddleSecret(call.secret))


# ---- razorpay --------------------------------------------------------------------------------------


def razorpay_verify(call):
    # It raises if the signature is wrong.
    client = razorpay.Client(auth=("id", "secret"))
    client.utility.verify_webhook_signature(call.text, call.headers["x-razorpay-signature"], call.secret)
    return True


# ---- twilio --------------------------------------------------------------------------------------


class Form(dict):
    """The parameters of a form in the shape of Django, which the library expects."""

    def __init__(self, text):
        super().__init__(parse_qs(text, keep_blank_values=True))

    def getlist(self, name):
        return self[name]


def is_form(call):
    return call.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")


def twilio_sign(call):
    validator = RequestValidator(call.secret)
    if is_form(call):
        signature = validator.compute_signature(call.url, Form(call.text))
        return {"headers": {"x-twilio-signature": signature}}
    # The body is covered by its hash in the URL.
    parts = urlsplit(call.url)
    query = "&".join(filter(None, [parts.query, "bodySHA256=" + validator.compute_hash(call.text)]))
    url = urlunsplit(parts._replace(query=query))
    return {"headers": {"x-twilio-signature": validator.compute_signature(url, {})}, "url": url}


def twilio_verify(call):
    params = Form(call.text) if is_form(call) else call.text
    return RequestValidator(call.secret).validate(
        call.url, params, call.headers["x-twilio-signature"]
    )


# ---- whatsapp ------------------------------------------------------------------------------------


def whatsapp_verify(call):
    return webhook_updates_validator(call.secret, call.body, call.headers["x-hub-signature-256"])


# ---- square --------------------------------------------------------------------------------------


def square_verify(call):
    return verify_signature(
        request_body=call.text,
        signature_header=call.headers["x-square-hmacsha256-signature"],
        signature_key=call.secret,
        notification_url=call.url,
    )


# ---- hubspot -------------------------------------------------------------------------------------


def hubspot_sign(call):
    timestamp = str(call.now * 1000)
    signature = Signature.get_signature(call.secret, call.text, "v3", call.url, "POST", timestamp)
    return {
        "headers": {"x-hubspot-request-timestamp": timestamp, "x-hubspot-signature-v3": signature}
    }


def hubspot_verify(call):
    return Signature.is_valid(
        signature=call.headers["x-hubspot-signature-v3"],
        client_secret=call.secret,
        request_body=call.text,
        http_uri=call.url,
        http_method="POST",
        signature_version="v3",
        timestamp=call.headers["x-hubspot-request-timestamp"],
    )


# ---- mercado pago --------------------------------------------------------------------------------


def mercado_pago_verify(call):
    query = dict(parse_qsl(urlsplit(call.url).query))
    # Raises if the signature is invalid. The library's tolerance reads `ts` as seconds, so none is set.
    WebhookSignatureValidator.validate(
        call.headers["x-signature"],
        call.headers.get("x-request-id"),
        query.get("data.id"),
        call.secret,
    )
    return True


# ---- paypal --------------------------------------------------------------------------------------
# Only the parts of its library that need no network are used: the signed text, and the check of the
# signature with the certificate. `secret` is {"webhook_id", "certificate"}, and "private_key" to sign with; "keys" makes
# such a pair.


def paypal_keys():
    key = crypto.PKey()
    key.generate_key(crypto.TYPE_RSA, 2048)
    certificate = crypto.X509()
    certificate.set_version(2)
    certificate.set_serial_number(1)
    certificate.get_subject().CN = "messageverificationcerts.paypal.com"
    certificate.get_issuer().CN = "test issuer"
    certificate.add_extensions(
        [
            crypto.X509Extension(b"subjectAltName", False, b"DNS:messageverificationcerts.paypal.com"),
            crypto.X509Extension(b"extendedKeyUsage", False, b"serverAuth,clientAuth"),
        ]
    )
    certificate.gmtime_adj_notBefore(-3600)
    certificate.gmtime_adj_notAfter(86400)
    certificate.set_pubkey(key)
    certificate.sign(key, "sha256")
    return {
        "certificate": crypto.dump_certificate(crypto.FILETYPE_PEM, certificate).decode(),
        "private_key": crypto.dump_privatekey(crypto.FILETYPE_PEM, key).decode(),
    }


def paypal_sign(call):
    transmission, time = str(uuid.uuid4()), datetime.fromtimestamp(call.now, tz=timezone.utc)
    time = time.strftime("%Y-%m-%dT%H:%M:%SZ")
    signed = WebhookEvent._get_expected_sig(
        transmission, time, call.secret["webhook_id"], call.text
    )
    key = crypto.load_privatekey(crypto.FILETYPE_PEM, call.secret["private_key"])
    return {
        "headers": {
            "paypal-auth-algo": "SHA256withRSA",
            "paypal-cert-url": "https://api.paypal.com/v1/notifications/certs/CERT-1",
            "paypal-transmission-id": transmission,
            "paypal-transmission-sig": base64.b64encode(
                crypto.sign(key, signed.encode(), "sha256")
            ).decode(),
            "paypal-transmission-time": time,
        }
    }


def paypal_verify(call):
    return WebhookEvent._verify_signature(
        call.headers["paypal-transmission-id"],
        call.headers["paypal-transmission-time"],
        call.secret["webhook_id"],
        call.text,
        crypto.load_certificate(crypto.FILETYPE_PEM, call.secret["certificate"]),
        call.headers["paypal-transmission-sig"],
        "sha256WithRSAEncryption",
    )


# ---- discord -------------------------------------------------------------------------------------
# Its library only verifies; PyNaCl, which it uses for that, also signs. `secret` is
# {"public_key"}, and "private_key" to sign with, both in hex.


def discord_sign(call):
    timestamp = str(call.now)
    key = SigningKey(bytes.fromhex(call.secret["private_key"]))
    signature = key.sign(timestamp.encode() + call.body).signature.hex()
    return {"headers": {"x-signature-ed25519": signature, "x-signature-timestamp": timestamp}}


def discord_verify(call):
    return verify_key(
        call.body,
        call.headers["x-signature-ed25519"],
        call.headers["x-signature-timestamp"],
        call.secret["public_key"],
    )


# ---- evolution api: a JWT as it makes them -------------------------------------------------------


def evolution_sign(call):
    claims = {"iat": call.now, "exp": call.now + 600, "app": "evolution", "action": "webhook"}
    token = jwt.encode(claims, call.secret, algorithm="HS256")
    return {"headers": {"authorization": f"Bearer {token}"}}


def evolution_verify(call):
    token = call.headers["authorization"].removeprefix("Bearer ")
    jwt.decode(token, call.secret, algorithms=["HS256"])
    return True


# ---- one line at a time --------------------------------------------------------------------------

# Each vendor: the package, how it signs (or None), how it verifies.
VENDORS = {
    "adyen": ("Adyen", adyen_sign, adyen_verify),
    "discord": ("discord-interactions", discord_sign, discord_verify),
    "evolution-api": ("PyJWT", evolution_sign, evolution_verify),
    "hubspot": ("hubspot-api-client", hubspot_sign, hubspot_verify),
    "mercado-pago": ("mercadopago", None, mercado_pago_verify),
    "paddle": ("paddle-python-sdk", None, paddle_verify),
    "paypal": ("paypalrestsdk", paypal_sign, paypal_verify),
    "razorpay": ("razorpay", None, razorpay_verify),
    "slack": ("slack_sdk", slack_sign, slack_verify),
    "square": ("squareup", None, square_verify),
    "standard-webhooks": ("standardwebhooks", *standard(Webhook, "webhook")),
    "stripe": ("stripe", stripe_sign, stripe_verify),
    "svix": ("svix", *standard(SvixWebhook, "svix")),
    "twilio": ("twilio", twilio_sign, twilio_verify),
    "twitch": ("twitchAPI", None, twitch_verify),
    "whatsapp-cloud": ("pywa", None, whatsapp_verify),
}


def listed():
    return [
        {
            "vendor": vendor,
            "library": library,
            "version": importlib.metadata.version(library),
            "signs": sign is not None,
        }
        for vendor, (library, sign, _) in VENDORS.items()
    ]


def answer(fields):
    if fields["op"] == "list":
        return {"libraries": listed()}
    if fields["op"] == "keys":
        return paypal_keys()
    library, sign, verify = VENDORS[fields["vendor"]]
    call = Call(fields)
    if fields["op"] == "verify":
        # A library rejects a webhook by raising.
        try:
            return {"ok": bool(verify(call)), "error": None}
        except Exception as error:
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}
    if sign is None:
        return {"unsupported": f"{library} only verifies"}
    return sign(call)


def main():
    logging.disable(logging.CRITICAL)
    out = sys.stdout
    for line in sys.stdin:
        # Some libraries print why they reject a webhook.
        with contextlib.redirect_stdout(sys.stderr):
            reply = answer(json.loads(line))
        print(json.dumps(reply), file=out, flush=True)


main()
