//! Answers of this node to requests of other nodes.

use posthaste_core::id::{DeliveryId, EndpointId};
use serde_json::Value;
use tokio::time::timeout;

use super::protocol::{MAX_DELIVERIES_TOLD, NodeRequest, NodeResponse, TextId};
use super::{OwnerRouter, READ_TIMEOUT};
use crate::EngineError;

impl OwnerRouter {
    /// Answers the request of another node.
    pub async fn answer(&self, question: Value) -> Value {
        let reply = match serde_json::from_value(question) {
            Ok(question) => self.reply(question).await,
            Err(_) => NodeResponse::NotUnderstood,
        };
        serde_json::to_value(reply).expect("a reply is plain data")
    }

    async fn reply(&self, question: NodeRequest) -> NodeResponse {
        match question {
            NodeRequest::Stand {
                endpoint: TextId(endpoint),
                standing,
                reason,
            } => match self.engine.stand(endpoint, standing.into(), reason).await {
                Ok(()) => NodeResponse::Stands,
                Err(error) => unable(error),
            },
            NodeRequest::Cancel {
                endpoint: TextId(endpoint),
                delivery: TextId(delivery),
            } => match self.engine.cancel(endpoint, delivery).await {
                Ok(cancelled) => NodeResponse::Cancelled {
                    outcome: cancelled.into(),
                },
                Err(error) => unable(error),
            },
            NodeRequest::Look {
                endpoint: TextId(endpoint),
            } => match self.look_here(endpoint).await {
                Ok((lane, figures)) => NodeResponse::Lane {
                    lane,
                    figures: figures.into(),
                },
                Err(error) => unable(error),
            },
            NodeRequest::Aloft { deliveries } => {
                let aloft = |TextId(id): &TextId<DeliveryId>| self.engine.is_in_flight(*id);
                let deliveries = deliveries.into_iter().filter(aloft).collect();
                NodeResponse::Deliveries { deliveries }
            }
            NodeRequest::Flights => {
                let flights = self.engine.flights().into_iter();
                let deliveries = flights.take(MAX_DELIVERIES_TOLD).map(TextId).collect();
                NodeResponse::Deliveries { deliveries }
            }
            NodeRequest::UnderWay {
                tenant: TextId(tenant),
            } => match self.engine.under_way(tenant).await {
                Ok(attempts) => NodeResponse::UnderWay {
                    attempts: attempts as u64,
                },
                Err(error) => unable(error),
            },
            NodeRequest::Pending { of } => {
                match timeout(READ_TIMEOUT, self.observe.still()).await {
                    Ok(still) => NodeResponse::Pending {
                        flushes: still.flushes(),
                        minutes: still.pending(&of.into()),
                    },
                    Err(_) => NodeResponse::Unable {
                        why: "figures are being written".to_owned(),
                    },
                }
            }
            NodeRequest::Lately { tenant, others } => {
                let tenant = tenant.map(|TextId(tenant)| tenant);
                let others = others.into_iter().take(MAX_DELIVERIES_TOLD);
                let others: Vec<EndpointId> = others.map(|TextId(endpoint)| endpoint).collect();
                let lately = self.lately_here(tenant.as_ref(), &others).into_iter();
                let endpoints = lately.map(|(endpoint, lately)| (TextId(endpoint), lately));
                NodeResponse::Lately {
                    endpoints: endpoints.collect(),
                }
            }
        }
    }
}

fn unable(error: EngineError) -> NodeResponse {
    match error {
        // A node that stops releases all its shards, so the caller must ask the next owner.
        EngineError::NotOwner | EngineError::Stopped => NodeResponse::Elsewhere,
        EngineError::Store(error) => NodeResponse::Unable {
            why: error.to_string(),
        },
    }
}
