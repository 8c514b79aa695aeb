"""Strategies and checks of Schemathesis for what a JSON schema cannot express.

- URLs lead to the receiver of the test, because the server allows only the destinations of its configuration.
- `schema_is_not_looser` replaces `positive_data_acceptance`: requests that match the schema must be accepted, except for the
  reasons in `BEYOND_THE_SCHEMA`. Each of them compares two values, depends on the configuration, or needs a cryptographic check.
"""

import os
import re

import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, CheckContext, Response

RECEIVER = os.environ["RECEIVER_URL"]

schemathesis.openapi.format("uri", st.sampled_from([RECEIVER, f"{RECEIVER}/a", f"{RECEIVER}?b=1"]))

# Messages of the validation, as "field message".
BEYOND_THE_SCHEMA = [
    re.compile(pattern)
    for pattern in [
        # The configuration decides.
        r"^(url|request\.url|auth\.token_url) ",
        r"^plan must be null or one of the plans",
        r"^limits\.payload_bytes must be a whole number from 1 to \d+$",
        # The position in a list.
        r"^cursor must be the next_cursor of an earlier page",
        # The current time decides.
        r"^(events\[\d+\]\.)?deliver_at must be at most 365d ahead$",
        # Two values are compared.
        r"backoff\.cap must not be below (step|base)$",
        r"jitter decorrelated jitter draws delays between the first delay and backoff\.cap",
        r"^protection\.disable\.warn_before must not be longer than disable\.after",
        r"^protection\.breaker\.longest_wait must not be below breaker\.first_wait",
        # The grammar of cron, the names of time zones, and the shortest interval of the plan.
        r"^(cron|timezone) (?!cannot be combined)",
        r"^(cron|every|at) (runs every|never runs) ",
        # The current time decides, or the two times are compared.
        r"^(at\[\d+\]|starts_at|ends_at) (is in the past|must be after)",
        # A change is compared with the stored schedule.
        r"^(event|request) is required, unless",
        # Keys and certificates are parsed.
        r"^client_certificate(\.(certificate|private_key))? ",
        r"^(secret|secret_kind|signature_style) ",
        # Bytes are counted, not characters.
        r" must have at most \d+ bytes",
        # Reserved names, and names that differ only in case.
        r"^(request\.)?headers\..* (cannot be set|is listed twice)",
        # A path that leaves the portal.
        r"^path must be a path below the portal",
        # One email address, which the rules of the mail server restrict.
        r"^owner_email must be one email address",
        # A policy that exceeds the limits of the tenant.
        r"(retry_policy|default_retry_policy)\.max_attempts ",
    ]
]
ACCEPTED = {200, 201, 202, 204, 401, 403, 404, 409, 413, 429, 503}


@schemathesis.check
def schema_is_not_looser(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code in ACCEPTED:
        return None
    problem = response.json() if response.status_code == 422 else {}
    # The number of subscribed endpoints decides.
    if problem.get("code") == "too_many_deliveries":
        return None
    errors = problem.get("errors") or []
    texts = [f"{error['field']} {error['message']}" for error in errors]
    rest = [text for text in texts if not any(known.search(text) for known in BEYOND_THE_SCHEMA)]
    if not texts or rest:
        raise AssertionError(f"a request that matches the schema was refused with {response.status_code}: {rest or response.text}")
    return None
