//! Randomness as an argument.
//!
//! Whoever decides by chance is handed the dice. The same seed gives the same throws on every
//! machine, so a failure found in the simulator can be played again exactly.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};

/// A seeded source of chance.
#[derive(Clone, Debug)]
pub struct Dice(Xoshiro256PlusPlus);

impl Dice {
    /// Dice whose throws follow from `seed` alone.
    pub fn seeded(seed: u64) -> Self {
        Dice(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A whole number from `low` to `high`, both included, each equally likely.
    ///
    /// # Panics
    /// If `low` is above `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high)
    }

    /// True with probability `numerator / denominator`.
    ///
    /// # Panics
    /// If the fraction is above one or its denominator is zero.
    pub fn chance(&mut self, numerator: u32, denominator: u32) -> bool {
        self.0.random_ratio(numerator, denominator)
    }

    /// Sixty-four random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Dice of their own for another thrower, so that its throws do not shift ours.
    pub fn split(&mut self) -> Dice {
        Dice::seeded(self.bits())
    }

    /// One element of `choices`, each equally likely.
    ///
    /// # Panics
    /// If there is nothing to choose from.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let last = choices.len().checked_sub(1).expect("a choice among none");
        &choices[self.between(0, last as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_throws_the_same() {
        let throws = |seed| {
            let mut dice = Dice::seeded(seed);
            (0..32).map(|_| dice.between(0, 999)).collect::<Vec<_>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
    }

    #[test]
    fn both_ends_are_thrown() {
        let mut dice = Dice::seeded(1);
        let throws: Vec<u64> = (0..200).map(|_| dice.between(3, 5)).collect();
        for face in 3..=5 {
            assert!(throws.contains(&face), "{face} never came");
        }
        assert!(throws.iter().all(|throw| (3..=5).contains(throw)));
    }
}
