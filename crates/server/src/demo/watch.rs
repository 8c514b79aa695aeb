//! Reads the state of the endpoints through the API.

use posthaste_core::lane::TripReason;
use posthaste_core::time::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ledger::Counted;
use super::script::TENANT;
use super::snapshot::{Breaker, Count, DeadLetter, Look};
use super::stage::Receiver;
use crate::cli::failure::Failure;
use crate::cli::remote::ApiCommandError;
use crate::cli::remote::client::{Call, Client};

/// Maximum page size of the API.
const PAGE: usize = 250;

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
pub async fn look(client: &mut Client, receivers: &[Receiver]) -> Result<Vec<Look>, Failure> {
    let mut looks = Vec::with_capacity(receivers.len());
    for receiver in receivers {
        looks.push(look_at(client, receiver).await?);
    }
    for (look, receiver) in looks.iter_mut().zip(receivers) {
        look.counted = receiver.ledger.counted();
    }
    Ok(looks)
}

async fn look_at(client: &mut Client, receiver: &Receiver) -> Result<Look, Failure> {
    let endpoint = &receiver.endpoint;
    let path = format!("/v1/tenants/{TENANT}/endpoints/{endpoint}/health");
    let health: Health = ask(client, path.clone()).await?;
    let breaker = health.breaker.read().ok_or_else(|| unread(&path))?;
    let list = |status| {
        format!("/v1/tenants/{TENANT}/deliveries?endpoint={endpoint}&status={status}&limit={PAGE}")
    };
    let retrying: Page = ask(client, list("retrying")).await?;
    let failed: Page = ask(client, list("failed")).await?;
    Ok(Look {
        role: receiver.role,
        counted: Counted::default(),
        pending: health.pending,
        in_flight: health.in_flight,
        retrying: retrying.count(),
        failures_in_a_row: health.consecutive_failures,
        breaker,
        dead: failed.count(),
        dead_letters: failed.data.into_iter().map(letter).collect(),
    })
}

fn letter(delivery: Delivery) -> DeadLetter {
    DeadLetter {
        delivery: delivery.id,
        event: delivery.event_id,
        reason: delivery.reason.unwrap_or_default(),
        status_code: delivery.last_error.and_then(|error| error.status_code),
    }
}

async fn ask<T: DeserializeOwned>(client: &mut Client, path: String) -> Result<T, Failure> {
    let answer = client.ask(&Call::get(path.clone())).await?;
    serde_json::from_value(answer.value).map_err(|_| unread(&path))
}

fn unread(path: &str) -> Failure {
    ApiCommandError::OutcomeFailed(format!("GET {path} was not answered as the API promises"))
        .into()
}
