//! The cluster: nodes that share the database and divide the shards among themselves.
//!
//! [`membership::Membership`] is this node's view of the others, and implements [`Cluster`](crate::Cluster). Its tasks
//! renew the lease ([`membership_task`], [`cluster_table`]), receive `NOTIFY` ([`listener`]), poll for missed changes
//! and work ([`poller`]), finish a rolling upgrade ([`upgrade`]), exchange questions with other nodes ([`node_rpc`], [`rpc_exchange`]) and divide the
//! concurrency of limited tenants ([`concurrency_shares`]).
//!
//! Guarantees: no two nodes own a shard at the same time. A lost `NOTIFY` message delays work, and loses none. A node
//! that cannot renew its lease stops sending before another node takes over its shards.

mod cluster_table;
mod concurrency_shares;
pub(in crate::postgres) mod database_clock;
mod listener;
pub(in crate::postgres) mod membership;
mod membership_task;
mod node_list;
mod node_rpc;
mod poller;
mod rpc_exchange;
mod upgrade;
