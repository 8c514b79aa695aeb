//! A seeded random number generator (RNG) that is passed as a parameter.
//!
//! Code that needs randomness takes a [`Rng`]. The same seed gives the same values on every machine, so a failure
//! that the simulator finds can be reproduced exactly.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, RngExt, SeedableRng};

/// A seeded random number generator.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// Creates a generator whose values depend only on `seed`.
    pub fn seeded(seed: u64) -> Self {
        Rng(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Returns a uniformly distributed integer from `low` to `high`, both included.
    ///
    /// # Panics
    /// If `low` is above `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high)
    }

    /// Returns true with probability `numerator / denominator`.
    ///
    /// # Panics
    /// If the fraction is above one or its denominator is zero.
    pub fn random_ratio(&mut self, numerator: u32, denominator: u32) -> bool {
        self.0.random_ratio(numerator, denominator)
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Creates an independent generator for another user, so that its use does not change the values of this one.
    pub fn split(&mut self) -> Rng {
        Rng::seeded(self.bits())
    }

    /// Returns one element of `choices`, each with the same probability.
    ///
    /// # Panics
    /// If `choices` is empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let last = choices
            .len()
            .checked_sub(1)
            .expect("cannot pick from an empty list");
        &choices[self.between(0, last as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_values() {
        let throws = |seed| {
            let mut rng = Rng::seeded(seed);
            (0..32).map(|_| rng.between(0, 999)).collect::<Vec<_>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
    }

    #[test]
    fn both_ends_of_a_range_are_drawn() {
        let mut rng = Rng::seeded(1);
        let throws: Vec<u64> = (0..200).map(|_| rng.between(3, 5)).collect();
        for face in 3..=5 {
            assert!(throws.contains(&face), "{face} was never drawn");
        }
        assert!(throws.iter().all(|throw| (3..=5).contains(throw)));
    }
}
