//! What the real binary sends, verified by the libraries that receivers use.
//!
//! Each claim about a request that arrived is put to Python, JavaScript and, where its official library
//! can, Rust. They must agree, and must say no to whatever was tampered with.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod judges;
mod standard;
mod styles;
use crate::serve::support;
