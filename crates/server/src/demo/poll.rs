//! Reads the state of the endpoints through the API.

use posthaste_api::resources::{
    BreakerState, DeliverySummary, EndpointBreaker, EndpointHealth, ListPage,
};
use posthaste_core::delivery::DeadReason;
use posthaste_core::time::Timestamp;
use serde::de::DeserializeOwned;

use super::receiver::DemoReceiver;
use super::request_counts::RequestCounts;
use super::scenario::TENANT;
use super::snapshot::{Breaker, Count, DeadLetter, EndpointState};
use crate::client::{ApiClient, ApiRequest, ClientError};

/// Maximum page size of the API.
const PAGE_SIZE: usize = 250;

/// Reads a breaker; `None` if its fields contradict its state.
fn read_breaker(breaker: &EndpointBreaker) -> Option<Breaker> {
    match (breaker.state, &breaker.until, breaker.reason) {
        (BreakerState::Passing, _, _) => Some(Breaker::Passing),
        (BreakerState::Tripped, Some(until), Some(reason)) => Some(Breaker::Tripped {
            until: until.parse::<Timestamp>().ok()?,
            reason,
        }),
        (BreakerState::Probing, _, Some(reason)) => Some(Breaker::Probing { reason }),
        (BreakerState::Tripped | BreakerState::Probing, _, _) => None,
    }
}

fn count(page: &ListPage<DeliverySummary>) -> Count {
    Count {
        number: page.data.len() as u64,
        or_more: page.next_cursor.is_some(),
    }
}

/// Reads the state of all endpoints, and then all receivers' counts at the same moment, so that arrivals between two
/// snapshots match the time between them.
pub async fn poll(
    client: &mut ApiClient,
    receivers: &[DemoReceiver],
) -> Result<Vec<EndpointState>, ClientError> {
    let mut states = Vec::with_capacity(receivers.len());
    for receiver in receivers {
        states.push(poll_endpoint(client, receiver).await?);
    }
    for (state, receiver) in states.iter_mut().zip(receivers) {
        state.counts = receiver.counter.counts();
    }
    Ok(states)
}

async fn poll_endpoint(
    client: &mut ApiClient,
    receiver: &DemoReceiver,
) -> Result<EndpointState, ClientError> {
    let endpoint = &receiver.endpoint;
    let path = format!("/v1/tenants/{TENANT}/endpoints/{endpoint}/health");
    let health: EndpointHealth = get(client, path.clone()).await?;
    let breaker = read_breaker(&health.breaker).ok_or_else(|| unexpected(&path))?;
    let list = |status| {
        format!(
            "/v1/tenants/{TENANT}/deliveries?endpoint={endpoint}&status={status}&limit={PAGE_SIZE}"
        )
    };
    let retrying: ListPage<DeliverySummary> = get(client, list("retrying")).await?;
    let failed: ListPage<DeliverySummary> = get(client, list("failed")).await?;
    Ok(EndpointState {
        kind: receiver.kind,
        counts: RequestCounts::default(),
        pending: health.pending,
        in_flight: u64::from(health.in_flight),
        retrying: count(&retrying),
        consecutive_failures: u64::from(health.consecutive_failures),
        breaker,
        dead: count(&failed),
        dead_letters: failed.data.into_iter().map(dead_letter).collect(),
    })
}

fn dead_letter(delivery: DeliverySummary) -> DeadLetter {
    DeadLetter {
        delivery: delivery.id,
        event: delivery.event_id,
        reason: delivery.reason.map_or("", DeadReason::name).to_owned(),
        status_code: delivery
            .last_error
            .and_then(|error| error.status_code)
            .map(u64::from),
    }
}

async fn get<T: DeserializeOwned>(client: &mut ApiClient, path: String) -> Result<T, ClientError> {
    let answer = client.send(&ApiRequest::get(path.clone())).await?;
    serde_json::from_value(answer.value).map_err(|_| unexpected(&path))
}

fn unexpected(path: &str) -> ClientError {
    ClientError::UnexpectedAnswer(format!("unexpected response to GET {path}"))
}
