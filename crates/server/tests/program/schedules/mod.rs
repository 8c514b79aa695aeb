//! Schedules: every occurrence makes exactly one event, whatever happens to the servers. With the built program.

mod clocks;
mod cluster;
mod cut;
mod fixture;
mod kill;
mod limits;
mod overlap;
