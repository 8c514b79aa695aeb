//! Randomised comparison of the store under test with the model.
//!
//! A seed determines a sequence of operations on few tenants, endpoints and keys, at times that mostly
//! increase. Each operation is applied to both stores, and both must return the same result. From time to time,
//! and at the end, all readable data of both must be equal. Each store makes its own ids, so ids in results are
//! replaced by names before the comparison.
//!
//! The contract leaves some behaviour open, which is not compared: the order of the deliveries of one event,
//! the page boundaries, the steps in which sweeps, replays and retention runs proceed, and whether a fetch that
//! left something unread reports that something is blocked.

mod apply;
mod names;
mod notifications;
mod operation;
mod retention;
mod schedules;
mod side;
mod view;

use std::collections::VecDeque;
use std::fmt;

use posthaste_core::rng::Rng;

use super::{Harness, ModelHarness, block_on};
use operation::Script;
use side::ComparedStore;
use view::Extent;

/// Number of operations per seed.
const STEPS: usize = 300;
/// Number of operations between full comparisons. Divides [`STEPS`], so that there is also one at the end.
const VIEW_EVERY: usize = 50;
const _: () = assert!(
    STEPS.is_multiple_of(VIEW_EVERY),
    "the last operation is followed by a comparison"
);
/// Number of last operations that a failure shows.
const SHOWN_OPERATIONS: usize = 12;
/// Environment variable that selects a single seed.
const SEED_VARIABLE: &str = "POSTHASTE_SEED";

/// The store under test and the model returned different results.
#[derive(Debug)]
pub struct Difference {
    seed: u64,
    step: usize,
    operations: Vec<String>,
    model: String,
    engine: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}, step {}: model and engine differ",
            self.seed, self.step
        )?;
        writeln!(f, "the last operations:")?;
        for operation in &self.operations {
            writeln!(f, "  {operation}")?;
        }
        let (model, engine) = first_difference(&self.model, &self.engine);
        writeln!(f, "the model says:  {model}")?;
        writeln!(f, "the engine says: {engine}")?;
        writeln!(
            f,
            "to see it again: {SEED_VARIABLE}={} and the same test",
            self.seed
        )
    }
}

/// Returns the first line that differs.
fn first_difference(model: &str, engine: &str) -> (String, String) {
    let mut lines = model.lines().zip(engine.lines());
    match lines.find(|(model, engine)| model != engine) {
        Some((model, engine)) => (model.to_owned(), engine.to_owned()),
        None => (model.to_owned(), engine.to_owned()),
    }
}

/// Compares a store with the model for many seeds, or for the one that the environment selects.
///
/// # Panics
/// If they differ.
pub fn assert_agree<H: Harness>(seeds: std::ops::Range<u64>, engine: impl Fn() -> H) {
    let named = std::env::var(SEED_VARIABLE).ok();
    let named = named.map(|seed| seed.parse().expect("the seed is a number"));
    let seeds = named.map_or(seeds, |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(difference) = compare(seed, &engine()) {
            panic!("{difference}");
        }
    }
}

/// Compares a store with the model for one seed.
pub fn compare(seed: u64, engine: &dyn Harness) -> Result<(), Box<Difference>> {
    let model = ModelHarness::default();
    block_on(run(seed, &model, engine))
}

async fn run(seed: u64, model: &dyn Harness, engine: &dyn Harness) -> Result<(), Box<Difference>> {
    let keeps_stats = engine.keeps_stats();
    let mut script = Script::new(Rng::seeded(seed));
    let mut model = ComparedStore::open(model, seed);
    let mut engine = ComparedStore::open(engine, seed + 1);
    let mut described = VecDeque::new();
    for step in 1..=STEPS {
        let operation = script.next(&model.names);
        described.push_back(format!("{operation:?}"));
        if described.len() > SHOWN_OPERATIONS {
            described.pop_front();
        }
        let difference = |model, engine| {
            Box::new(Difference {
                seed,
                step,
                operations: described.iter().cloned().collect(),
                model,
                engine,
            })
        };
        let expected = model.apply(&operation).await;
        let actual = engine.apply(&operation).await;
        if expected != actual {
            return Err(difference(expected, actual));
        }
        if step % VIEW_EVERY == 0 {
            let rng = script.rng.split();
            let extent = match step {
                STEPS => Extent::Everything,
                _ => Extent::Lists,
            };
            let seen = model.view(rng.clone(), extent, keeps_stats).await;
            let shown = engine.view(rng, extent, keeps_stats).await;
            if seen != shown {
                return Err(difference(seen, shown));
            }
        }
    }
    Ok(())
}
