//! Endpoints.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::{Health, Standing};

use super::fault::Fault;
use super::link::Link;
use super::scene::{Scene, missing};
use crate::{DisabledReason, Endpoint, EndpointRow, Insertion, Page, PageRequest, Replaced};

/// Adds an endpoint.
pub(super) async fn create(
    _scene: &mut Scene,
    _endpoint: &Endpoint,
    _at_most: u32,
) -> Result<Insertion, Fault> {
    missing()
}

/// Changes how an endpoint is configured.
pub(super) async fn replace(_scene: &mut Scene, _endpoint: &Endpoint) -> Result<Replaced, Fault> {
    missing()
}

/// An endpoint, deleted or not.
pub(super) async fn endpoint(
    _link: &Link,
    _endpoint: EndpointId,
) -> Result<Option<EndpointRow>, Fault> {
    missing()
}

/// The endpoints of a tenant that are not deleted.
pub(super) async fn endpoints(
    _link: &Link,
    _tenant: &TenantId,
    _page: PageRequest<EndpointId>,
) -> Result<Page<EndpointRow, EndpointId>, Fault> {
    missing()
}

/// Writes down how an endpoint stands, and its health if that is newer. Owns the directory itself.
pub(super) async fn set_standing(
    _scene: &mut Scene,
    _endpoint: EndpointId,
    _standing: Standing,
    _reason: Option<DisabledReason>,
    _health: Option<&Health>,
) -> Result<bool, Fault> {
    missing()
}

/// The same for whoever owns the directory already; a deleted endpoint stays deleted.
pub(super) async fn stand(
    _scene: &mut Scene,
    _endpoint: EndpointId,
    _standing: Standing,
    _reason: Option<DisabledReason>,
) -> Result<(), Fault> {
    missing()
}
