//! The settings of a PostgreSQL store that several nodes share.

use std::sync::Arc;

use posthaste_core::time::Span;
use posthaste_engine::database::EgressDialer;
use posthaste_store::postgres::{PostgresSettings, ServerUrl};
use posthaste_system::clock::{Clock, ClockCorrection};
use posthaste_system::machine::process_name;

use crate::config::Role;

/// A database that several nodes share.
#[derive(Clone, Debug)]
pub struct SharedStore {
    /// The database server.
    pub server: ServerUrl,
    /// Server for the listener connection, if it differs.
    pub listen: Option<ServerUrl>,
    /// Role of this node: API, sending, or both.
    pub role: Role,
    /// Lease duration.
    pub lease: Span,
    /// Time without a node of an earlier version after which an upgrade is finished.
    pub finish_upgrade_after: Span,
    /// Number of connections for reads.
    pub connections: u32,
}

impl SharedStore {
    /// Returns the settings to open the store with.
    pub fn settings(self, clock: Clock, correction: Arc<ClockCorrection>) -> PostgresSettings {
        let source = correction.clone();
        let ticks = Arc::new(move || source.tick());
        PostgresSettings {
            listen: self.listen,
            wants_shards: self.role.sends(),
            name: process_name(),
            role_name: self.role.name().to_owned(),
            clock_offset: Arc::new(move || clock.offset_ms()),
            set_time: Arc::new(move |time| correction.set(time)),
            lease: self.lease,
            finish_upgrade_after: self.finish_upgrade_after,
            quick_readers: self.connections as usize,
            ..PostgresSettings::new(self.server, Arc::new(EgressDialer), ticks)
        }
    }
}
