//! Tests that every store of posthaste must pass.
//!
//! [`contract`] is a suite of cases, one for each guarantee of [`Store`](posthaste_store::Store), and a
//! randomised comparison. [`model`] is an in-memory store in its simplest form. The comparison checks the real
//! stores against it, and tests of the engine and the API run on it.
//! [`NoHandOver`] is a hand-over for tests that run no engine.
//!
//! This is a separate crate so that none of it is in the shipped program, and so that it can be compiled with
//! optimisations in tests: the comparison does more work than any other test.

pub mod contract;
mod hand_over;
pub mod model;

pub use hand_over::NoHandOver;
