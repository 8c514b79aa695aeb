//! Runs the program under random faults for a while: `scripts/soak` starts this.
//!
//! ```sh
//! soak cluster|kill --program PATH [--minutes N] [--seed S] [--rate EVENTS_PER_SECOND] [--stats] [--no-database-faults]
//!     [--only FAULT]
//! ```
//!
//! Prints the schedule, a table of the faults and every violation. The exit code is 1 if there is a violation.

use std::process::ExitCode;
use std::time::Duration;

use posthaste_testbed::soak::{FaultKind, SoakOptions, cluster, kill};

const USAGE: &str = "usage: soak cluster|kill --program PATH [--minutes N] [--seed S] [--rate N] [--stats] [--no-database-faults] [--only FAULT]";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let Some(options) = options(arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime");
    let report = match kind.as_str() {
        "cluster" => runtime.block_on(cluster::run(&options)),
        "kill" => runtime.block_on(kill::run(&options)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    println!("{report}");
    match report.violations.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Option<SoakOptions> {
    let mut options = SoakOptions {
        program: "target/debug/posthaste".into(),
        seed: u64::from(std::process::id()),
        duration: Duration::from_secs(600),
        events_per_second: 60,
        kinds: [&FaultKind::OF_NODES[..], &FaultKind::OF_DATABASE[..]].concat(),
        check_stats: false,
    };
    while let Some(name) = arguments.next() {
        match name.as_str() {
            "--program" => options.program = arguments.next()?.into(),
            "--minutes" => {
                let minutes: f64 = arguments.next()?.parse().ok()?;
                options.duration = Duration::try_from_secs_f64(minutes * 60.0).ok()?;
            }
            "--seed" => options.seed = arguments.next()?.parse().ok()?,
            "--rate" => options.events_per_second = arguments.next()?.parse().ok()?,
            "--stats" => options.check_stats = true,
            "--only" => {
                let wanted = arguments.next()?;
                let known = options.kinds.iter().find(|kind| kind.name() == wanted);
                options.kinds = vec![*known?];
            }
            "--no-database-faults" => options.kinds = FaultKind::OF_NODES.to_vec(),
            _ => return None,
        }
    }
    Some(options)
}
