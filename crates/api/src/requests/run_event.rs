//! The event or request of a run of a schedule.
//!
//! A run passes the same checks, quotas and write queue as a request. The headers of a schedule's request are encrypted for
//! no endpoint in particular ([`HEADERS_SEALED_FOR`]); each run encrypts them for the origin endpoint that it goes to.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::address::Destination;
use posthaste_core::delivery::OneOffRequest;
use posthaste_core::id::EndpointId;
use posthaste_core::schedule::{
    HEADERS_SEALED_FOR, RequestTarget, ScheduleTarget, ScheduledRun, TargetBody,
};
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;
use posthaste_store::{Content, NewEvent, Tenant};

use super::{origin_endpoint, signing_secret};
use crate::App;
use crate::code::Code;
use crate::events::{REQUEST_TYPE, ordering};
use crate::problem::Problem;

impl App {
    /// Returns what a run of a schedule creates. Creates the origin endpoint of a request if it does not exist.
    pub async fn event_of_run(
        &self,
        tenant: &Tenant,
        now: Timestamp,
        target: &ScheduleTarget,
        run: ScheduledRun,
    ) -> Result<NewEvent, Problem> {
        let (event_type, body, ordering_key) = match target {
            ScheduleTarget::Event(it) => (it.event_type.as_str(), &it.body, &it.ordering_key),
            ScheduleTarget::Request(it) => (REQUEST_TYPE, &it.body, &it.ordering_key),
        };
        let event_type: EventType = event_type
            .parse()
            .map_err(|_| Problem::internal(&"a schedule has an invalid event type"))?;
        let mut event = NewEvent {
            ordering: ordering_key.as_deref().map(ordering),
            ..NewEvent::new(tenant.id.clone(), content(event_type, body, run))
        };
        if let ScheduleTarget::Request(target) = target {
            let (endpoint, request) = self.request_of_run(tenant, now, target).await?;
            event.only = Some(endpoint);
            event.request = Some(Arc::new(request));
        }
        Ok(event)
    }

    async fn request_of_run(
        &self,
        tenant: &Tenant,
        now: Timestamp,
        target: &RequestTarget,
    ) -> Result<(EndpointId, OneOffRequest), Problem> {
        let destination = Destination::parse(&target.request.url, &self.settings.egress_rules)
            .map_err(|error| {
                Problem::new(Code::for_destination_error(&error), error.to_string())
            })?;
        let endpoint = origin_endpoint(self, tenant, now, &destination).await?;
        let mut request = target.request.clone();
        if !request.sealed_headers.is_empty() {
            let keys = signing_secret::keys_of(self, tenant).await?;
            let resealed = keys.reseal_headers(
                &tenant.id,
                HEADERS_SEALED_FOR,
                endpoint,
                &request.sealed_headers,
            );
            request.sealed_headers = resealed.map_err(|error| Problem::internal(&error))?;
        }
        Ok((endpoint, request))
    }
}

fn content(event_type: EventType, body: &TargetBody, run: ScheduledRun) -> Arc<Content> {
    Arc::new(Content {
        event_type,
        content_type: body.content_type.clone(),
        payload: Bytes::copy_from_slice(&body.bytes),
        trace: None,
        scheduled_run: Some(run),
    })
}
