//! `posthaste demo`: arguments and output of the demo.
//!
//! [`run`] starts the demo and prints what changes, as text or as JSON. [`render`] makes the text.

pub mod render;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use posthaste_api::rate;
use posthaste_core::time::Span;
use posthaste_system::clock::Clock;
use posthaste_system::random;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::error::CommandError;
use super::output;
use super::runtime::{self, StopSignals};
use super::value_parsers::address;
use crate::client::{ApiClient, ClientError};
use crate::demo::running::RunningDemo;
use crate::demo::scenario::{DEFAULT_PER_SECOND, DemoScenario, MAX_PER_SECOND, MAX_SPEED};
use crate::demo::snapshot::DemoSnapshot;
use crate::demo::transition::{Transition, transitions};
use crate::demo::{poll, traffic};
use render::DemoAddresses;

const EXAMPLES: &str = "\
Examples:
  posthaste demo
  posthaste demo --duration 30s
  posthaste demo --listen 127.0.0.1:0 --json

Within half a minute it shows retries, a tripped breaker, a dead letter and a gradual recovery;
after a minute a receiver that was down comes back and gets its held deliveries. The demo keeps its
data in a temporary directory and removes it at the end.";

/// Number of snapshots between two tables, where the table cannot be redrawn in place.
const SNAPSHOTS_PER_TABLE: u32 = 10;

/// `demo`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Listen address; if it is in use, a free port is picked
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8420", value_parser = address)]
    pub listen: SocketAddr,
    /// Duration of the demo [default: until Ctrl-C]
    #[arg(long, value_name = "DURATION")]
    pub duration: Option<Span>,
    /// Rate of events, such as 20/s
    #[arg(long, value_name = "RATE", default_value_t = DEFAULT_PER_SECOND, value_parser = events)]
    pub rate: f64,
    /// Print one line of JSON per message or status
    #[arg(long)]
    pub json: bool,
    /// Speed factor
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, hide = true, value_parser = speed)]
    pub tempo: f64,
}

fn events(text: &str) -> Result<f64, String> {
    match rate::limit(text)? {
        rate if (1.0..=MAX_PER_SECOND).contains(&rate) => Ok(rate),
        _ => Err(format!("must be from 1/s to {MAX_PER_SECOND}/s")),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if (1.0..=MAX_SPEED).contains(&speed) => Ok(speed),
        Ok(_) | Err(_) => Err(format!("must be from 1 to {MAX_SPEED}")),
    }
}

/// Runs the demo until it is stopped.
pub fn run(args: &DemoArgs) -> Result<(), CommandError> {
    runtime::multi_threaded()?.block_on(run_demo(args))
}

async fn run_demo(args: &DemoArgs) -> Result<(), CommandError> {
    let mut signals = StopSignals::register()?;
    let scenario = DemoScenario {
        speed: args.tempo,
        events_per_second: args.rate,
    };
    let demo = tokio::select! {
        started = RunningDemo::start(scenario, args.listen) => started?,
        () = signals.recv() => return Ok(()),
    };
    let mut printer = DemoPrinter::new(args.json, addresses(&demo, &scenario, args.listen));
    printer.open(&scenario)?;
    let result = tokio::select! {
        result = play(&demo, scenario, &mut printer) => result,
        () = sleep_for(args.duration) => Ok(()),
        () = signals.recv() => Ok(()),
    };
    let closed = printer.close();
    let stopped = demo.stop().await;
    result.and(closed).and(stopped.map_err(CommandError::from))
}

async fn sleep_for(duration: Option<Span>) {
    match duration {
        Some(span) => sleep(Duration::from_millis(span.as_millis())).await,
        None => std::future::pending().await,
    }
}

fn addresses(demo: &RunningDemo, scenario: &DemoScenario, requested: SocketAddr) -> DemoAddresses {
    let receivers = demo.receivers.iter().map(|receiver| {
        let kind = receiver.kind;
        (kind.name(), receiver.url(), scenario.description(kind))
    });
    DemoAddresses {
        server: demo.url(),
        address_in_use: demo.port_changed.then(|| requested.to_string()),
        key: demo.key.clone(),
        receivers: receivers.collect(),
    }
}

/// Runs traffic, scenario and output forever, in one future: dropping it ends all of them.
async fn play(
    demo: &RunningDemo,
    scenario: DemoScenario,
    printer: &mut DemoPrinter,
) -> Result<(), CommandError> {
    let accepted = AtomicU64::new(0);
    let client = demo.client()?;
    let sending = async {
        traffic::send(scenario, client, random::seed(), &accepted).await?;
        Ok(())
    };
    let phases = async {
        demo.run_flaky_phases().await;
        Ok(())
    };
    let printing = print_snapshots(demo, scenario, &accepted, printer);
    tokio::try_join!(sending, phases, printing).map(|_| ())
}

async fn print_snapshots(
    demo: &RunningDemo,
    scenario: DemoScenario,
    accepted: &AtomicU64,
    printer: &mut DemoPrinter,
) -> Result<(), CommandError> {
    let clock = Clock::system();
    let mut client = demo.client()?;
    let mut ticks = interval(scenario.poll_interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let before = printer.last.as_ref();
        let snapshot = take_snapshot(demo, &mut client, &clock, accepted, before).await?;
        printer.print(snapshot)?;
    }
}

async fn take_snapshot(
    demo: &RunningDemo,
    client: &mut ApiClient,
    clock: &Clock,
    accepted: &AtomicU64,
    before: Option<&DemoSnapshot>,
) -> Result<DemoSnapshot, ClientError> {
    let states = poll::poll(client, &demo.receivers).await?;
    let now = clock.now();
    let at = Span::from_millis(now.tick.0);
    let accepted = accepted.load(Ordering::Relaxed);
    Ok(match before {
        None => DemoSnapshot::first(at, now.wall, accepted, states),
        Some(before) => before.next(at, now.wall, accepted, states),
    })
}

/// The output mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputMode {
    /// One line of JSON per message or status.
    Json,
    /// The table is redrawn in place, below the messages.
    Redrawn,
    /// Messages, and the table now and then.
    Appended,
}

/// Prints messages and the table.
struct DemoPrinter {
    mode: OutputMode,
    addresses: DemoAddresses,
    last: Option<DemoSnapshot>,
    /// Number of screen lines that the table occupies.
    table_lines: usize,
    snapshot_count: u32,
}

impl DemoPrinter {
    fn new(json: bool, addresses: DemoAddresses) -> DemoPrinter {
        let stdout = std::io::stdout();
        // Without colour support, cursor movement is not assumed either.
        let moves_cursor = stdout.is_terminal()
            && anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never;
        let mode = match (json, moves_cursor) {
            (true, _) => OutputMode::Json,
            (false, true) => OutputMode::Redrawn,
            (false, false) => OutputMode::Appended,
        };
        DemoPrinter {
            mode,
            addresses,
            last: None,
            table_lines: 0,
            snapshot_count: 0,
        }
    }

    fn open(&self, scenario: &DemoScenario) -> Result<(), CommandError> {
        let addresses = &self.addresses;
        match self.mode {
            OutputMode::Json => {
                output::print_raw(&format!("{}\n", render::opening_json(addresses)))
            }
            OutputMode::Redrawn | OutputMode::Appended => {
                output::print(&render::opening(addresses, scenario))
            }
        }
    }

    fn print(&mut self, snapshot: DemoSnapshot) -> Result<(), CommandError> {
        let found = match &self.last {
            Some(before) => transitions(before, &snapshot),
            None => Vec::new(),
        };
        let text = self.text(&found, &snapshot);
        self.last = Some(snapshot);
        self.snapshot_count += 1;
        match self.mode {
            OutputMode::Json => output::print_raw(&text),
            OutputMode::Redrawn | OutputMode::Appended => output::print(&text),
        }
    }

    fn text(&mut self, found: &[Transition], snapshot: &DemoSnapshot) -> String {
        // Read each time, because the size of the terminal can change.
        let width = output::width();
        let messages = found
            .iter()
            .map(|it| render::transition(it, snapshot.at, width));
        match self.mode {
            OutputMode::Json => {
                let transitions = found.iter().map(|it| it.as_json(snapshot.at));
                let lines = transitions.chain([render::status_json(snapshot)]);
                lines.map(|line| format!("{line}\n")).collect()
            }
            OutputMode::Appended => {
                let table = match self.snapshot_count % SNAPSHOTS_PER_TABLE {
                    0 if self.snapshot_count > 0 => {
                        format!("\n{}\n", render::status(snapshot, width))
                    }
                    _ => String::new(),
                };
                messages.chain([table]).collect()
            }
            OutputMode::Redrawn => {
                let messages: String = messages.collect();
                let width = output::terminal_columns().unwrap_or(width);
                let status = render::status(snapshot, width);
                let table = format!("\n{status}{}", render::sign_in(&self.addresses));
                let redrawn = redraw(self.table_lines, &messages, &table);
                self.table_lines = table.lines().count();
                redrawn
            }
        }
    }

    fn close(&self) -> Result<(), CommandError> {
        match (&self.last, self.mode) {
            (None, _) => Ok(()),
            (Some(last), OutputMode::Json) => {
                output::print_raw(&format!("{}\n", render::closing_json(last)))
            }
            (Some(last), OutputMode::Redrawn | OutputMode::Appended) => {
                output::print(&render::closing(last, output::width()))
            }
        }
    }
}

/// Returns the escape sequences that replace the last `lines` by new messages and the table. Line wrapping is off for
/// the table, because a wrapped line would change the number of lines to replace next time.
fn redraw(lines: usize, messages: &str, table: &str) -> String {
    let back = match lines {
        0 => String::new(),
        lines => format!("\x1b[{lines}F\x1b[J"),
    };
    format!("{back}{messages}\x1b[?7l{table}\x1b[?7h")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_replaces_the_last_one() {
        assert_eq!(redraw(0, "", "t\n"), "\x1b[?7lt\n\x1b[?7h");
        assert_eq!(
            redraw(6, "word\n", "t\n"),
            "\x1b[6F\x1b[Jword\n\x1b[?7lt\n\x1b[?7h"
        );
    }

    #[test]
    fn rate_and_speed_have_bounds() {
        assert_eq!(events("20/s"), Ok(20.0));
        assert_eq!(events("201"), Err("must be from 1/s to 200/s".to_owned()));
        assert!(events("0.5").is_err() && speed("0").is_err() && speed("NaN").is_err());
    }
}
