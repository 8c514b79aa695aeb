"""Creates one of each resource, and writes the Schemathesis configuration that names them.

Usage: prepare.py URL KEY RECEIVER_URL OUTPUT_FILE
"""

import json
import sys
import urllib.request

URL, KEY, RECEIVER, OUTPUT = sys.argv[1:]


def call(method: str, path: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{URL}{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=20) as response:
        text = response.read()
    return json.loads(text) if text else {}


def create(path: str, body: dict) -> dict:
    return call("POST", path, body)


def tenant(name: str) -> str:
    create("/v1/tenants", {"id": name})
    return f"/v1/tenants/{name}"


def endpoint(base: str, event_types: list[str]) -> str:
    return create(f"{base}/endpoints", {"url": RECEIVER, "event_types": event_types})["id"]


base = tenant("fuzzed")
kept = endpoint(base, ["kept.*"])
# A second resource of each list, so that the first page has a cursor.
endpoint(base, ["other.*"])
for _ in range(2):
    event = create(f"{base}/events", {"type": "kept.sent", "payload": {"amount": 1}})
    key = create(f"{base}/keys", {"name": "ci"})["id"]
    link = create(f"{base}/portal-links", {})["id"]
    replay = create(f"{base}/replays", {"endpoint": kept})["id"]
# Deliveries that can be cancelled and retried.
later = create(f"{base}/events", {"type": "kept.later", "payload": 1, "delay": "1d"})

# Each operation that deletes something has a resource of its own.
deleted_tenant = tenant("deleted")
deleted_endpoint = endpoint(base, ["deleted.*"])
deleted_key = create(f"{base}/keys", {"name": "deleted"})["id"]
deleted_link = create(f"{base}/portal-links", {})["id"]

IDS = {
    "path.tenant": "fuzzed",
    "path.endpoint": kept,
    "path.event": event["id"],
    "path.delivery": event["deliveries"][0]["id"],
    "path.key": key,
    "path.link": link,
    "path.replay": replay,
}
OWN = {
    "delete_tenant": {"path.tenant": "deleted"},
    "delete_endpoint": {"path.endpoint": deleted_endpoint},
    "revoke_key": {"path.key": deleted_key},
    "end_portal_link": {"path.link": deleted_link},
    "cancel_delivery": {"path.delivery": later["deliveries"][0]["id"]},
    "find": {"query.id": event["id"]},
}
LISTS = {
    "list_tenants": "/v1/tenants",
    "list_keys": f"{base}/keys",
    "list_portal_links": f"{base}/portal-links",
    "list_endpoints": f"{base}/endpoints",
    "list_events": f"{base}/events",
    "list_deliveries": f"{base}/deliveries",
    "list_replays": f"{base}/replays",
    "list_audit": "/v1/audit",
    "list_tenant_audit": f"{base}/audit",
}
for operation, path in LISTS.items():
    cursor = call("GET", f"{path}?limit=1")["next_cursor"]
    assert cursor, f"{path} has one page only"


def table(values: dict) -> str:
    return "{ " + ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items()) + " }"


with open(OUTPUT, "w", encoding="utf-8") as file:
    print(f"parameters = {table(IDS)}", file=file)
    for operation, ids in OWN.items():
        print("\n[[operations]]", file=file)
        print(f"include-operation-id = {json.dumps(operation)}", file=file)
        print(f"parameters = {table(ids)}", file=file)
