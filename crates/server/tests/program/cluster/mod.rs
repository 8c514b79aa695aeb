//! Tests of a whole cluster, with the built program and a real PostgreSQL: several nodes on one store keep the
//! guarantees of a single node, also when a node or its connection to the database fails.
//!
//! Each test has two sources. The receiver's ledger shows what arrived, when, and from which node. The API must end
//! every event that it accepted. A duplicate is allowed only for an attempt that was in flight during a fault and not
//! yet recorded.

mod acknowledged_actions;
mod concurrency_shares;
mod database_connection;
mod faulty_network;
mod frozen_node;
mod idempotency;
mod join_and_leave;
mod kill;
mod limits;
mod no_faults;
mod propagation;
mod restart;
mod roles;
mod stats_under_faults;
