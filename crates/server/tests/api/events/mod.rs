//! The API for events, deliveries, replays, retry policies and stats, through the router, on the in-memory store.

mod attention;
mod dead_letters;
mod deliveries;
mod held_back;
mod id_filter;
mod ingest;
mod refused_events;
mod replays;
mod requests;
mod schedule_runs;
mod schedules;
mod stats;
