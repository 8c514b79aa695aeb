//! The API for events, deliveries, replays, retry policies and stats, through the router, on the in-memory store.

mod attention;
mod dead_letters;
mod deliveries;
mod figures;
mod ids;
mod ingest;
mod refusals;
mod replays;
