//! Anything at all, said to the API: it is taken or refused, and never more than that.
//!
//! Cases are random and shrink to the smallest that fails, which is printed.

mod bodies;
mod headers;
use crate::events::kit;
use crate::support;
