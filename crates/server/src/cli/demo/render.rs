//! The text and JSON that the demo prints.
//!
//! Everything here is pure: [`opening`] before the start, [`transition`] for each message and [`status`] for the table
//! that is drawn again and again.

use posthaste_charts::terminal::{BAD, GOOD, QUIET, STRONG, styled, wrapped};
use posthaste_core::time::Span;
use serde_json::{Value, json};

use crate::cli::table::{Cell, WAITING, table};
use crate::demo::scenario::{DemoScenario, TENANT};
use crate::demo::snapshot::{Count, DemoEndpoint, DemoSnapshot, RECENT};
use crate::demo::transition::{Transition, TransitionKind};

/// Width of the time and the endpoint's name before a message.
const MARGIN: usize = 15;
/// Width of the status table without the bars.
const WIDTH_BESIDE_BARS: usize = 72;
/// Minimum number of bars.
const MIN_BARS: usize = 8;
const STEPS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Addresses and keys of the running demo.
pub struct DemoAddresses {
    /// URL of the server.
    pub server: String,
    /// The requested address, if it was in use.
    pub address_in_use: Option<String>,
    /// The admin key.
    pub key: String,
    /// Name, URL and description of each receiver.
    pub receivers: Vec<(&'static str, String, String)>,
}

/// The text at the start.
pub fn opening(addresses: &DemoAddresses, scenario: &DemoScenario) -> String {
    let DemoAddresses {
        server,
        address_in_use,
        key,
        receivers,
    } = addresses;
    let mut out = format!(
        "{}: a server, four receivers and {} events per second. Press Ctrl-C to stop.\n\n",
        styled(STRONG, "posthaste demo"),
        scenario.events_per_second * scenario.speed
    );
    if let Some(address) = address_in_use {
        let note = format!("{address} is in use; using a free port instead.");
        out.push_str(&format!("{}\n\n", styled(QUIET, &note)));
    }
    out.push_str(&format!("  server   {}\n", styled(STRONG, server)));
    out.push_str(&format!(
        "  page     {}   sign in with the key\n",
        styled(STRONG, &format!("{server}/dashboard"))
    ));
    out.push_str(&format!("  key      {key}\n  tenant   {TENANT}\n\n"));
    for (name, _, description) in receivers {
        out.push_str(&format!(
            "  {}  {description}\n",
            styled(STRONG, &format!("{name:<7}"))
        ));
    }
    let commands = [
        format!("export POSTHASTE_SERVER={server} POSTHASTE_TENANT={TENANT}"),
        format!("export POSTHASTE_KEY={key}"),
        "posthaste deliveries list --status failed".to_owned(),
        "posthaste endpoints list".to_owned(),
        format!("curl -H \"Authorization: Bearer $POSTHASTE_KEY\" {server}/v1/stats"),
        format!("curl {server}/metrics"),
    ];
    out.push_str("\nTry in another terminal:\n\n");
    for command in commands {
        out.push_str(&format!("  {command}\n"));
    }
    out.push_str(&format!("\nAPI reference: {server}/docs\n\n"));
    out
}

/// The same as JSON.
pub fn opening_json(addresses: &DemoAddresses) -> Value {
    let receivers = addresses
        .receivers
        .iter()
        .map(|(name, url, description)| json!({"name": name, "url": url, "promise": description}));
    json!({"started": {
        "server": addresses.server,
        "page": format!("{}/dashboard", addresses.server),
        "moved": addresses.address_in_use.is_some(),
        "key": addresses.key,
        "tenant": TENANT,
        "receivers": receivers.collect::<Vec<_>>(),
    }})
}

/// A message with its time and the command to look closer.
pub fn transition(transition: &Transition, at: Span, width: usize) -> String {
    let style = match transition.change {
        TransitionKind::Retried(_)
        | TransitionKind::Recovered { .. }
        | TransitionKind::Draining { .. }
        | TransitionKind::Drained { .. } => GOOD,
        TransitionKind::Throttled(_) | TransitionKind::ProbeFailed { .. } => WAITING,
        TransitionKind::Tripped { .. } | TransitionKind::DeadLettered { .. } => BAD,
    };
    let margin = format!("\n{}", " ".repeat(MARGIN));
    let mut text = wrapped(&transition.message(), width - MARGIN).replace('\n', &margin);
    if let Some(delivery) = transition.delivery() {
        // On a separate line, so that it can be copied.
        let command = format!("try: posthaste deliveries show {delivery}");
        text.push_str(&format!("{margin}{}", styled(QUIET, &command)));
    }
    let name = styled(style, &format!("{:<7}", transition.receiver.name()));
    format!(
        "{} {name} {text}\n",
        styled(QUIET, &format!("{:>6}", minutes_and_seconds(at)))
    )
}

/// The lines below the table, so that address and key stay on the screen.
pub fn sign_in(addresses: &DemoAddresses) -> String {
    format!(
        "\n{}\nkey {}   {}\n",
        styled(STRONG, &format!("{}/dashboard", addresses.server)),
        addresses.key,
        styled(QUIET, "Ctrl-C stops")
    )
}

/// The status table, for a terminal of this width.
pub fn status(snapshot: &DemoSnapshot, width: usize) -> String {
    let bars = width
        .saturating_sub(WIDTH_BESIDE_BARS)
        .clamp(MIN_BARS, RECENT);
    let shown = |endpoint: &DemoEndpoint| {
        let skipped = endpoint.recent.len().saturating_sub(bars);
        endpoint.recent[skipped..].to_vec()
    };
    let max = snapshot.endpoints.iter().flat_map(shown).max();
    let max = max.unwrap_or(0).max(1);
    let rows: Vec<Vec<Cell>> = snapshot
        .endpoints
        .iter()
        .map(|endpoint| {
            row(
                endpoint,
                &format!("{:>bars$}", sparkline(&shown(endpoint), max)),
            )
        })
        .collect();
    let heads = [
        "",
        "DELIVERED",
        "WAITING",
        "RETRYING",
        "HELD",
        "DEAD",
        "BREAKER",
        "ARRIVALS",
    ];
    let events = format!("{} events accepted", snapshot.accepted);
    let head = styled(
        QUIET,
        &format!("{:>6} {events}", minutes_and_seconds(snapshot.at)),
    );
    format!("{head}\n{}", table(&heads, &rows))
}

fn row(endpoint: &DemoEndpoint, bars: &str) -> Vec<Cell> {
    let state = &endpoint.state;
    vec![
        Cell::new(state.kind.name()),
        Cell::number(&state.counts.accepted.to_string()),
        Cell::number(&endpoint.waiting().to_string()),
        Cell::number(&format_count(state.retrying)),
        Cell::number(&endpoint.held().to_string()),
        Cell::number(&format_count(state.dead)),
        Cell::new(state.breaker.name()),
        Cell::new(&format!("{bars} {}/s", endpoint.rate())),
    ]
}

/// Renders numbers as bars of different height; `max` is the full height.
fn sparkline(numbers: &[u64], max: u64) -> String {
    let full = STEPS.len() as u64 - 1;
    let bar = |number: &u64| STEPS[(number * full).div_ceil(max).min(full) as usize];
    numbers.iter().map(bar).collect()
}

fn format_count(count: Count) -> String {
    let sign = if count.or_more { "+" } else { "" };
    format!("{}{sign}", count.number)
}

/// The status as JSON.
pub fn status_json(snapshot: &DemoSnapshot) -> Value {
    json!({
        "status": {
            "at_ms": snapshot.at.as_millis(),
            "events_accepted": snapshot.accepted,
            "endpoints": endpoints_json(snapshot),
        }
    })
}

fn endpoints_json(snapshot: &DemoSnapshot) -> Vec<Value> {
    let endpoint_json = |endpoint: &DemoEndpoint| {
        json!({
            "name": endpoint.state.kind.name(),
            "delivered": endpoint.state.counts.accepted,
            "retries": endpoint.state.counts.retries,
            "pending": endpoint.state.pending,
            "retrying": endpoint.state.retrying.number,
            "held": endpoint.held(),
            "dead": endpoint.state.dead.number,
            "breaker": endpoint.state.breaker.name(),
            "arrivals_per_second": endpoint.rate(),
        })
    };
    snapshot.endpoints.iter().map(endpoint_json).collect()
}

/// The summary at the end.
pub fn closing(snapshot: &DemoSnapshot, width: usize) -> String {
    let sum = |of: fn(&DemoEndpoint) -> u64| snapshot.endpoints.iter().map(of).sum::<u64>();
    let accepted = sum(|endpoint| endpoint.state.counts.accepted);
    let retries = sum(|endpoint| endpoint.state.counts.retries);
    let dead = sum(|endpoint| endpoint.state.dead.number);
    let pending = sum(|endpoint| endpoint.state.pending);
    let invalid_signatures = sum(|endpoint| endpoint.state.counts.invalid_signatures);
    let signatures = match invalid_signatures {
        0 => "all signatures valid".to_owned(),
        count => format!("{count} invalid signatures"),
    };
    let events = snapshot.accepted;
    let at = minutes_and_seconds(snapshot.at);
    let summary = format!(
        "{events} events in {at}: {accepted} deliveries accepted, {retries} retries received, {dead} dead letters, {pending} pending; {signatures}."
    );
    let next = "Next: posthaste serve --allow-http --allow-network 127.0.0.0/8";
    format!("\n{}\n{}\n", wrapped(&summary, width), styled(QUIET, next))
}

/// The same as JSON.
pub fn closing_json(snapshot: &DemoSnapshot) -> Value {
    json!({"summary": {
        "at_ms": snapshot.at.as_millis(),
        "events_accepted": snapshot.accepted,
        "endpoints": endpoints_json(snapshot),
    }})
}

/// Formats a time since the start as minutes and seconds.
fn minutes_and_seconds(at: Span) -> String {
    let seconds = at.as_millis() / 1_000;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::scenario::ReceiverKind;
    use crate::demo::snapshot::{Breaker, EndpointState, idle};
    use crate::demo::transition::transitions;
    use anstream::adapter::strip_str;
    use posthaste_core::lane::TripReason;
    use posthaste_core::time::Timestamp;

    fn two_snapshots() -> (DemoSnapshot, DemoSnapshot) {
        let wall = Timestamp(0);
        let quiet = ReceiverKind::ALL.map(idle).to_vec();
        let before = DemoSnapshot::first(Span::from_secs(61), wall, 0, quiet.clone());
        let mut states = quiet;
        states[0].counts.arrived = 20;
        states[0].counts.accepted = 19;
        states[1] = EndpointState {
            breaker: Breaker::Tripped {
                until: Timestamp(2_000),
                reason: TripReason::ConsecutiveFailures,
            },
            pending: 37,
            consecutive_failures: 20,
            ..states[1].clone()
        };
        states[1].counts.arrived = 5;
        states[2].dead = Count {
            number: 250,
            or_more: true,
        };
        let now = before.next(Span::from_secs(62), wall, 20, states);
        (before, now)
    }

    #[test]
    fn the_table_shows_every_endpoint() {
        let (_, now) = two_snapshots();
        let table = strip_str(&status(&now, 80)).to_string();
        let expected = "  1:02 20 events accepted
         DELIVERED  WAITING  RETRYING  HELD  DEAD  BREAKER  ARRIVALS
healthy         19        0         0     0     0  passing         █ 20/s
flaky            0        0         0    37     0  tripped         ▂ 5/s
limited          0        0         0     0  250+  passing           0/s
down             0        0         0     0     0  passing           0/s
";
        assert_eq!(table, expected);
        assert!(table.lines().all(|line| line.chars().count() <= 80));
        let wide = strip_str(&status(&now, 120)).to_string();
        let widest = wide.lines().map(|line| line.chars().count()).max();
        assert!(widest > Some(100) && widest <= Some(120), "{wide}");
    }

    #[test]
    fn a_message_follows_its_time_and_endpoint() {
        let (before, now) = two_snapshots();
        let found = transitions(&before, &now);
        let text = transition(&found[0], now.at, 60);
        assert_eq!(
            strip_str(&text).to_string(),
            "  1:02 flaky   breaker tripped after 20 consecutive
               failures; 37 deliveries are held, none are
               lost\n"
        );
    }

    #[test]
    fn the_opening_lists_addresses_and_commands() {
        let scenario = DemoScenario {
            speed: 1.0,
            events_per_second: 20.0,
        };
        let addresses = DemoAddresses {
            server: "http://127.0.0.1:9".to_owned(),
            address_in_use: Some("127.0.0.1:8420".to_owned()),
            key: "ph_k".to_owned(),
            receivers: vec![("flaky", "http://127.0.0.1:1".to_owned(), "fails".to_owned())],
        };
        let text = strip_str(&opening(&addresses, &scenario)).to_string();
        for part in [
            "127.0.0.1:8420 is in use",
            "export POSTHASTE_KEY=ph_k",
            "POSTHASTE_SERVER=http://127.0.0.1:9 POSTHASTE_TENANT=demo",
            "http://127.0.0.1:9/metrics",
            "http://127.0.0.1:9/docs",
            "flaky    fails",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
