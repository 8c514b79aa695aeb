//! Scenario `door`: the cost of the egress client's rules, limits and connection pool.
//!
//! Raw connections and the egress client take turns in sending the same signed requests, with the same concurrency,
//! to the same receiver. One thread does all the sending, so its processor time is exactly the sender's.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::{BodyExt, Full};
use posthaste_charts::format;
use posthaste_core::address::{Destination, EgressRules};
use posthaste_core::sign::{SharedSecret, SigningKey, SigningKeys};
use posthaste_egress::{Client, ClientSettings, MAX_TIME_LIMIT, PoolKey, Request, trusted_client};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use crate::error::BenchError;
use crate::payload;
use crate::receiver::Receivers;
use crate::recorder::Recorder;
use crate::report::{ScenarioResult, number, row};
use crate::settings::Settings;
use crate::statistics::{median, ratio};

/// Default number of requests of each side in a round.
const REQUESTS: usize = 100_000;

/// Measurements of one side in one round.
#[derive(Clone, Copy, Debug, Serialize)]
struct Side {
    requests_per_second: f64,
    cpu_us_per_request: f64,
}

/// The requests that both sides send.
struct RequestSource {
    keys: SigningKeys,
    payload_bytes: usize,
    next: AtomicUsize,
    end: usize,
}

impl RequestSource {
    /// Returns headers and body of the next request, if there is one.
    fn next(&self) -> Option<(HeaderMap, Bytes)> {
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        if sequence >= self.end {
            return None;
        }
        let mut body = String::with_capacity(self.payload_bytes);
        payload::write(&mut body, sequence, self.payload_bytes);
        let id = format!("dlv_{sequence:026}");
        let seconds = unix_seconds();
        let signature = self.keys.header(&id, seconds, body.as_bytes());
        let text = |value: &str| HeaderValue::from_str(value).expect("visible ASCII");
        let mut headers = HeaderMap::with_capacity(12);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("posthaste"));
        headers.insert("webhook-id", text(&id));
        headers.insert("webhook-timestamp", HeaderValue::from(seconds));
        headers.insert("webhook-signature", text(&signature));
        Some((headers, Bytes::from(body)))
    }
}

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let requests = settings.events.unwrap_or(REQUESTS);
    let connections = settings.in_flight();
    let mut rounds = Vec::new();
    for _ in 0..settings.rounds {
        let raw = round(settings, requests, connections, Kind::Raw).await?;
        let egress = round(settings, requests, connections, Kind::Egress).await?;
        rounds.push((raw, egress));
    }
    let of = |pick: fn(&(Side, Side)) -> f64| median(rounds.iter().map(pick));
    let speed =
        |(raw, egress): &(Side, Side)| ratio(egress.requests_per_second, raw.requests_per_second);
    let cost =
        |(raw, egress): &(Side, Side)| ratio(egress.cpu_us_per_request, raw.cpu_us_per_request);
    let ratios: Vec<f64> = rounds.iter().filter_map(speed).collect();
    let middle = median(ratios.iter().copied());
    let cost = median(rounds.iter().filter_map(cost));
    let line =
        |name: &str, rate: Option<f64>, cpu: Option<f64>| row(&[name, &number(rate), &number(cpu)]);
    Ok(ScenarioResult {
        name: "door",
        setting: format!(
            "{} signed requests of {} bytes over {connections} kept connections, {} rounds in turns",
            format::count(requests as u64),
            settings.payload_bytes,
            settings.rounds,
        ),
        table: vec![
            row(&["", "requests/s", "CPU µs each"]),
            line(
                "raw connections",
                of(|(raw, _)| raw.requests_per_second),
                of(|(raw, _)| raw.cpu_us_per_request),
            ),
            line(
                "hardened client",
                of(|(_, egress)| egress.requests_per_second),
                of(|(_, egress)| egress.cpu_us_per_request),
            ),
            line("ratio", middle, cost),
        ],
        notes: vec![format!(
            "The hardened client's speed as a share of the raw one's, in each round: {}.",
            ratios
                .iter()
                .map(|ratio| format!("{ratio:.2}"))
                .collect::<Vec<_>>()
                .join(", ")
        )],
        document: json!({
            "requests": requests,
            "connections": connections,
            "rounds": rounds.iter().map(|(raw, egress)| json!({"raw": raw, "door": egress})).collect::<Vec<_>>(),
            "ratio": middle,
            "cpu_ratio": cost,
        }),
    })
}

#[derive(Clone, Copy)]
enum Kind {
    Raw,
    Egress,
}

async fn round(
    settings: &Settings,
    requests: usize,
    connections: usize,
    kind: Kind,
) -> Result<Side, BenchError> {
    let recorder = Arc::new(Recorder::new(1, requests));
    let receivers = Receivers::start(Arc::clone(&recorder))?;
    let secret = SharedSecret::from_random([7; 24]);
    receivers.trust(0, secret.reveal())?;
    let source = Arc::new(RequestSource {
        keys: SigningKeys::new(vec![SigningKey::Shared(secret)]).expect("one key"),
        payload_bytes: settings.payload_bytes,
        next: AtomicUsize::new(0),
        end: requests,
    });
    let (began, cpu) = (Instant::now(), thread_cpu()?);
    match kind {
        Kind::Raw => send_raw(&receivers, connections, &source).await?,
        Kind::Egress => send_hardened(&receivers, connections, &source).await?,
    }
    let (took, cpu) = (began.elapsed(), thread_cpu()?.saturating_sub(cpu));
    recorder.check(0..1, 0..requests)?;
    let each = |time: Duration| time.as_secs_f64() / requests as f64;
    Ok(Side {
        requests_per_second: 1.0 / each(took),
        cpu_us_per_request: each(cpu) * 1e6,
    })
}

/// Sends over raw connections, one request at a time on each.
async fn send_raw(
    receivers: &Receivers,
    connections: usize,
    source: &Arc<RequestSource>,
) -> Result<(), BenchError> {
    let address = receivers.address();
    let host = HeaderValue::from_str(&address.to_string()).expect("visible ASCII");
    let mut senders = JoinSet::new();
    for _ in 0..connections {
        let (source, host) = (Arc::clone(source), host.clone());
        senders.spawn(async move {
            let mut sender = trusted_client::dial(address).await?;
            while let Some((mut headers, body)) = source.next() {
                headers.insert(HOST, host.clone());
                let mut request = http::Request::new(Full::new(body));
                *request.method_mut() = Method::POST;
                *request.uri_mut() = http::Uri::from_static("/0");
                *request.headers_mut() = headers;
                sender.ready().await.map_err(io::Error::other)?;
                let response = sender.send_request(request).await;
                let body = response.map_err(io::Error::other)?.into_body();
                body.collect().await.map_err(io::Error::other)?;
            }
            Ok(())
        });
    }
    all_sent(senders).await
}

/// Sends through the egress client.
async fn send_hardened(
    receivers: &Receivers,
    connections: usize,
    source: &Arc<RequestSource>,
) -> Result<(), BenchError> {
    let rules = EgressRules {
        allow_networks: vec!["127.0.0.0/8".parse().expect("a network")],
        allow_http: true,
        ..EgressRules::default()
    };
    let to = Destination::parse(&receivers.url(0), &rules)
        .map_err(|refusal| BenchError::Broken(refusal.to_string()))?;
    let client = Client::new(ClientSettings {
        rules,
        max_idle_per_key: connections,
        ..ClientSettings::default()
    });
    let pool_key = PoolKey::new("bench");
    let mut senders = JoinSet::new();
    for _ in 0..connections {
        let (source, client) = (Arc::clone(source), client.clone());
        let (to, pool_key) = (to.clone(), pool_key.clone());
        senders.spawn(async move {
            while let Some((headers, body)) = source.next() {
                let request = Request {
                    pool_key: pool_key.clone(),
                    destination: to.clone(),
                    method: Method::POST,
                    headers,
                    body,
                    identity: None,
                    keep_bytes: None,
                    time_limit: MAX_TIME_LIMIT,
                    permit: None,
                };
                let report = client.send(request).await.map_err(io::Error::other)?;
                if let Some(send_error) = report.send_error {
                    return Err(io::Error::other(send_error));
                }
            }
            Ok(())
        });
    }
    all_sent(senders).await
}

async fn all_sent(mut senders: JoinSet<io::Result<()>>) -> Result<(), BenchError> {
    while let Some(ended) = senders.join_next().await {
        ended
            .map_err(io::Error::other)
            .and_then(|sent| sent)
            .map_err(BenchError::machine("a request could not be sent"))?;
    }
    Ok(())
}

fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Returns the processor time of this thread, which does all the sending.
fn thread_cpu() -> Result<Duration, BenchError> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat");
    let stat = stat.map_err(BenchError::machine(
        "cannot read the processor time of a thread",
    ))?;
    let nanos = stat
        .split_whitespace()
        .next()
        .and_then(|first| first.parse().ok());
    nanos
        .map(Duration::from_nanos)
        .ok_or_else(|| BenchError::Broken("/proc is not as expected".to_owned()))
}
