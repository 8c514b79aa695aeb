#!/usr/bin/env bash
# Sends one event and follows its delivery, with curl and jq:
#
#     POSTHASTE_KEY=ph_… examples/quickstart.sh [RECEIVER_URL]
#
# Creates a tenant (one of your customers) and an endpoint (a URL of that customer), sends an event, and waits until its
# delivery has ended. Each run creates a new tenant. Exits with 0 if the receiver accepted the event.
set -euo pipefail

receiver_url=${1:-http://127.0.0.1:8421/hooks}
api=${POSTHASTE_SERVER:-http://127.0.0.1:8420}/v1
key=${POSTHASTE_KEY:?set it to the admin key, which the first start of the server prints}
readonly WAIT_LIMIT_S=30

# Calls the API: call PATH [CURL ARGUMENTS…]. A refused request ends the script and prints the reason.
call() {
    local path=$1 response
    shift
    if ! response=$(curl --silent --show-error --fail-with-body --max-time 10 "$api$path" \
        --header "Authorization: Bearer $key" --header 'Content-Type: application/json' "$@"); then
        printf '%s\n' "$response" >&2
        return 1
    fi
    printf '%s\n' "$response"
}

tenant=$(call /tenants --data '{"name": "Quickstart"}' | jq --raw-output .id)
echo "tenant    $tenant"

# The endpoint receives invoice.paid, invoice.voided and so on. Its signing secret is in the response.
endpoint=$(jq --null-input --arg url "$receiver_url" '{url: $url, event_types: ["invoice.*"]}' |
    call "/tenants/$tenant/endpoints" --data @-)
jq --raw-output '"endpoint  \(.id)\nsecret    \(.secret)"' <<<"$endpoint"

# 202 means that the event is on disk, with one delivery for each endpoint that subscribed to its type.
event=$(call "/tenants/$tenant/events" --data '{"type": "invoice.paid", "payload": {"invoice": "inv_1", "amount": 4200}}')
delivery=$(jq --raw-output '.deliveries[0].id' <<<"$event")
jq --raw-output '"event     \(.id)\ndelivery  \(.deliveries[0].id)"' <<<"$event"

until_s=$((SECONDS + WAIT_LIMIT_S))
while details=$(call "/tenants/$tenant/deliveries/$delivery") &&
    jq --exit-status '.status | IN("succeeded", "failed", "cancelled") | not' <<<"$details" >/dev/null; do
    if [ "$SECONDS" -ge "$until_s" ]; then
        echo "not delivered within $WAIT_LIMIT_S s; the retries continue:" >&2
        break
    fi
    sleep 0.2
done

# Each attempt so far, with the response of the receiver or the kind of failure.
jq --raw-output '.attempts[] | "attempt   \(.number): \(.status_code // .error_kind) after \(.latency_ms) ms"' <<<"$details"
jq --raw-output '"status    \(.status)"' <<<"$details"
jq --exit-status '.status == "succeeded"' <<<"$details" >/dev/null
