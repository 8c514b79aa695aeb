//! `posthaste demo`: arguments and output of the demo.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use posthaste_api::rate;
use posthaste_core::time::Span;
use posthaste_system::clock::Clock;
use posthaste_system::random;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::args::address;
use super::failure::Failure;
use super::remote::client::Client;
use super::{output, serve};
use crate::demo::moment::{Moment, moments};
use crate::demo::page::{self, Place};
use crate::demo::script::{DEFAULT_PER_SECOND, MAX_PER_SECOND, MAX_TEMPO, Script};
use crate::demo::snapshot::Snapshot;
use crate::demo::stage::Stage;
use crate::demo::{traffic, watch};

const EXAMPLES: &str = "\
Examples:
  posthaste demo
  posthaste demo --duration 30s
  posthaste demo --listen 127.0.0.1:0 --json

Within half a minute it shows retries, a tripped breaker, a dead letter and a gentle recovery;
after a minute a receiver that was down comes back to all that was held for it. It keeps its
data in a temporary folder and removes it when it ends.";

/// Number of snapshots between two tables, where the table cannot be redrawn in place.
const LOOKS_APART: u32 = 10;

/// `demo`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Where the server listens; another port is picked if somebody has this one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8420", value_parser = address)]
    pub listen: SocketAddr,
    /// How long to play [default: until Ctrl-C]
    #[arg(long, value_name = "DURATION")]
    pub duration: Option<Span>,
    /// How many events, such as 20/s
    #[arg(long, value_name = "RATE", default_value_t = DEFAULT_PER_SECOND, value_parser = events)]
    pub rate: f64,
    /// Print a line of JSON for everything that is seen
    #[arg(long)]
    pub json: bool,
    /// Play so many times as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, hide = true, value_parser = tempo)]
    pub tempo: f64,
}

fn events(text: &str) -> Result<f64, String> {
    match rate::limit(text)? {
        rate if (1.0..=MAX_PER_SECOND).contains(&rate) => Ok(rate),
        _ => Err(format!("must be from 1/s to {MAX_PER_SECOND}/s")),
    }
}

fn tempo(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(tempo) if (1.0..=MAX_TEMPO).contains(&tempo) => Ok(tempo),
        Ok(_) | Err(_) => Err(format!("must be from 1 to {MAX_TEMPO}")),
    }
}

/// Runs the demo until it is stopped.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    serve::runtime()?.block_on(perform(args))
}

async fn perform(args: &DemoArgs) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Unprepared)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Unprepared)?;
    let script = Script {
        tempo: args.tempo,
        per_second: args.rate,
    };
    let stage = tokio::select! {
        started = Stage::start(script, args.listen) => started?,
        () = either(&mut terminate, &mut interrupt) => return Ok(()),
    };
    let mut narrator = DemoPrinter::new(args.json);
    narrator.open(&place(&stage, &script, args.listen), &script)?;
    let played = tokio::select! {
        played = play(&stage, script, &mut narrator) => played,
        () = sleep_for(args.duration) => Ok(()),
        () = either(&mut terminate, &mut interrupt) => Ok(()),
    };
    let closed = narrator.close();
    let stopped = stage.stop().await;
    played.and(closed).and(stopped)
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

async fn sleep_for(duration: Option<Span>) {
    match duration {
        Some(span) => sleep(Duration::from_millis(span.as_millis())).await,
        None => std::future::pending().await,
    }
}

fn place(stage: &Stage, script: &Script, asked: SocketAddr) -> Place {
    let receivers = stage.receivers.iter().map(|receiver| {
        let role = receiver.role;
        (role.name(), receiver.url(), script.promise(role))
    });
    Place {
        server: stage.url(),
        taken: stage.moved.then(|| asked.to_string()),
        key: stage.key.clone(),
        receivers: receivers.collect(),
    }
}

/// Runs traffic, script and output forever, in one future: dropping it ends all of them.
async fn play(stage: &Stage, script: Script, narrator: &mut DemoPrinter) -> Result<(), Failure> {
    let accepted = AtomicU64::new(0);
    let sending = traffic::send(script, stage.client()?, random::seed(), &accepted);
    let directing = async {
        stage.run_flaky_script().await;
        Ok(())
    };
    let watching = look_on(stage, script, &accepted, narrator);
    tokio::try_join!(sending, directing, watching).map(|_| ())
}

async fn look_on(
    stage: &Stage,
    script: Script,
    accepted: &AtomicU64,
    narrator: &mut DemoPrinter,
) -> Result<(), Failure> {
    let clock = Clock::system();
    let mut client = stage.client()?;
    let mut ticks = interval(script.look_every());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let seen = look(stage, &mut client, &clock, accepted, narrator.seen.as_ref()).await?;
        narrator.tell(seen)?;
    }
}

async fn look(
    stage: &Stage,
    client: &mut Client,
    clock: &Clock,
    accepted: &AtomicU64,
    before: Option<&Snapshot>,
) -> Result<Snapshot, Failure> {
    let looks = watch::look(client, &stage.receivers).await?;
    let now = clock.now();
    let at = Span::from_millis(now.tick.0);
    let accepted = accepted.load(Ordering::Relaxed);
    Ok(match before {
        None => Snapshot::first(at, now.wall, accepted, looks),
        Some(before) => before.next(at, now.wall, accepted, looks),
    })
}

/// The output mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputMode {
    /// One line of JSON per message or status.
    Json,
    /// The table is redrawn in place, below the messages.
    Drawn,
    /// Messages, and the table now and then.
    Written,
}

/// Prints messages and the table.
struct DemoPrinter {
    manner: OutputMode,
    width: usize,
    seen: Option<Snapshot>,
    /// Number of screen lines that the table occupies.
    drawn: usize,
    looks: u32,
}

impl DemoPrinter {
    fn new(json: bool) -> DemoPrinter {
        let stdout = std::io::stdout();
        // Without colour support, cursor movement is not assumed either.
        let moves = stdout.is_terminal()
            && anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never;
        let manner = match (json, moves) {
            (true, _) => OutputMode::Json,
            (false, true) => OutputMode::Drawn,
            (false, false) => OutputMode::Written,
        };
        DemoPrinter {
            manner,
            width: output::width(),
            seen: None,
            drawn: 0,
            looks: 0,
        }
    }

    fn open(&self, place: &Place, script: &Script) -> Result<(), Failure> {
        match self.manner {
            OutputMode::Json => output::print_raw(&format!("{}\n", page::opening_json(place))),
            OutputMode::Drawn | OutputMode::Written => output::print(&page::opening(place, script)),
        }
    }

    fn tell(&mut self, seen: Snapshot) -> Result<(), Failure> {
        let told = match &self.seen {
            Some(before) => moments(before, &seen),
            None => Vec::new(),
        };
        let text = self.text(&told, &seen);
        self.seen = Some(seen);
        self.looks += 1;
        match self.manner {
            OutputMode::Json => output::print_raw(&text),
            OutputMode::Drawn | OutputMode::Written => output::print(&text),
        }
    }

    fn text(&mut self, told: &[Moment], seen: &Snapshot) -> String {
        let words = told
            .iter()
            .map(|moment| page::moment(moment, seen.at, self.width));
        match self.manner {
            OutputMode::Json => {
                let moments = told.iter().map(|moment| moment.as_json(seen.at));
                let lines = moments.chain([page::status_json(seen)]);
                lines.map(|line| format!("{line}\n")).collect()
            }
            OutputMode::Written => {
                let table = match self.looks % LOOKS_APART {
                    0 if self.looks > 0 => format!("\n{}\n", page::status(seen)),
                    _ => String::new(),
                };
                words.chain([table]).collect()
            }
            OutputMode::Drawn => {
                let words: String = words.collect();
                let table = format!("\n{}", page::status(seen));
                let drawn = redrawn(self.drawn, &words, &table);
                self.drawn = table.lines().count();
                drawn
            }
        }
    }

    fn close(&self) -> Result<(), Failure> {
        match (&self.seen, self.manner) {
            (None, _) => Ok(()),
            (Some(seen), OutputMode::Json) => {
                output::print_raw(&format!("{}\n", page::closing_json(seen)))
            }
            (Some(seen), OutputMode::Drawn | OutputMode::Written) => {
                output::print(&page::closing(seen, self.width))
            }
        }
    }
}

/// Returns the escape sequences that replace the last `lines` by new messages and the table. Line wrapping is off for
/// the table, because a wrapped line would change the number of lines to replace next time.
fn redrawn(lines: usize, words: &str, table: &str) -> String {
    let back = match lines {
        0 => String::new(),
        lines => format!("\x1b[{lines}F\x1b[J"),
    };
    format!("{back}{words}\x1b[?7l{table}\x1b[?7h")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_drawn_where_the_last_one_was() {
        assert_eq!(redrawn(0, "", "t\n"), "\x1b[?7lt\n\x1b[?7h");
        assert_eq!(
            redrawn(6, "word\n", "t\n"),
            "\x1b[6F\x1b[Jword\n\x1b[?7lt\n\x1b[?7h"
        );
    }

    #[test]
    fn the_rate_is_that_of_a_demonstration() {
        assert_eq!(events("20/s"), Ok(20.0));
        assert_eq!(events("201"), Err("must be from 1/s to 200/s".to_owned()));
        assert!(events("0.5").is_err() && tempo("0").is_err() && tempo("NaN").is_err());
    }
}
