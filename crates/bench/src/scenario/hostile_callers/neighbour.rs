//! The neighbour: a tenant that sends events at a steady rate while others misbehave.
//!
//! [`Neighbour`] measures how long each of its requests takes, from the time it was due until its response, so that a
//! stalled server cannot hide behind requests that were never sent. Refusals are counted and do not end the run. It also
//! asks for `/healthz` on new connections, as a supervisor does.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use posthaste_egress::trusted_client;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until, timeout};

use crate::payload;
use crate::producer::ApiTarget;
use crate::statistics::Percentiles;

/// Number of connections. More requests than this are never outstanding.
const CONNECTIONS: usize = 32;
/// Maximum time to wait for a response. Counted as this long.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Interval between two probes.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time to wait for a probe, as supervisors do.
const MAX_PROBE: Duration = Duration::from_secs(1);

/// A tenant that sends events at a steady rate.
#[derive(Clone)]
pub struct Neighbour {
    /// The API with the key of the tenant.
    pub target: ApiTarget,
    /// Events per second.
    pub per_second: f64,
    /// Length of each payload, in bytes.
    pub payload_bytes: usize,
}

/// Measurements of a neighbour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NeighbourResult {
    /// Time from when a request was due until its response.
    pub accept_latency_ms: Option<Percentiles>,
    /// The longest of these times.
    pub slowest_ms: f64,
    /// Requests that were sent.
    pub requests: u64,
    /// Requests that were not answered 202.
    pub refused: u64,
    /// Probes of `/healthz`.
    pub probes: u64,
    /// Probes that were not answered 200 within a second.
    pub failed_probes: u64,
}

/// One answered request: how long it took, and whether the event was accepted.
type Sample = (Duration, bool);

impl Neighbour {
    /// Sends events for this long and measures.
    pub async fn measure(&self, duration: Duration) -> NeighbourResult {
        let (samples, mut received) = mpsc::unbounded_channel();
        let start = Instant::now();
        let end = start + duration;
        let mut tasks = JoinSet::new();
        for connection in 0..CONNECTIONS {
            let (neighbour, samples) = (self.clone(), samples.clone());
            tasks.spawn(async move { neighbour.send(connection, start..end, &samples).await });
        }
        drop(samples);
        let (probes, failed_probes) = probe_until(self.target.address, end).await;
        tasks.join_all().await;
        let mut nanos = Vec::new();
        let mut refused = 0;
        while let Some((took, is_accepted)) = received.recv().await {
            nanos.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            refused += u64::from(!is_accepted);
        }
        NeighbourResult {
            slowest_ms: nanos.iter().max().map_or(0.0, |most| *most as f64 / 1e6),
            requests: nanos.len() as u64,
            accept_latency_ms: Percentiles::of_nanos(nanos),
            refused,
            probes,
            failed_probes,
        }
    }

    /// Sends every [`CONNECTIONS`]th event on one connection, which is opened again after an error.
    async fn send(
        &self,
        first: usize,
        times: std::ops::Range<Instant>,
        samples: &mpsc::UnboundedSender<Sample>,
    ) {
        let mut connection = None;
        for number in (first..).step_by(CONNECTIONS) {
            let due_at = times.start + Duration::from_secs_f64(number as f64 / self.per_second);
            if due_at >= times.end {
                return;
            }
            sleep_until(due_at).await;
            let exchange = timeout(MAX_WAIT, self.post(&mut connection, number));
            let status = exchange.await.ok().flatten();
            if status.is_none() {
                connection = None;
            }
            // The receiver is only dropped after all samples were received.
            let _ = samples.send((due_at.elapsed(), status == Some(StatusCode::ACCEPTED)));
        }
    }

    /// Sends one event. Returns the status of the response, or `None` if there was none.
    async fn post(
        &self,
        connection: &mut Option<hyper::client::conn::http1::SendRequest<Full<Bytes>>>,
        number: usize,
    ) -> Option<StatusCode> {
        let sender = match connection {
            Some(sender) => sender,
            None => connection.insert(trusted_client::dial(self.target.address).await.ok()?),
        };
        let body = payload::event("bench.neighbour", number, self.payload_bytes);
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("/v1/tenants/{}/events", self.target.tenant))
            .header(HOST, self.target.address.to_string())
            .header(AUTHORIZATION, format!("Bearer {}", self.target.key))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .ok()?;
        sender.ready().await.ok()?;
        let response = sender.send_request(request).await.ok()?;
        let status = response.status();
        response.into_body().collect().await.ok()?;
        Some(status)
    }
}

/// Asks for `/healthz` on new connections until `end`. Returns the numbers of probes and of failed ones.
async fn probe_until(address: SocketAddr, end: Instant) -> (u64, u64) {
    let mut ticks = interval(PROBE_INTERVAL);
    let (mut probes, mut failed) = (0, 0);
    while ticks.tick().await < end {
        let is_healthy = timeout(MAX_PROBE, probe(address)).await.ok().flatten();
        probes += 1;
        failed += u64::from(is_healthy != Some(StatusCode::OK));
    }
    (probes, failed)
}

async fn probe(address: SocketAddr) -> Option<StatusCode> {
    let mut sender = trusted_client::dial(address).await.ok()?;
    let request = Request::builder()
        .uri("/healthz")
        .header(HOST, address.to_string())
        .body(Full::new(Bytes::new()))
        .ok()?;
    let response = sender.send_request(request).await.ok()?;
    Some(response.status())
}
