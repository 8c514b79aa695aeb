//! Canaries: words that stand nowhere else, planted wherever something is secret or private, and looked
//! for wherever somebody might read them.
//!
//! - What is *secret* (keys, signing secrets, passwords, tokens, header values) is in no log at any
//!   level, no metric, no problem, no delivery, no panic, and no byte of the store's files.
//! - What is *private* (payloads, answers of receivers, the queries of URLs) is in no log, no metric, no
//!   problem and no panic. The store keeps it, and its owner is shown it.
//!
//! Values are never told back in a problem. Names are: a field that is unknown is told by its name, to
//! whoever wrote it and to nobody else.
//!
//! A new secret is a line in [`canaries::PLANTED`], and has to be planted, or the test fails.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod caller;
mod canaries;
mod credentials;
mod panics;
mod places;
mod program;
mod proxied;
mod starts;
mod story;
use crate::serve::support;
mod types;
mod wrong;
