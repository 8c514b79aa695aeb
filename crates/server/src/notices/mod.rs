//! What people are told without asking.

pub mod mail;
