//! The clock and the random numbers of the operating system.
//!
//! The only crate that reads them. Everything else gets a [`clock::Clock`] or a seeded generator as a parameter, so that
//! tests control both.

pub mod clock;
pub mod random;
