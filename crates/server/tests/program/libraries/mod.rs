//! Requests of the built program, verified by the libraries that receivers use.
//!
//! Each request is verified in Python, in JavaScript and, if the official library supports it, in Rust. They must
//! agree, and must refuse every modified request.

mod standard;
mod styles;
mod verifiers;
use crate::fixture;
