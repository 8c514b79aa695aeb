//! Tenants apart: whatever one does with what is another's, he learns and changes nothing.
//!
//! The routes come from the OpenAPI document of a running server, so that a new one is covered by
//! itself; and one that names its resources in a way unknown here fails the test until it is known.

mod document;
mod household;
mod keys;
mod lists;
mod strangers;
use crate::support;
mod town;
