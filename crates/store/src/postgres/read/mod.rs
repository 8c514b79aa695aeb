//! Reads: everything that only looks at committed data.
//!
//! [`readers::Readers`] has a few connections for each [expected duration](crate::read_duration::ReadDuration) of a
//! read. The other modules contain the statements: [`lists`] and [`search`] for pages of events and deliveries,
//! [`dead_letters`], [`counts`], [`fetch`] for the work of an owner, [`replay_targets`].
//!
//! Guarantees: a read never blocks a write. A read with several statements sees one snapshot. No statement reads more
//! rows than a fixed limit, however many there are. A read whose connection was lost is repeated once.

pub(in crate::postgres) mod counts;
pub(in crate::postgres) mod dead_letters;
pub(in crate::postgres) mod directory;
pub(in crate::postgres) mod due_watermarks;
pub(in crate::postgres) mod endpoints;
pub(in crate::postgres) mod fetch;
pub(in crate::postgres) mod lists;
pub(in crate::postgres) mod payload_cache;
pub(in crate::postgres) mod readers;
pub(in crate::postgres) mod replay_targets;
pub(in crate::postgres) mod schedules;
pub(in crate::postgres) mod search;
pub(in crate::postgres) mod tenant_lookup;
