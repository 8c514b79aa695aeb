//! Random requests to the API: each must be accepted or refused, without a crash or an internal error.
//!
//! A failing case is shrunk to the smallest one that fails, which is printed.

mod bodies;
mod headers;
use crate::support;
