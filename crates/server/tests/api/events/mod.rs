//! Events, deliveries, replays, policies and figures, through the router and on the model of the store.

mod attention;
mod dead_letters;
mod deliveries;
mod events;
mod figures;
mod ids;
pub(crate) mod kit;
mod refusals;
mod replays;
use crate::directory::schema;
