"""A mail server for tests: aiosmtpd with STARTTLS and a login, which prints each mail as a line of JSON.

Arguments: port, certificate, key, user, password. While the file `refuse` exists, mails are refused for now.
"""

import asyncio
import email
import email.policy
import json
import os
import ssl
import sys

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

port, certificate, key, user, password = sys.argv[1:]


class Handler:
    async def handle_DATA(self, server, session, envelope):
        if os.path.exists("refuse"):
            return "451 try again later"
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        print(
            json.dumps({
                "from": envelope.mail_from,
                "to": envelope.rcpt_tos,
                "message_id": mail["Message-ID"],
                "subject": mail["Subject"],
                "text": mail.get_content(),
                "user": session.auth_data.login.decode(),
                "tls": session.ssl is not None,
            }),
            flush=True,
        )
        return "250 accepted"


def authenticate(server, session, envelope, mechanism, data):
    is_right = isinstance(data, LoginPassword) and data == LoginPassword(user.encode(), password.encode())
    return AuthResult(success=is_right, handled=False, auth_data=data)


tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
tls.load_cert_chain(certificate, key)
controller = Controller(
    Handler(), hostname="127.0.0.1", port=int(port), tls_context=tls, require_starttls=True,
    authenticator=authenticate, auth_required=True, auth_require_tls=True,
)
controller.start()
print("ready", flush=True)
asyncio.new_event_loop().run_forever()
