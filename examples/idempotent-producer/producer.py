"""Sends an event so that it is accepted exactly once, however often it is sent.

    POSTHASTE_KEY=ph_… python3 producer.py TENANT

Each event has an idempotency key that follows from the business object, not from the attempt: after a timeout, a crash or
a restart the producer sends the same key again, and posthaste answers with the event that it already has. Needs nothing
but Python 3.9 or later.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request

API = os.environ.get("POSTHASTE_SERVER", "http://127.0.0.1:8420") + "/v1"
KEY = os.environ["POSTHASTE_KEY"]
TIMEOUT_S = 10
MAX_TRIES = 5
FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30


class Refused(Exception):
    """The server refused the event for good: sending it again cannot help."""

    def __init__(self, problem):
        super().__init__(problem["detail"])
        self.code = problem["code"]


def send(tenant, event_type, payload, idempotency_key):
    """Sends an event, again if need be. Returns the status code and the event.

    202: the event is new. 200: it was accepted before, by this call or an earlier one.
    """
    event = {"type": event_type, "payload": payload, "idempotency_key": idempotency_key}
    request = urllib.request.Request(
        f"{API}/tenants/{tenant}/events",
        data=json.dumps(event).encode(),
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )
    for attempt in range(1, MAX_TRIES + 1):
        delay_s = min(FIRST_DELAY_S * 2 ** (attempt - 1), MAX_DELAY_S)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            if error.code != 429 and error.code < 500:
                raise Refused(json.load(error)) from error
            delay_s = min(float(error.headers.get("Retry-After", delay_s)), MAX_DELAY_S)
            failure = error
        except OSError as error:
            # No response. The event may have been accepted or not: the key makes it safe to send it again.
            failure = error
        if attempt < MAX_TRIES:
            time.sleep(delay_s)
    raise failure


def main():
    tenant = sys.argv[1]
    invoice = {"invoice": "inv_1", "amount": 4200}
    # One key for each invoice and what happened to it.
    key = f"invoice.paid/{invoice['invoice']}"

    for text in ("sent", "sent again"):
        status, event = send(tenant, "invoice.paid", invoice, key)
        print(f"{text}: {status} {event['id']}")

    # The same key with another payload is a bug of the producer. The server does not guess which one is meant.
    try:
        send(tenant, "invoice.paid", {**invoice, "amount": 1}, key)
    except Refused as refused:
        print(f"sent with another amount: {refused.code}")


main()
