//! The API for events, deliveries, replays, retry policies and stats, through the router, on the in-memory store.

mod attention;
mod dead_letters;
mod deliveries;
mod figures;
mod ids;
mod ingest;
pub(crate) mod kit;
mod refusals;
mod replays;
use crate::directory::schema;
