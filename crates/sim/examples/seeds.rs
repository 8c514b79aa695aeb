//! Runs many seeds of the simulator: `cargo run --release -p posthaste-sim --example seeds -- FIRST COUNT`.
//!
//! Prints each seed that violates a guarantee with its last events, and the statistics of all seeds.
//! `… -- SEED 1` runs a single seed.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use posthaste_sim::simulation::{Summary, run};

/// Maximum number of failing seeds that are printed.
const SHOWN: usize = 3;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (first, count) = match (numbers.next(), numbers.next(), numbers.next()) {
        (None, None, None) => (0, 1_000),
        (Some(Ok(first)), None, None) => (first, 1),
        (Some(Ok(first)), Some(Ok(count)), None) => (first, count),
        (Some(_), _, _) | (None, _, _) => {
            eprintln!("usage: seeds [FIRST_SEED [COUNT]], both whole numbers");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let (total, mut failures) = run_all(first, count);
    failures.sort_by_key(|(seed, _)| *seed);
    for (_, failure) in failures.iter().take(SHOWN) {
        println!("{failure}\n");
    }
    println!(
        "seeds: {count} from {first} in {:.1} s: {} deliveries, {} attempts, {} crashes, {} events; {} broken",
        began.elapsed().as_secs_f64(),
        total.deliveries,
        total.attempts,
        total.crashes,
        total.events,
        failures.len()
    );
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs the seeds on all cores. The order does not affect the results.
fn run_all(first: u64, count: u64) -> (Summary, Vec<(u64, String)>) {
    let next = AtomicU64::new(0);
    let work = || {
        let mut total = Summary::default();
        let mut failures = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return (total, failures);
            }
            match run(first + index, None) {
                Ok(summary) => total = total.plus(summary),
                Err(failure) => failures.push((first + index, failure.to_string())),
            }
        }
    };
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let mut all = (Summary::default(), Vec::new());
        for worker in workers {
            let (total, failures) = worker.join().expect("no worker panics");
            all.0 = all.0.plus(total);
            all.1.extend(failures);
        }
        all
    })
}
