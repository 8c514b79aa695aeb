//! The event or request of a run of a schedule.
//!
//! A run passes the same checks, quotas and write queue as a request. The headers of a schedule's request are encrypted for
//! no endpoint in particular ([`HEADERS_SEALED_FOR`]); each run encrypts them for the origin endpoint that it goes to.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::address::Destination;
use posthaste_core::delivery::OneOffRequest;
use posthaste_core::id::EndpointId;
use posthaste_core::schedule::{HEADERS_SEALED_FOR, RequestTarget, ScheduleTarget, ScheduledRun};
use posthaste_core::subscription::EventType;
use posthaste_core::time::Timestamp;
use posthaste_store::{Content, NewEvent, Tenant};

use super::signing_secret::NoKeys;
use super::{origin_endpoint, signing_secret};
use crate::App;
use crate::code::Code;
use crate::events::{REQUEST_TYPE, ordering};
use crate::problem::Problem;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::api::schedules";

impl App {
    /// Returns what a run of a schedule creates, with a copy of the target's body in `payload`, which several runs share.
    /// Creates the origin endpoint of a request if it does not exist.
    pub async fn event_of_run(
        &self,
        tenant: &Tenant,
        now: Timestamp,
        target: &ScheduleTarget,
        payload: Bytes,
        run: ScheduledRun,
    ) -> Result<NewEvent, Problem> {
        let (event_type, ordering_key) = match target {
            ScheduleTarget::Event(it) => (it.event_type.as_str(), &it.ordering_key),
            ScheduleTarget::Request(it) => (REQUEST_TYPE, &it.ordering_key),
        };
        let event_type: EventType = event_type.parse().map_err(|_| {
            Problem::new(Code::Invalid, "The event type of the schedule is invalid.")
        })?;
        let content = Content {
            content_type: target.body().content_type.clone(),
            scheduled_run: Some(run),
            ..Content::new(event_type, payload)
        };
        let mut event = NewEvent {
            ordering: ordering_key.as_deref().map(ordering),
            ..NewEvent::new(tenant.id.clone(), content)
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
        // Damaged keys stay damaged, so the run ends. Keys that another node can read are waited for.
        let no_keys = |error: NoKeys| match error {
            NoKeys::Damaged(error) => unreadable(tenant, &error),
            NoKeys::OtherMasterKey(_) | NoKeys::Problem(_) => error.into(),
        };
        let endpoint = origin_endpoint(self, tenant, now, &destination)
            .await
            .map_err(no_keys)?;
        let mut request = target.request.clone();
        if !request.sealed_headers.is_empty() {
            let keys = signing_secret::keys_of(self, tenant).await;
            let keys = keys.map_err(no_keys)?;
            let resealed = keys.reseal_headers(
                &tenant.id,
                HEADERS_SEALED_FOR,
                endpoint,
                &request.sealed_headers,
            );
            request.sealed_headers = resealed.map_err(|error| unreadable(tenant, &error))?;
        }
        Ok((endpoint, request))
    }
}

fn unreadable(tenant: &Tenant, error: &dyn std::fmt::Display) -> Problem {
    tracing::error!(target: LOG_TARGET, tenant = %tenant.id, %error, "the headers of a schedule's request cannot be decrypted");
    let detail = "The headers of the schedule's request cannot be decrypted.";
    Problem::new(Code::UnreadableHeaders, detail)
}
