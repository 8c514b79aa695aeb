//! Answers of this node to requests of other nodes.
//!
//! [`answer`](OwnerRouter::answer) runs each request on this node's engine, as if its own API had received it. If this
//! node is not the owner, it says so, and the other node asks the next one.

use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::time::Span;
use serde_json::Value;

use super::protocol::{LimitedReport, MAX_IDS_PER_MESSAGE, NodeRequest, NodeResponse, TextId};
use super::{MAX_LIMITED_REPORTED, OwnerRouter};
use crate::EngineError;

impl OwnerRouter {
    /// Answers the request of another node.
    pub async fn answer(&self, request: Value) -> Value {
        let reply = match serde_json::from_value(request) {
            Ok(request) => self.reply(request).await,
            Err(_) => NodeResponse::NotUnderstood,
        };
        serde_json::to_value(reply).expect("a reply is plain data")
    }

    async fn reply(&self, request: NodeRequest) -> NodeResponse {
        match request {
            NodeRequest::SetStatus {
                endpoint: TextId(endpoint),
                status,
                reason,
            } => match self
                .engine
                .set_status(endpoint, status.into(), reason)
                .await
            {
                Ok(()) => NodeResponse::StatusSet,
                Err(error) => error_response(error),
            },
            NodeRequest::Cancel {
                endpoint: TextId(endpoint),
                delivery: TextId(delivery),
            } => match self.engine.cancel(endpoint, delivery).await {
                Ok(outcome) => NodeResponse::Cancelled { outcome },
                Err(error) => error_response(error),
            },
            NodeRequest::ViewLane {
                endpoint: TextId(endpoint),
            } => match self.view_lane_here(endpoint).await {
                Ok((lane, stats)) => NodeResponse::Lane { lane, stats },
                Err(error) => error_response(error),
            },
            NodeRequest::ViewLanes { endpoints } => {
                let endpoints = endpoints.into_iter().take(MAX_IDS_PER_MESSAGE);
                let endpoints = endpoints.map(|TextId(endpoint)| endpoint).collect();
                match self.lanes_here(endpoints).await {
                    Ok(lanes) => NodeResponse::Lanes {
                        lanes: lanes.map(|(id, lane)| (TextId(id), lane)).collect(),
                    },
                    Err(error) => error_response(error),
                }
            }
            NodeRequest::LimitedEndpoints { at_least_ms } => {
                let at_least = Span::from_millis(at_least_ms);
                match self.engine.limited(at_least, MAX_LIMITED_REPORTED).await {
                    Ok(limited) => NodeResponse::LimitedEndpoints {
                        endpoints: limited
                            .iter()
                            .map(|it| (TextId(it.endpoint), LimitedReport::new(it)))
                            .collect(),
                    },
                    Err(error) => error_response(error),
                }
            }
            NodeRequest::InFlightOf { deliveries } => {
                let is_in_flight = |TextId(id): &TextId<DeliveryId>| self.engine.is_in_flight(*id);
                let deliveries = deliveries.into_iter().filter(is_in_flight).collect();
                NodeResponse::Deliveries { deliveries }
            }
            NodeRequest::AllInFlight => {
                let in_flight = self.engine.deliveries_in_flight().into_iter();
                let deliveries = in_flight.take(MAX_IDS_PER_MESSAGE).map(TextId).collect();
                NodeResponse::Deliveries { deliveries }
            }
            NodeRequest::TenantInFlight {
                tenant: TextId(tenant),
            } => match self.engine.tenant_in_flight(tenant).await {
                Ok(attempts) => NodeResponse::TenantInFlight {
                    attempts: attempts as u64,
                },
                Err(error) => error_response(error),
            },
            NodeRequest::HeldAfterFaults => {
                let held = self.engine.quarantined().into_iter();
                NodeResponse::HeldAfterFaults {
                    deliveries: held.take(MAX_IDS_PER_MESSAGE).map(TextId).collect(),
                    count: self.engine.quarantined_count() as u64,
                }
            }
            NodeRequest::Outboxes => NodeResponse::Outboxes {
                unreadable_ms: self
                    .longest_unreadable_outbox_here()
                    .map(|it| it.as_millis()),
            },
            NodeRequest::UnwrittenCounters {} => NodeResponse::UnwrittenCounters {
                flushes: 0,
                minutes: [],
            },
            NodeRequest::RecentAttempts { tenant, others } => {
                let tenant = tenant.map(|TextId(tenant)| tenant);
                let others = others.into_iter().take(MAX_IDS_PER_MESSAGE);
                let others: Vec<EndpointId> = others.map(|TextId(endpoint)| endpoint).collect();
                let recent = self
                    .recent_attempts_here(tenant.as_ref(), &others)
                    .into_iter();
                let endpoints = recent.map(|(endpoint, recent)| (TextId(endpoint), recent));
                NodeResponse::RecentAttempts {
                    endpoints: endpoints.collect(),
                }
            }
        }
    }
}

fn error_response(error: EngineError) -> NodeResponse {
    match error {
        // A node that stops releases all its shards, so the caller must ask the next owner.
        EngineError::NotOwner | EngineError::Stopped => NodeResponse::NotOwner,
        EngineError::Store(error) => NodeResponse::Unable {
            why: error.to_string(),
        },
    }
}
