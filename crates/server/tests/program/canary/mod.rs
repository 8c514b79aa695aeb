//! Canary words: unique words in every secret or private value, and a search for them in every output.
//!
//! - *Secret* values (keys, signing secrets, passwords, tokens, header values) appear in no log at any level, no
//!   metric, no error response, no delivery, no panic, and in no byte of the store's files.
//! - *Private* values (payloads, responses of receivers, queries of URLs) appear in no log, no metric, no error
//!   response and no panic. The store contains them, and their owner can read them.
//!
//! An error response never repeats a value. It may repeat a name: the response to a request with an unknown field names
//! that field.
//!
//! A new secret needs an entry in [`canaries::CANARIES`] and must be planted, or the test fails.

mod canaries;
mod client;
mod credentials;
mod egress_proxy;
mod failed_starts;
mod leak_scenario;
mod panics;
mod recorded_server;
mod search;
use crate::fixture;
mod debug_types;
mod invalid_requests;
