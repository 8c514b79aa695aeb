//! The pages, through the real router, with the engine running on the store in memory: what somebody
//! reads on them, where links lead, and what forms do. How they behave in a browser is tested in one.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the server as its callers do, and are its receivers"
)]

mod alerts;
mod dead_letters;
mod deliveries;
mod doors;
mod endpoints;
mod kit;
mod live;
mod overview;
mod replays;
mod seen;
mod skeleton;
