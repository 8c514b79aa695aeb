//! The text and JSON that the demo prints.

use posthaste_charts::terminal::{BAD, GOOD, QUIET, STRONG, styled, wrapped};
use posthaste_core::time::Span;
use serde_json::{Value, json};

use super::moment::{Moment, What};
use super::script::{Script, TENANT};
use super::snapshot::{Count, Endpoint, Snapshot};
use crate::cli::table::{Cell, WAITING, table};

/// Width of the time and the endpoint's name before a message.
const MARGIN: usize = 15;
const STEPS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Addresses and keys of the running demo.
pub struct Place {
    /// URL of the server.
    pub server: String,
    /// The requested address, if it was in use.
    pub taken: Option<String>,
    /// The admin key.
    pub key: String,
    /// Name, URL and description of each receiver.
    pub receivers: Vec<(&'static str, String, String)>,
}

/// The text at the start.
pub fn opening(place: &Place, script: &Script) -> String {
    let Place {
        server,
        taken,
        key,
        receivers,
    } = place;
    let mut out = format!(
        "{}: a server, four receivers, and {} events a second. Ctrl-C ends it all.\n\n",
        styled(STRONG, "posthaste demo"),
        script.per_second * script.tempo
    );
    if let Some(taken) = taken {
        let note = format!("{taken} is taken; a free port was picked.");
        out.push_str(&format!("{}\n\n", styled(QUIET, &note)));
    }
    out.push_str(&format!("  server   {}\n", styled(STRONG, server)));
    out.push_str(&format!(
        "  page     {}   sign in with the key\n",
        styled(STRONG, &format!("{server}/dashboard"))
    ));
    out.push_str(&format!("  key      {key}\n  tenant   {TENANT}\n\n"));
    for (name, _, promise) in receivers {
        out.push_str(&format!(
            "  {}  {promise}\n",
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
    out.push_str("\nLook around from another terminal:\n\n");
    for command in commands {
        out.push_str(&format!("  {command}\n"));
    }
    out.push_str(&format!("\nThe API is described at {server}/docs\n\n"));
    out
}

/// The same as JSON.
pub fn opening_json(place: &Place) -> Value {
    let receivers = place
        .receivers
        .iter()
        .map(|(name, url, promise)| json!({"name": name, "url": url, "promise": promise}));
    json!({"started": {
        "server": place.server,
        "page": format!("{}/dashboard", place.server),
        "moved": place.taken.is_some(),
        "key": place.key,
        "tenant": TENANT,
        "receivers": receivers.collect::<Vec<_>>(),
    }})
}

/// A message with its time and the command to look closer.
pub fn moment(moment: &Moment, at: Span, width: usize) -> String {
    let style = match moment.what {
        What::Retried(_)
        | What::Recovered { .. }
        | What::Draining { .. }
        | What::Drained { .. } => GOOD,
        What::Throttled(_) | What::ProbeFailed { .. } => WAITING,
        What::Tripped { .. } | What::Died { .. } => BAD,
    };
    let margin = format!("\n{}", " ".repeat(MARGIN));
    let mut text = wrapped(&moment.words(), width - MARGIN).replace('\n', &margin);
    if let Some(delivery) = moment.delivery() {
        // On a separate line, so that it can be copied.
        let command = format!("look: posthaste deliveries show {delivery}");
        text.push_str(&format!("{margin}{}", styled(QUIET, &command)));
    }
    let name = styled(style, &format!("{:<7}", moment.role.name()));
    format!(
        "{} {name} {text}\n",
        styled(QUIET, &format!("{:>6}", clock(at)))
    )
}

/// The status table.
pub fn status(seen: &Snapshot) -> String {
    let most = seen.endpoints.iter().flat_map(|seen| &seen.recent).max();
    let most = most.copied().unwrap_or(0).max(1);
    let rows: Vec<Vec<Cell>> = seen.endpoints.iter().map(|seen| row(seen, most)).collect();
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
    let events = format!("{} events accepted", seen.accepted);
    let head = styled(QUIET, &format!("{:>6} {events}", clock(seen.at)));
    format!("{head}\n{}", table(&heads, &rows))
}

fn row(seen: &Endpoint, most: u64) -> Vec<Cell> {
    let look = &seen.look;
    vec![
        Cell::new(look.role.name()),
        Cell::number(&look.counted.taken.to_string()),
        Cell::number(&seen.waiting().to_string()),
        Cell::number(&shown(look.retrying)),
        Cell::number(&seen.held().to_string()),
        Cell::number(&shown(look.dead)),
        Cell::new(look.breaker.name()),
        Cell::new(&format!("{} {}/s", sparks(&seen.recent, most), seen.pace())),
    ]
}

/// Renders numbers as bars of different height; `most` is the full height.
fn sparks(numbers: &[u64], most: u64) -> String {
    let full = STEPS.len() as u64 - 1;
    let bar = |number: &u64| STEPS[(number * full).div_ceil(most).min(full) as usize];
    let bars: String = numbers.iter().map(bar).collect();
    format!("{bars:>width$}", width = super::snapshot::RECENT)
}

fn shown(count: Count) -> String {
    let sign = if count.or_more { "+" } else { "" };
    format!("{}{sign}", count.number)
}

/// The status as JSON.
pub fn status_json(seen: &Snapshot) -> Value {
    json!({
        "status": {
            "at_ms": seen.at.as_millis(),
            "events_accepted": seen.accepted,
            "endpoints": endpoints_json(seen),
        }
    })
}

fn endpoints_json(seen: &Snapshot) -> Vec<Value> {
    let endpoint = |seen: &Endpoint| {
        json!({
            "name": seen.look.role.name(),
            "delivered": seen.look.counted.taken,
            "retries": seen.look.counted.retries,
            "pending": seen.look.pending,
            "retrying": seen.look.retrying.number,
            "held": seen.held(),
            "dead": seen.look.dead.number,
            "breaker": seen.look.breaker.name(),
            "arrivals_per_second": seen.pace(),
        })
    };
    seen.endpoints.iter().map(endpoint).collect()
}

/// The summary at the end.
pub fn closing(seen: &Snapshot, width: usize) -> String {
    let sum = |of: fn(&Endpoint) -> u64| seen.endpoints.iter().map(of).sum::<u64>();
    let taken = sum(|seen| seen.look.counted.taken);
    let retries = sum(|seen| seen.look.counted.retries);
    let dead = sum(|seen| seen.look.dead.number);
    let pending = sum(|seen| seen.look.pending);
    let forged = sum(|seen| seen.look.counted.forged);
    let signatures = match forged {
        0 => "every signature held".to_owned(),
        forged => format!("{forged} signatures did not hold"),
    };
    let events = seen.accepted;
    let at = clock(seen.at);
    let told = format!(
        "{events} events in {at}: {taken} deliveries taken, {retries} retries arrived, {dead} dead \
         letters, {pending} still to come; {signatures}."
    );
    let next = "Next: posthaste serve --allow-http --allow-network 127.0.0.0/8";
    format!("\n{}\n{}\n", wrapped(&told, width), styled(QUIET, next))
}

/// The same as JSON.
pub fn closing_json(seen: &Snapshot) -> Value {
    json!({"summary": {
        "at_ms": seen.at.as_millis(),
        "events_accepted": seen.accepted,
        "endpoints": endpoints_json(seen),
    }})
}

/// Formats a time since the start as minutes and seconds.
fn clock(at: Span) -> String {
    let seconds = at.as_millis() / 1_000;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::super::moment::moments;
    use super::super::script::Role;
    use super::super::snapshot::{Breaker, Look, nothing};
    use super::*;
    use anstream::adapter::strip_str;
    use posthaste_core::lane::TripReason;
    use posthaste_core::time::Timestamp;

    fn two_looks() -> (Snapshot, Snapshot) {
        let wall = Timestamp(0);
        let quiet = Role::ALL.map(nothing).to_vec();
        let before = Snapshot::first(Span::from_secs(61), wall, 0, quiet.clone());
        let mut looks = quiet;
        looks[0].counted.arrived = 20;
        looks[0].counted.taken = 19;
        looks[1] = Look {
            breaker: Breaker::Tripped {
                until: Timestamp(2_000),
                reason: TripReason::ConsecutiveFailures,
            },
            pending: 37,
            failures_in_a_row: 20,
            ..looks[1].clone()
        };
        looks[1].counted.arrived = 5;
        looks[2].dead = Count {
            number: 250,
            or_more: true,
        };
        let now = before.next(Span::from_secs(62), wall, 20, looks);
        (before, now)
    }

    #[test]
    fn the_table_says_how_everything_stands() {
        let (_, now) = two_looks();
        let table = strip_str(&status(&now)).to_string();
        let expected = "  1:02 20 events accepted
         DELIVERED  WAITING  RETRYING  HELD  DEAD  BREAKER  ARRIVALS
healthy         19        0         0     0     0  passing         █ 20/s
flaky            0        0         0    37     0  tripped         ▂ 5/s
limited          0        0         0     0  250+  passing           0/s
down             0        0         0     0     0  passing           0/s
";
        assert_eq!(table, expected);
        assert!(table.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn a_moment_is_told_beside_its_time_and_place() {
        let (before, now) = two_looks();
        let told = moments(&before, &now);
        let text = moment(&told[0], now.at, 60);
        assert_eq!(
            strip_str(&text).to_string(),
            "  1:02 flaky   its breaker tripped after 20 failures in a
               row; 37 deliveries are held, none is lost\n"
        );
    }

    #[test]
    fn the_opening_says_where_to_look() {
        let script = Script {
            tempo: 1.0,
            per_second: 20.0,
        };
        let place = Place {
            server: "http://127.0.0.1:9".to_owned(),
            taken: Some("127.0.0.1:8420".to_owned()),
            key: "ph_k".to_owned(),
            receivers: vec![("flaky", "http://127.0.0.1:1".to_owned(), "fails".to_owned())],
        };
        let text = strip_str(&opening(&place, &script)).to_string();
        for part in [
            "127.0.0.1:8420 is taken",
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
