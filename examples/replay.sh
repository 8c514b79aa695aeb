#!/usr/bin/env bash
# Replays dead letters after the receiver was fixed:
#
#     POSTHASTE_KEY=ph_… examples/replay.sh
#
# 1. A receiver with a bug answers 400 to everything. 400 is final, so each delivery fails at once: a dead letter.
# 2. The bug is fixed: the receiver answers 200 on the same port.
# 3. A replay sends the dead letters again. Each keeps its webhook-id, so a receiver that had processed one ignores it.
#
# The receivers are `posthaste listen`; POSTHASTE names the program if it is not on the path. Needs jq. Each run creates a
# new tenant.
set -euo pipefail

posthaste=${POSTHASTE:-posthaste}
: "${POSTHASTE_KEY:?set it to the admin key, which the first start of the server prints}"
readonly EVENTS=5 WAIT_LIMIT_S=30
work=$(mktemp -d "${TMPDIR:-/tmp}/posthaste-replay.XXXXXX")
receiver_pid=
trap 'stop_receiver; rm -rf "$work"' EXIT

# Starts a receiver on a port (0: any free one) and sets `receiver_url`: start_receiver PORT [OPTIONS OF LISTEN…]
start_receiver() {
    local port=$1
    shift
    # Emptied before the receiver starts: the loop below waits for its first line.
    : >"$work/receiver.log"
    "$posthaste" listen --listen "127.0.0.1:$port" "$@" >"$work/receiver.log" 2>&1 &
    receiver_pid=$!
    local until_s=$((SECONDS + WAIT_LIMIT_S))
    until receiver_url=$(grep --only-matching --max-count=1 'http://[0-9.:]*' "$work/receiver.log"); do
        if [ "$SECONDS" -ge "$until_s" ] || ! kill -0 "$receiver_pid" 2>/dev/null; then
            cat "$work/receiver.log" >&2
            exit 1
        fi
        sleep 0.1
    done
}

stop_receiver() {
    [ -n "$receiver_pid" ] || return 0
    kill "$receiver_pid" 2>/dev/null || true
    wait "$receiver_pid" 2>/dev/null || true
    receiver_pid=
}

# The number of deliveries with a status: count STATUS
count() {
    "$posthaste" deliveries list --status "$1" --json | jq '.data | length'
}

# Waits until all deliveries have a status: await STATUS
await() {
    local until_s=$((SECONDS + WAIT_LIMIT_S))
    until [ "$(count "$1")" -eq "$EVENTS" ]; do
        if [ "$SECONDS" -ge "$until_s" ]; then
            echo "not all deliveries are '$1' after $WAIT_LIMIT_S s" >&2
            exit 1
        fi
        sleep 0.2
    done
}

start_receiver 0 --status 400
POSTHASTE_TENANT=$("$posthaste" tenants create --name Replay --json | jq --raw-output .id)
export POSTHASTE_TENANT
endpoint=$("$posthaste" endpoints create "$receiver_url/hooks" --json | jq --raw-output .id)

for number in $(seq "$EVENTS"); do
    "$posthaste" send invoice.paid "{\"invoice\": \"inv_$number\"}" >/dev/null
done
await failed
echo "dead letters: $(count failed)"
"$posthaste" deliveries dead

stop_receiver
start_receiver "${receiver_url##*:}"
echo "receiver fixed"

"$posthaste" replays create --status failed --endpoint "$endpoint" --watch
await succeeded
echo "dead letters: $(count failed), delivered: $(count succeeded)"
