//! Answers of this node to requests of other nodes.

use posthaste_core::id::{DeliveryId, EndpointId};
use serde_json::Value;
use tokio::time::timeout;

use super::question::{MAX_DELIVERIES_TOLD, Named, Question, Reply};
use super::{Switchboard, TELLING};
use crate::engine::EngineError;

impl Switchboard {
    /// Answers the request of another node.
    pub async fn answer(&self, question: Value) -> Value {
        let reply = match serde_json::from_value(question) {
            Ok(question) => self.reply(question).await,
            Err(_) => Reply::NotUnderstood,
        };
        serde_json::to_value(reply).expect("a reply is plain data")
    }

    async fn reply(&self, question: Question) -> Reply {
        match question {
            Question::Stand {
                endpoint: Named(endpoint),
                standing,
                reason,
            } => match self.engine.stand(endpoint, standing.into(), reason).await {
                Ok(()) => Reply::Stands,
                Err(error) => unable(error),
            },
            Question::Cancel {
                endpoint: Named(endpoint),
                delivery: Named(delivery),
            } => match self.engine.cancel(endpoint, delivery).await {
                Ok(cancelled) => Reply::Cancelled {
                    outcome: cancelled.into(),
                },
                Err(error) => unable(error),
            },
            Question::Look {
                endpoint: Named(endpoint),
            } => match self.look_here(endpoint).await {
                Ok((lane, figures)) => Reply::Lane {
                    lane,
                    figures: figures.into(),
                },
                Err(error) => unable(error),
            },
            Question::Aloft { deliveries } => {
                let aloft = |Named(id): &Named<DeliveryId>| self.engine.is_in_flight(*id);
                let deliveries = deliveries.into_iter().filter(aloft).collect();
                Reply::Deliveries { deliveries }
            }
            Question::Flights => {
                let flights = self.engine.flights().into_iter();
                let deliveries = flights.take(MAX_DELIVERIES_TOLD).map(Named).collect();
                Reply::Deliveries { deliveries }
            }
            Question::UnderWay {
                tenant: Named(tenant),
            } => match self.engine.under_way(tenant).await {
                Ok(attempts) => Reply::UnderWay {
                    attempts: attempts as u64,
                },
                Err(error) => unable(error),
            },
            Question::Pending { of } => match timeout(TELLING, self.observe.still()).await {
                Ok(still) => Reply::Pending {
                    flushes: still.flushes(),
                    minutes: still.pending(&of.into()),
                },
                Err(_) => Reply::Unable {
                    why: "figures are being written".to_owned(),
                },
            },
            Question::Lately { tenant, others } => {
                let tenant = tenant.map(|Named(tenant)| tenant);
                let others = others.into_iter().take(MAX_DELIVERIES_TOLD);
                let others: Vec<EndpointId> = others.map(|Named(endpoint)| endpoint).collect();
                let lately = self.lately_here(tenant.as_ref(), &others).into_iter();
                let endpoints = lately.map(|(endpoint, lately)| (Named(endpoint), lately));
                Reply::Lately {
                    endpoints: endpoints.collect(),
                }
            }
        }
    }
}

fn unable(error: EngineError) -> Reply {
    match error {
        // A node that stops releases all its shards, so the caller must ask the next owner.
        EngineError::Elsewhere | EngineError::Stopped => Reply::Elsewhere,
        EngineError::Store(error) => Reply::Unable {
            why: error.to_string(),
        },
    }
}
