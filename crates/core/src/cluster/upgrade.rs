//! Rolling upgrades: nodes of two versions share a database while they are replaced one after the other.
//!
//! A migration only adds tables, columns and functions, so nodes of the version before keep working on the database. A
//! later version may remove what only they need. A database therefore has two schema versions ([`SchemaVersions`]): the
//! one that its migrations have *reached*, and the one that a node must know, which is *required*. [`check`] compares
//! them with what a program supports.
//!
//! Until an upgrade is finished, every node writes only what nodes of the version before can read. [`FormatLevel`] says
//! what that is. [`UpgradeState`] decides when no older node is left; then the required version is raised, older nodes can
//! no longer join, and the level rises. It never falls.

use std::ops::RangeInclusive;

use crate::time::{Span, Tick};

/// Default time without a node of an earlier version after which an upgrade is finished.
pub const DEFAULT_FINISH_UPGRADE_AFTER: Span = Span::from_mins(1);

/// The schema version of nodes of 0.1 on PostgreSQL. They do not publish it.
const V0_1_SCHEMA: u32 = 3;

/// The schema versions of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaVersions {
    /// The version that a node must at least know.
    pub required: u32,
    /// The version that the migrations have reached. 0 for an empty database.
    pub reached: u32,
}

/// The result of comparing a database with what a program supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaCheck {
    /// The program can use it as it is. A later version may have added to it.
    Ready,
    /// The program must migrate it first.
    Migrate,
    /// Only later versions can use it.
    TooNew,
    /// The program has no migration from its version.
    TooOld,
}

/// Compares a database with the schema versions that a program can migrate from, up to the newest that it knows.
pub fn check(database: SchemaVersions, supported: RangeInclusive<u32>) -> SchemaCheck {
    if database.required > *supported.end() {
        return SchemaCheck::TooNew;
    }
    if database.reached >= *supported.end() {
        return SchemaCheck::Ready;
    }
    match database.reached == 0 || supported.contains(&database.reached) {
        true => SchemaCheck::Migrate,
        false => SchemaCheck::TooOld,
    }
}

/// The stored forms that every node of a cluster can read. Levels are ordered: a later one includes the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FormatLevel {
    /// Nodes of 0.1 may run.
    V0_1,
    /// Only nodes of this version or a later one run.
    V0_2,
}

/// A stored form that nodes of an earlier version cannot read, or an action that they cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Deliveries that bring their own method, URL and policy. Nodes of 0.1 would send a POST to the origin.
    OneOffRequests,
    /// The field `late` of a retry policy. Nodes of 0.1 would ignore the whole policy.
    LatePolicies,
    /// Breakers that trip on refusals. Nodes of 0.1 could not read the health of the endpoint.
    RefusalTrips,
    /// Alerts that were added in 0.2. Nodes of 0.1 could list no alerts.
    AlertsOfV0_2,
    /// Schedules. Nodes of 0.1 run none, and would send the requests of their runs as a POST to the origin.
    Schedules,
}

impl Feature {
    /// Returns the level from which on the feature can be used.
    pub const fn since(self) -> FormatLevel {
        match self {
            Feature::OneOffRequests
            | Feature::LatePolicies
            | Feature::RefusalTrips
            | Feature::AlertsOfV0_2
            | Feature::Schedules => FormatLevel::V0_2,
        }
    }
}

impl FormatLevel {
    /// The level of this version.
    pub const NEWEST: FormatLevel = FormatLevel::V0_2;

    /// Returns the level of a PostgreSQL database that requires this schema version.
    pub const fn of_required(required: u32) -> FormatLevel {
        match required <= V0_1_SCHEMA {
            true => FormatLevel::V0_1,
            false => FormatLevel::V0_2,
        }
    }

    /// Returns whether a feature can be used: every node can read what it stores.
    pub fn allows(self, feature: Feature) -> bool {
        self >= feature.since()
    }
}

/// The next step of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeStep {
    /// Look again later: nodes of an earlier version run, or ran a short time ago.
    Wait,
    /// Raise the required version.
    Finish,
    /// The upgrade is finished.
    Finished,
}

/// Decides when an upgrade is finished.
///
/// The wait after the last older node leaves time for one that crashed to restart, and for the operator to go back to the
/// earlier version.
#[derive(Clone, Debug)]
pub struct UpgradeState {
    known: u32,
    finish_after: Span,
    /// The time since which no older node was seen.
    without_older_since: Option<Tick>,
}

impl UpgradeState {
    /// Creates the state of a node that knows schema versions up to `known`.
    pub fn new(known: u32, finish_after: Span) -> UpgradeState {
        UpgradeState {
            known,
            finish_after,
            without_older_since: None,
        }
    }

    /// Decides by the required version of the database and the number of nodes that know only earlier ones.
    pub fn observe(&mut self, now: Tick, required: u32, older_nodes: u64) -> UpgradeStep {
        if required >= self.known {
            return UpgradeStep::Finished;
        }
        if older_nodes > 0 {
            self.without_older_since = None;
            return UpgradeStep::Wait;
        }
        let since = *self.without_older_since.get_or_insert(now);
        match now.since(since) >= self.finish_after {
            true => UpgradeStep::Finish,
            false => UpgradeStep::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(required: u32, reached: u32) -> SchemaVersions {
        SchemaVersions { required, reached }
    }

    #[test]
    fn a_database_is_refused_only_if_it_cannot_be_used_or_migrated() {
        for (required, reached, expected) in [
            (0, 0, SchemaCheck::Migrate),
            (3, 3, SchemaCheck::Migrate),
            (3, 7, SchemaCheck::Migrate),
            (3, 8, SchemaCheck::Ready),
            (8, 8, SchemaCheck::Ready),
            // A later version has added to it, and waits for the nodes of this version to be replaced.
            (8, 11, SchemaCheck::Ready),
            (9, 11, SchemaCheck::TooNew),
            (1, 1, SchemaCheck::TooOld),
            (1, 2, SchemaCheck::TooOld),
        ] {
            let checked = check(versions(required, reached), 3..=8);
            assert_eq!(checked, expected, "requires {required}, reached {reached}");
        }
    }

    #[test]
    fn features_wait_for_the_last_older_node() {
        for required in 0..=3 {
            let level = FormatLevel::of_required(required);
            assert!(!level.allows(Feature::OneOffRequests), "{required}");
        }
        for required in 4..20 {
            let level = FormatLevel::of_required(required);
            assert!(level.allows(Feature::OneOffRequests), "{required}");
        }
        for feature in [
            Feature::OneOffRequests,
            Feature::LatePolicies,
            Feature::RefusalTrips,
            Feature::AlertsOfV0_2,
        ] {
            assert!(FormatLevel::NEWEST.allows(feature));
            assert!(!FormatLevel::V0_1.allows(feature));
        }
    }

    #[test]
    fn an_upgrade_is_finished_some_time_after_the_last_older_node() {
        let second = |number: u64| Tick(number * 1_000);
        let mut upgrade = UpgradeState::new(8, Span::from_secs(60));
        assert_eq!(upgrade.observe(second(0), 3, 1), UpgradeStep::Wait);
        assert_eq!(upgrade.observe(second(90), 3, 0), UpgradeStep::Wait);
        assert_eq!(upgrade.observe(second(149), 3, 0), UpgradeStep::Wait);
        // An older node has restarted: the wait begins again.
        assert_eq!(upgrade.observe(second(150), 3, 1), UpgradeStep::Wait);
        assert_eq!(upgrade.observe(second(151), 3, 0), UpgradeStep::Wait);
        assert_eq!(upgrade.observe(second(210), 3, 0), UpgradeStep::Wait);
        assert_eq!(upgrade.observe(second(211), 3, 0), UpgradeStep::Finish);
        assert_eq!(upgrade.observe(second(212), 8, 0), UpgradeStep::Finished);
        assert_eq!(upgrade.observe(second(212), 9, 0), UpgradeStep::Finished);
        let mut at_once = UpgradeState::new(8, Span::ZERO);
        assert_eq!(at_once.observe(second(0), 3, 1), UpgradeStep::Wait);
        assert_eq!(at_once.observe(second(0), 3, 0), UpgradeStep::Finish);
    }
}
