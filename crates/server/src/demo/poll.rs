//! Reads the state of the endpoints through the API.

use posthaste_core::lane::TripReason;
use posthaste_core::time::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::receiver::Receiver;
use super::request_counts::RequestCounts;
use super::scenario::TENANT;
use super::snapshot::{Breaker, Count, DeadLetter, EndpointState};
use crate::client::{ApiClient, ApiRequest, ClientError};

/// Maximum page size of the API.
const PAGE_SIZE: usize = 250;

#[derive(Deserialize)]
struct Health {
    breaker: ToldBreaker,
    pending: u64,
    in_flight: u64,
    consecutive_failures: u64,
}

#[derive(Deserialize)]
struct ToldBreaker {
    state: String,
    until: Option<String>,
    reason: Option<TripReason>,
}

impl ToldBreaker {
    fn read(&self) -> Option<Breaker> {
        match (self.state.as_str(), &self.until, self.reason) {
            ("passing", _, _) => Some(Breaker::Passing),
            ("tripped", Some(until), Some(reason)) => Some(Breaker::Tripped {
                until: until.parse::<Timestamp>().ok()?,
                reason,
            }),
            ("probing", _, Some(reason)) => Some(Breaker::Probing { reason }),
            (_, _, _) => None,
        }
    }
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Delivery>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Delivery {
    id: String,
    event_id: String,
    reason: Option<String>,
    last_error: Option<LastError>,
}

#[derive(Deserialize)]
struct LastError {
    status_code: Option<u64>,
}

impl Page {
    fn count(&self) -> Count {
        Count {
            number: self.data.len() as u64,
            or_more: self.next_cursor.is_some(),
        }
    }
}

/// Reads the state of all endpoints, and then all receivers' counts at the same moment, so that arrivals between two
/// snapshots match the time between them.
pub async fn poll(
    client: &mut ApiClient,
    receivers: &[Receiver],
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
    receiver: &Receiver,
) -> Result<EndpointState, ClientError> {
    let endpoint = &receiver.endpoint;
    let path = format!("/v1/tenants/{TENANT}/endpoints/{endpoint}/health");
    let health: Health = get(client, path.clone()).await?;
    let breaker = health.breaker.read().ok_or_else(|| unexpected(&path))?;
    let list = |status| {
        format!(
            "/v1/tenants/{TENANT}/deliveries?endpoint={endpoint}&status={status}&limit={PAGE_SIZE}"
        )
    };
    let retrying: Page = get(client, list("retrying")).await?;
    let failed: Page = get(client, list("failed")).await?;
    Ok(EndpointState {
        kind: receiver.kind,
        counts: RequestCounts::default(),
        pending: health.pending,
        in_flight: health.in_flight,
        retrying: retrying.count(),
        consecutive_failures: health.consecutive_failures,
        breaker,
        dead: failed.count(),
        dead_letters: failed.data.into_iter().map(dead_letter).collect(),
    })
}

fn dead_letter(delivery: Delivery) -> DeadLetter {
    DeadLetter {
        delivery: delivery.id,
        event: delivery.event_id,
        reason: delivery.reason.unwrap_or_default(),
        status_code: delivery.last_error.and_then(|error| error.status_code),
    }
}

async fn get<T: DeserializeOwned>(client: &mut ApiClient, path: String) -> Result<T, ClientError> {
    let answer = client.send(&ApiRequest::get(path.clone())).await?;
    serde_json::from_value(answer.value).map_err(|_| unexpected(&path))
}

fn unexpected(path: &str) -> ClientError {
    ClientError::UnexpectedAnswer(format!("GET {path} was not answered as the API promises"))
}
