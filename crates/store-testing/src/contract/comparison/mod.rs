//! Engine and model, side by side.
//!
//! From a seed comes a sequence of operations on few tenants, endpoints and keys, at times that mostly
//! grow. Each is done to the model and to the engine, and both must answer the same; now and then, and at
//! the end, everything that can be seen of both must be the same. Each makes its own ids, so answers are
//! compared with ids replaced by what they stand for.
//!
//! Not compared, since the contract leaves it open: how the deliveries of one event are ordered among
//! themselves, where one page ends and the next begins, in what pieces sweeping, replaying and tidying
//! are done, and whether a fetch that left something unread says that something is blocked.

mod apply;
mod keeping;
mod names;
mod operation;
mod side;
mod telling;
mod view;

use std::collections::VecDeque;
use std::fmt;

use posthaste_core::dice::Dice;

use super::{Harness, ModelHarness, block_on};
use operation::Script;
use side::Side;
use view::Extent;

/// How many operations one seed makes.
const STEPS: usize = 300;
/// Everything is compared each time so many operations have been done. Divides [`STEPS`], so also at the end.
const VIEW_EVERY: usize = 50;
const _: () = assert!(STEPS.is_multiple_of(VIEW_EVERY), "the end is compared");
/// How many operations are told when something differs.
const TOLD: usize = 12;
/// Names the one seed to run.
const SEED_VARIABLE: &str = "POSTHASTE_SEED";

/// Engine and model do not agree.
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

/// The first line that differs, and what is around the place.
fn first_difference(model: &str, engine: &str) -> (String, String) {
    let mut lines = model.lines().zip(engine.lines());
    match lines.find(|(model, engine)| model != engine) {
        Some((model, engine)) => (model.to_owned(), engine.to_owned()),
        None => (model.to_owned(), engine.to_owned()),
    }
}

/// Compares an engine with the model for many seeds, or for the one that the environment names.
///
/// # Panics
/// If they differ.
pub fn assert_agree<H: Harness>(seeds: std::ops::Range<u64>, engine: impl Fn() -> H) {
    let named = std::env::var(SEED_VARIABLE).ok();
    let named = named.map(|seed| seed.parse().expect("a seed is a number"));
    let seeds = named.map_or(seeds, |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(difference) = compare(seed, &engine()) {
            panic!("{difference}");
        }
    }
}

/// Compares an engine with the model for one seed.
pub fn compare(seed: u64, engine: &dyn Harness) -> Result<(), Box<Difference>> {
    let model = ModelHarness::default();
    block_on(run(seed, &model, engine))
}

async fn run(seed: u64, model: &dyn Harness, engine: &dyn Harness) -> Result<(), Box<Difference>> {
    let keeps_figures = engine.keeps_figures();
    let mut script = Script::new(Dice::seeded(seed));
    let mut model = Side::open(model, seed);
    let mut engine = Side::open(engine, seed + 1);
    let mut told = VecDeque::new();
    for step in 1..=STEPS {
        let operation = script.next(&model.names);
        told.push_back(format!("{operation:?}"));
        if told.len() > TOLD {
            told.pop_front();
        }
        let difference = |model, engine| {
            Box::new(Difference {
                seed,
                step,
                operations: told.iter().cloned().collect(),
                model,
                engine,
            })
        };
        let said = model.apply(&operation).await;
        let heard = engine.apply(&operation).await;
        if said != heard {
            return Err(difference(said, heard));
        }
        if step % VIEW_EVERY == 0 {
            let dice = script.dice.split();
            let extent = match step {
                STEPS => Extent::Everything,
                _ => Extent::Lists,
            };
            let seen = model.view(dice.clone(), extent, keeps_figures).await;
            let shown = engine.view(dice, extent, keeps_figures).await;
            if seen != shown {
                return Err(difference(seen, shown));
            }
        }
    }
    Ok(())
}
