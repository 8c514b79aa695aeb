//! Attacks on the rules for destinations: an independent second parser of every spelling, rewritten test vectors,
//! and a corpus of interesting inputs.

mod corpus;
mod mutations;
mod second;
mod spellings;
mod verdicts;
