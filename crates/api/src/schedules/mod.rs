//! Schedules: recurring events and one-off requests.
//!
//! The handlers store definitions and show them. The scheduler, which runs on the node that owns a schedule, decides about
//! due occurrences. A change and a pause are written with the revision that was read, so they never undo a run that was
//! recorded in between. [`routes`] has the route table.

mod form;
mod handlers;
mod routes;
mod runs;
mod target;
mod timing;
mod view;

pub(super) use routes::GROUP;
