//! Anything at all, said to the API: it is taken or refused, and never more than that.
//!
//! Cases are random and shrink to the smallest that fails, which is printed.

mod bodies;
mod headers;
#[path = "../api_events/kit.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod kit;
#[path = "../api_directory/schema.rs"]
mod schema;
#[path = "../program/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "other tests use the rest of it")]
mod support;
