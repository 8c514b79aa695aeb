"""Verifies requests as a receiver written in Python would.

Reads a list of {"with", "secret", "headers", "body"} from standard input, the body in base64, and
writes a list of true and false. Only a library's own refusal counts as false: anything else it
raises ends the program, and the test with it.
"""

import base64
import hashlib
import hmac
import json
import sys

import stripe
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def standardwebhooks(secret, headers, body):
    try:
        Webhook(secret).verify(body, headers, json_parse=False)
    except WebhookVerificationError:
        return False
    return True


def signed_content(headers, body):
    return f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body


def signatures(headers, version):
    pairs = (pair.split(",", 1) for pair in headers["webhook-signature"].split(" "))
    return [base64.b64decode(text) for name, text in pairs if name == version]


def hmac_sha256(secret, headers, body):
    """The specification by hand, for bodies that are no text: the libraries take text only."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = hmac.new(key, signed_content(headers, body), hashlib.sha256).digest()
    return any(hmac.compare_digest(expected, given) for given in signatures(headers, "v1"))


def ed25519(public_key, headers, body):
    """The specification by hand: no official library speaks v1a."""
    raw = base64.b64decode(public_key.removeprefix("whpk_"))
    key = Ed25519PublicKey.from_public_bytes(raw)
    for given in signatures(headers, "v1a"):
        try:
            key.verify(given, signed_content(headers, body))
            return True
        except InvalidSignature:
            pass
    return False


def stripe_like(secret, headers, body):
    try:
        stripe.WebhookSignature.verify_header(
            body.decode(), headers["stripe-signature"], secret, tolerance=300
        )
    except stripe.SignatureVerificationError:
        return False
    return True


def github_like(secret, headers, body):
    """As GitHub's documentation has it."""
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, headers["x-hub-signature-256"])


VERIFIERS = {
    "standardwebhooks": standardwebhooks,
    "hmac": hmac_sha256,
    "ed25519": ed25519,
    "stripe": stripe_like,
    "github": github_like,
}

print(
    json.dumps(
        [
            VERIFIERS[check["with"]](
                check["secret"], check["headers"], base64.b64decode(check["body"])
            )
            for check in json.load(sys.stdin)
        ]
    )
)
