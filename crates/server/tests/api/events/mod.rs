//! Events, deliveries, replays, policies and figures, through the router and on the model of the store.

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
