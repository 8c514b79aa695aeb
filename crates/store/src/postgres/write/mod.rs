//! Writes: everything that changes the database on behalf of a caller.
//!
//! Calls are put into a write queue ([`write_queue::WriteQueue`]). The [`writer::Writer`] takes them in fair turns and
//! commits accepted events, recorded results and completed deliveries as one [`batch`] of bounded size, in one round
//! trip. Every other operation is cold: it runs alone in a transaction, with a [`write_context::WriteContext`] that
//! gives it the connection, the routing table and the place for its side effects. A node has four writers, see
//! [`writer_role::WriterRole`].
//!
//! Guarantees: a batch commits only if the directory and the owned shards ([`owned_shards::OwnedShards`]) are those it
//! was planned with. Answers are sent after the commit. A caller whose answer was lost is told that the outcome is
//! unknown.

mod accept;
mod advances;
pub(in crate::postgres) mod alerts;
pub(in crate::postgres) mod audit;
pub(in crate::postgres) mod batch;
mod batch_statements;
mod batch_weight;
mod changed_delivery;
pub(in crate::postgres) mod changelog;
pub(in crate::postgres) mod commit;
pub(in crate::postgres) mod count_changes;
pub(in crate::postgres) mod directory;
pub(in crate::postgres) mod endpoints;
mod large_accept;
mod new_waiting;
pub(in crate::postgres) mod notifications;
mod notify;
pub(in crate::postgres) mod notify_message;
pub(in crate::postgres) mod operation;
pub(in crate::postgres) mod owned_shards;
pub(in crate::postgres) mod record;
pub(in crate::postgres) mod replays;
pub(in crate::postgres) mod routing_table;
pub(in crate::postgres) mod schedules;
pub(in crate::postgres) mod sessions;
pub(in crate::postgres) mod stats;
pub(in crate::postgres) mod unowned;
pub(in crate::postgres) mod usage;
pub(in crate::postgres) mod write_context;
pub(in crate::postgres) mod write_queue;
pub(in crate::postgres) mod writer;
pub(in crate::postgres) mod writer_role;
