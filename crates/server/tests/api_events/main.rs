//! Events, deliveries, replays, policies and figures, through the router and on the model of the store.

mod attention;
mod dead_letters;
mod deliveries;
mod events;
mod figures;
mod ids;
mod kit;
mod refusals;
mod replays;
#[path = "../api_directory/schema.rs"]
mod schema;
