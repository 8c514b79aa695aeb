//! Attacks on the rules for destinations.
//!
//! The tests try to get a URL accepted that leads to a forbidden address. They compare every spelling with an
//! independent second parser, rewrite the test vectors, run a corpus of interesting inputs, and check properties of
//! random input.

mod corpus;
mod mutations;
mod second_parser;
mod spellings;
mod verdicts;
