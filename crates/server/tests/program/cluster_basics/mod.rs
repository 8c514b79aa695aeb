//! Two nodes on one database, with the built program: a request to either node applies to the whole cluster.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod asked;
mod figures;
mod notices;
mod pair;
mod roles;
mod start;
mod tls;
