//! Tests that every store of posthaste passes.
//!
//! [`contract`] is a suite of cases, one for each promise of [`Store`](posthaste_store::Store), and a randomised
//! comparison. [`model`] is the store in its simplest form, in memory: the comparison holds the real stores against it,
//! and tests of the engine and the API run on it.
//!
//! A crate of its own, so that nothing of it is in the shipped program and so that it can be optimised in tests: the
//! comparison does more work than any other test.

pub mod contract;
pub mod model;
