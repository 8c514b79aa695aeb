//! The pages in a real browser, served by the real binary: what people do with them, from end to end.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod cluster;
mod every;
mod hands;
mod judge;
mod plain;
mod portal;
mod scene;
mod shots;
mod sign_in;
mod stage;
mod story;
mod text;
