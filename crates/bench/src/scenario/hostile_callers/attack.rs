//! The attacks: callers with a tenant key, or none, that try to stall the server for everyone else.
//!
//! They come from an address of their own ([`SOURCE`]), so that limits per peer do not apply to the neighbour too. Every
//! attack runs until it is dropped, with a fixed number of connections and pauses after refusals.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use posthaste_egress::trusted_client;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::producer::ApiTarget;

/// The address that attacks come from.
pub const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Number of endpoints of the hostile tenant.
pub const ENDPOINTS: usize = 1_000;
/// Number of endpoints of the hostile tenant in short runs.
pub const SHORT_ENDPOINTS: usize = 20;
/// Events of a request that makes ten thousand deliveries.
const LARGE_EVENTS: usize = 10;
/// Events of a request that would make a million deliveries.
const EXCESSIVE_EVENTS: usize = 1_000;
/// Connections that send batches.
const BATCH_CONNECTIONS: usize = 6;
/// Connections that never read.
const UNREAD_CONNECTIONS: usize = 200;
/// Requests written at once by a connection that never reads.
const PIPELINED: usize = 100;
/// Connections that withhold the end of a body.
const UNFINISHED_CONNECTIONS: usize = 100;
/// Announced length of an unfinished body.
const UNFINISHED_BYTES: usize = 16 << 20;
/// Pause before a connection is opened again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a refused request.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);
/// Time without progress after which a writer waits.
const WRITE_STALL: Duration = Duration::from_millis(200);

/// The kinds of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Attack {
    /// Nothing. The others are compared with it.
    Quiet,
    /// Batches of ten events to a thousand endpoints, from six connections.
    LargeBatches,
    /// Batches of a thousand events to a thousand endpoints, from six connections.
    ExcessiveBatches,
    /// Connections that pipeline requests and never read a response.
    UnreadResponses,
    /// Connections that announce large bodies and withhold the end.
    UnfinishedBodies,
    /// A tenant with many deliveries is deleted.
    TenantDeletion,
}

impl Attack {
    /// All attacks, in the order in which they are measured.
    pub const ALL: [Attack; 6] = [
        Attack::Quiet,
        Attack::LargeBatches,
        Attack::ExcessiveBatches,
        Attack::UnreadResponses,
        Attack::UnfinishedBodies,
        Attack::TenantDeletion,
    ];

    /// Returns its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Attack::Quiet => "quiet",
            Attack::LargeBatches => "10 events × 1,000 endpoints, 6 at once",
            Attack::ExcessiveBatches => "1,000 events × 1,000 endpoints, 6 at once",
            Attack::UnreadResponses => "200 connections that never read",
            Attack::UnfinishedBodies => "100 bodies of 16 MiB without end",
            Attack::TenantDeletion => "deletion of a large tenant",
        }
    }
}

/// The answers that the attackers received.
#[derive(Debug, Default)]
pub struct AttackCounts {
    /// Requests that were accepted.
    pub accepted: AtomicU64,
    /// Requests that were refused.
    pub refused: AtomicU64,
}

/// Attacks until it is dropped. `hostile` is the API with the key of the hostile tenant, `deletion` that of the admin
/// with the tenant to delete.
pub async fn run(
    attack: Attack,
    hostile: ApiTarget,
    deletion: ApiTarget,
    counts: Arc<AttackCounts>,
) {
    let mut tasks = JoinSet::new();
    match attack {
        Attack::Quiet => {}
        Attack::LargeBatches => spawn_batches(&mut tasks, &hostile, LARGE_EVENTS, &counts),
        Attack::ExcessiveBatches => spawn_batches(&mut tasks, &hostile, EXCESSIVE_EVENTS, &counts),
        Attack::UnreadResponses => {
            for _ in 0..UNREAD_CONNECTIONS {
                tasks.spawn(never_read(hostile.clone()));
            }
        }
        Attack::UnfinishedBodies => {
            for _ in 0..UNFINISHED_CONNECTIONS {
                tasks.spawn(withhold_end(hostile.clone(), Arc::clone(&counts)));
            }
        }
        Attack::TenantDeletion => {
            tasks.spawn(delete_tenant(deletion, counts));
        }
    }
    tasks.join_all().await;
    std::future::pending::<()>().await;
}

fn spawn_batches(
    tasks: &mut JoinSet<()>,
    hostile: &ApiTarget,
    events: usize,
    counts: &Arc<AttackCounts>,
) {
    for _ in 0..BATCH_CONNECTIONS {
        tasks.spawn(send_batches(hostile.clone(), events, Arc::clone(counts)));
    }
}

fn request(target: &ApiTarget, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, target.address.to_string())
        .header(AUTHORIZATION, format!("Bearer {}", target.key))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .expect("the parts of the request are valid")
}

/// Returns a batch of events with the smallest possible payload.
fn batch(events: usize) -> Bytes {
    let event = r#"{"type":"bench.hostile","payload":1}"#;
    format!("[{}]", vec![event; events].join(",")).into()
}

/// Sends the same batch again and again on one connection.
async fn send_batches(target: ApiTarget, events: usize, counts: Arc<AttackCounts>) {
    let body = batch(events);
    let path = format!("/v1/tenants/{}/events/batch", target.tenant);
    loop {
        let Ok(mut sender) = trusted_client::dial_from(target.address, Some(SOURCE)).await else {
            sleep(RECONNECT_PAUSE).await;
            continue;
        };
        while sender.ready().await.is_ok() {
            let asked = request(&target, Method::POST, &path, body.clone());
            let Ok(response) = sender.send_request(asked).await else {
                break;
            };
            let is_accepted = response.status().is_success();
            if response.into_body().collect().await.is_err() {
                break;
            }
            if is_accepted {
                counts.accepted.fetch_add(1, Ordering::Relaxed);
            } else {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                sleep(REFUSED_PAUSE).await;
            }
        }
    }
}

/// Writes requests for a large document on one connection, and never reads.
async fn never_read(target: ApiTarget) {
    let one = format!(
        "GET /openapi.json HTTP/1.1\r\nHost: {}\r\n\r\n",
        target.address
    );
    let many = one.repeat(PIPELINED);
    loop {
        if let Ok(mut socket) = trusted_client::dial_tcp(target.address, Some(SOURCE)).await {
            let mut written = 0;
            // A write that makes no progress is only tried again, until the server ends the connection.
            while let Ok(Ok(count)) | Err(count) =
                timeout(WRITE_STALL, socket.write(&many.as_bytes()[written..]))
                    .await
                    .map_err(|_| 0)
            {
                written = (written + count) % many.len();
            }
        }
        sleep(RECONNECT_PAUSE).await;
    }
}

/// Sends a request without the last byte of its body, and waits for the answer.
async fn withhold_end(target: ApiTarget, counts: Arc<AttackCounts>) {
    let head = format!(
        "POST /v1/tenants/{}/events/batch HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {UNFINISHED_BYTES}\r\n\r\n",
        target.tenant, target.address, target.key
    );
    let body = vec![b' '; UNFINISHED_BYTES - 1];
    loop {
        if let Ok(mut socket) = trusted_client::dial_tcp(target.address, Some(SOURCE)).await {
            let mut answer = [0; 1_024];
            let is_sent = socket.write_all(head.as_bytes()).await.is_ok()
                && socket.write_all(&body).await.is_ok();
            if socket.read(&mut answer).await.is_ok_and(|read| read > 0) || !is_sent {
                counts.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        sleep(RECONNECT_PAUSE).await;
    }
}

async fn delete_tenant(target: ApiTarget, counts: Arc<AttackCounts>) {
    let path = format!("/v1/tenants/{}", target.tenant);
    let Ok(mut sender) = trusted_client::dial_from(target.address, Some(SOURCE)).await else {
        return;
    };
    let asked = request(&target, Method::DELETE, &path, Bytes::new());
    let is_deleted = match sender.send_request(asked).await {
        Ok(response) => response.status().is_success(),
        Err(_) => false,
    };
    let counter = if is_deleted {
        &counts.accepted
    } else {
        &counts.refused
    };
    counter.fetch_add(1, Ordering::Relaxed);
}
