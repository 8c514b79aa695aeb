"""Receives webhooks: verifies the signature, then processes each webhook-id once.

    pip install --requirement requirements.txt
    WEBHOOK_SECRET=whsec_… PORT=8421 python3 receiver.py
"""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

MAX_BODY_BYTES = 1024 * 1024
MAX_REMEMBERED_IDS = 100_000

webhook = Webhook(os.environ["WEBHOOK_SECRET"])
# In production: a table with a unique column, written in the same transaction as the effect of the event. A dict keeps the
# order of insertion, so the oldest id is dropped first.
processed_ids = {}
lock = threading.Lock()


def receive(headers, body):
    """Handles one webhook and returns the status code."""
    try:
        # Takes the body as it was sent: parsed and serialised again it would differ from what was signed. Also rejects a
        # timestamp that is more than five minutes off, so that an old request cannot be sent again.
        payload = webhook.verify(body, headers)
    except WebhookVerificationError as error:
        print(f"rejected: {error}", flush=True)
        return 401
    webhook_id = headers["webhook-id"]
    with lock:
        # Deliveries arrive at least once: after a lost response, or by a replay, the same webhook-id comes again.
        if webhook_id in processed_ids:
            print(f"duplicate {webhook_id}", flush=True)
            return 204
        print(f"received {webhook_id} {headers['posthaste-event-type']} {json.dumps(payload)}", flush=True)
        processed_ids[webhook_id] = True
        if len(processed_ids) > MAX_REMEMBERED_IDS:
            processed_ids.pop(next(iter(processed_ids)))
    return 204


class Handler(BaseHTTPRequestHandler):
    # Reads are given up after this many seconds.
    timeout = 30

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if length > MAX_BODY_BYTES:
            status = 413
            self.close_connection = True
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = receive(headers, self.rfile.read(length))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_):
        """Prints nothing: receive() does."""


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", 8421))), Handler)
print(f"listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
