//! A virtual world that drives the deciding core from a seed.

pub mod agenda;
pub mod disk;
pub mod recovery;
