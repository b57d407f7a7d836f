"""Uses the client that openapi-python-client generated from docs/openapi.json.

Lists destinations, sends the README's message and reads events; prints what it got, a line each.
"""

import sys

from surehook_client import AuthenticatedClient
from surehook_client.api.destinations import list_destinations
from surehook_client.api.events import list_events
from surehook_client.api.messages import send_message
from surehook_client.models import AcceptedMessage, EventList, SendMessageRequest

base_url, token = sys.argv[1:3]
client = AuthenticatedClient(base_url=base_url, token=token)

destinations = list_destinations.sync(client=client)
print("destinations:", *[destination.name for destination in destinations.data])

message = SendMessageRequest(destination="whatsapp", to="+5511987654321", text="Hello")
accepted = send_message.sync(client=client, body=message, idempotency_key="order-7")
assert isinstance(accepted, AcceptedMessage), accepted
repeated = send_message.sync(client=client, body=message, idempotency_key="order-7")
print("message sent once:", str(accepted.id == repeated.id).lower())

events = list_events.sync(client=client, source="outbox")
assert isinstance(events, EventList), events
print("events:", *[str(event.id == accepted.id).lower() for event in events.data])

refused = list_destinations.sync(client=AuthenticatedClient(base_url=base_url, token="wrong"))
print("problem:", refused.code)
