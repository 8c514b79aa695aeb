"""Receives webhooks with FastAPI: verifies the signature, and processes each webhook once, in a transaction of SQLite.

    pip install --requirement requirements.txt
    WEBHOOK_SECRET=whsec_… DATABASE=receiver.db PORT=8421 python3 receiver.py

WEBHOOK_SECRET may hold several secrets, separated by spaces, while the secret is rotated. CRASH=before-commit or
CRASH=after-commit ends the process there, to see that nothing is lost or processed twice.
"""

import contextlib
import os
import socket
import sqlite3

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

MAX_BODY_BYTES = 1024 * 1024
# Time that a transaction waits for another one that writes.
MAX_WAIT_S = 10
# For as long as posthaste can send a webhook again.
REMEMBERED = "-30 days"
CRASH = os.environ.get("CRASH")

webhooks = [Webhook(secret) for secret in os.environ["WEBHOOK_SECRET"].split()]
app = FastAPI()


def connect():
    # With isolation_level=None the transactions below begin and end where they say so.
    return contextlib.closing(sqlite3.connect(os.environ.get("DATABASE", "receiver.db"), MAX_WAIT_S, isolation_level=None))


def prepare():
    with connect() as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("CREATE TABLE IF NOT EXISTS payments (webhook TEXT NOT NULL, amount INTEGER NOT NULL)")
        database.execute(
            "CREATE TABLE IF NOT EXISTS webhook_inbox (id TEXT PRIMARY KEY, processed_at TEXT NOT NULL DEFAULT (datetime('now')))"
        )
        database.execute("CREATE INDEX IF NOT EXISTS webhook_inbox_processed_at ON webhook_inbox (processed_at)")
        database.execute("DELETE FROM webhook_inbox WHERE processed_at < datetime('now', ?)", [REMEMBERED])


def verify(body, headers):
    """Returns the payload if one of the secrets signed it.

    `body` is what was sent, byte for byte: parsed and serialised again it would differ from what was signed.
    """
    for webhook in webhooks:
        try:
            # Also rejects a timestamp that is more than five minutes off, so that an old request cannot be sent again.
            return webhook.verify(body, headers)
        except WebhookVerificationError as error:
            failure = error
    raise failure


def process_once(webhook_id, payload):
    """Processes a webhook once: the payment and the mark in the inbox are committed together. Returns what happened."""
    with connect() as database:
        # SQLite has one writer at a time. The same webhook cannot be in progress twice from here on.
        database.execute("BEGIN IMMEDIATE")
        mark = database.execute("INSERT INTO webhook_inbox (id) VALUES (?) ON CONFLICT (id) DO NOTHING", [webhook_id])
        if mark.rowcount == 0:
            database.execute("ROLLBACK")
            return "duplicate"
        database.execute("INSERT INTO payments (webhook, amount) VALUES (?, ?)", [webhook_id, payload["amount"]])
        if CRASH == "before-commit":
            os._exit(1)
        database.execute("COMMIT")
        if CRASH == "after-commit":
            os._exit(1)
        # An exception above closes the connection, which rolls back.
        return "received"


async def read_body(request):
    """Returns the body, or None if it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return None
    return bytes(body)


@app.post("/hooks")
async def receive(request: Request):
    body = await read_body(request)
    if body is None:
        return Response(status_code=413, headers={"connection": "close"})
    try:
        payload = verify(body, request.headers)
    except WebhookVerificationError as error:
        print(f"rejected: {error}", flush=True)
        return Response(status_code=401)
    webhook_id = request.headers["webhook-id"]
    try:
        outcome = await run_in_threadpool(process_once, webhook_id, payload)
    except sqlite3.Error as error:
        # 503: posthaste tries again later.
        print(f"the database failed: {error}", flush=True)
        return Response(status_code=503, headers={"retry-after": "1"})
    details = f" {request.headers.get('posthaste-event-type')} {payload['amount']}" if outcome == "received" else ""
    print(f"{outcome} {webhook_id}{details}", flush=True)
    return Response(status_code=200)


@app.get("/payments")
def payments():
    """Shows what was processed: the number of payments and their sum."""
    with connect() as database:
        return database.execute("SELECT count(*), coalesce(sum(amount), 0) FROM payments").fetchone()


def main():
    prepare()
    listener = socket.create_server(("127.0.0.1", int(os.environ.get("PORT", 8421))))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


main()
