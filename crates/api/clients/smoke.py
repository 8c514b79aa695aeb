"""Uses the generated Python client: creates a tenant, an endpoint and an event, and reads the delivery."""

import os
import time

from posthaste_client import AuthenticatedClient
from posthaste_client.api.deliveries import get_delivery
from posthaste_client.api.endpoints import create_endpoint
from posthaste_client.api.events import create_event
from posthaste_client.api.tenants import create_tenant
from posthaste_client.models import (
    AcceptedEvent,
    CreatedEndpoint,
    Delivery,
    DeliveryStatus,
    ErrorCode,
    ExponentialBackoff,
    NewEndpoint,
    NewEvent,
    NewTenant,
    PlainJitter,
    PlainJitterKind,
    Problem,
    RetryPolicy,
    Tenant,
)

client = AuthenticatedClient(base_url=os.environ["SERVER_URL"], token=os.environ["POSTHASTE_KEY"])
NAME = "python"

tenant = create_tenant.sync(client=client, body=NewTenant(id=NAME, name="Python"))
assert isinstance(tenant, Tenant) and tenant.id == NAME, tenant

policy = RetryPolicy(
    backoff=ExponentialBackoff(kind="exponential", base="1s", factor=2, cap="1h"),
    jitter=PlainJitter(kind=PlainJitterKind.FULL),
)
wanted = NewEndpoint(url=os.environ["RECEIVER_URL"], event_types=["invoice.*"], retry_policy=policy)
endpoint = create_endpoint.sync(tenant=NAME, client=client, body=wanted)
assert isinstance(endpoint, CreatedEndpoint) and endpoint.secret.startswith("whsec_"), endpoint

event = create_event.sync(tenant=NAME, client=client, body=NewEvent(type_="invoice.paid", payload={"amount": 42}))
assert isinstance(event, AcceptedEvent), event
delivery_id = event.deliveries[0].id

end = time.monotonic() + 10
while True:
    delivery = get_delivery.sync(tenant=NAME, delivery=delivery_id, client=client)
    assert isinstance(delivery, Delivery), delivery
    if delivery.status == DeliveryStatus.SUCCEEDED or time.monotonic() > end:
        break
assert delivery.status == DeliveryStatus.SUCCEEDED, delivery.status
assert delivery.attempts[0].status_code == 200, delivery.attempts

refused = create_event.sync(tenant=NAME, client=client, body=NewEvent(type_="not a type", payload=None))
assert isinstance(refused, Problem) and refused.code == ErrorCode.INVALID, refused
print("Python client: delivered", delivery_id)
