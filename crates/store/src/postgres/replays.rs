//! Replays.

use posthaste_core::id::{ReplayId, TenantId};
use posthaste_core::time::Timestamp;

use super::fault::Fault;
use super::link::Link;
use super::scene::{Scene, missing};
use crate::{Page, PageRequest, Replay, ReplayFilter, ReplayStep};

/// What a replay will send.
pub(super) struct Plan {
    targets: Vec<u8>,
}

impl Plan {
    /// How many bytes it brings.
    pub(super) fn bytes(&self) -> usize {
        self.targets.len()
    }
}

/// What a replay will send: looked for by a reader, since it may take long.
pub(super) async fn plan(
    _link: &Link,
    _tenant: &TenantId,
    _filter: &ReplayFilter,
) -> Result<Plan, Fault> {
    missing()
}

/// Begins a replay.
pub(super) async fn create(
    _scene: &mut Scene,
    _now: Timestamp,
    _tenant: &TenantId,
    _filter: &ReplayFilter,
    _plan: &Plan,
) -> Result<Replay, Fault> {
    missing()
}

/// Sets the next of a running replay going.
pub(super) async fn step(
    _scene: &mut Scene,
    _now: Timestamp,
    _replay: ReplayId,
    _limit: usize,
) -> Result<Option<ReplayStep>, Fault> {
    missing()
}

/// Stops a replay.
pub(super) async fn cancel(
    _scene: &mut Scene,
    _now: Timestamp,
    _tenant: &TenantId,
    _replay: ReplayId,
) -> Result<Option<Replay>, Fault> {
    missing()
}

/// A replay.
pub(super) async fn replay(
    _link: &Link,
    _tenant: &TenantId,
    _replay: ReplayId,
) -> Result<Option<Replay>, Fault> {
    missing()
}

/// Replays of a tenant.
pub(super) async fn replays(
    _link: &Link,
    _tenant: &TenantId,
    _page: PageRequest<ReplayId>,
) -> Result<Page<Replay, ReplayId>, Fault> {
    missing()
}

/// Replays that are running.
pub(super) async fn running(_link: &Link) -> Result<Vec<ReplayId>, Fault> {
    missing()
}
