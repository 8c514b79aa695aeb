//! Two nodes on one database, through the real binary: whichever is asked, the whole cluster obeys.

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
