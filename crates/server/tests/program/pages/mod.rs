//! The pages in a real browser, served by the built program: end-to-end tests of user tasks.

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
