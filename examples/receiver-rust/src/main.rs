//! Receives webhooks: verifies the signature, then processes each webhook-id once.
//!
//! ```sh
//! WEBHOOK_SECRET=whsec_… PORT=8421 cargo run
//! ```

use std::collections::{HashSet, VecDeque};
use std::env;
use std::error::Error;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use standardwebhooks::Webhook;
use tokio::net::TcpListener;

const MAX_BODY_BYTES: usize = 1024 * 1024;
const MAX_REMEMBERED_IDS: usize = 100_000;

struct Receiver {
    webhook: Webhook,
    processed: Mutex<ProcessedIds>,
}

/// The ids of processed webhooks. In production: a table with a unique column, written in the same transaction as the
/// effect of the event.
#[derive(Default)]
struct ProcessedIds {
    ids: HashSet<String>,
    oldest_first: VecDeque<String>,
}

impl ProcessedIds {
    /// Remembers an id. Returns false if it was there already.
    fn insert(&mut self, id: &str) -> bool {
        if !self.ids.insert(id.to_owned()) {
            return false;
        }
        self.oldest_first.push_back(id.to_owned());
        if self.oldest_first.len() > MAX_REMEMBERED_IDS
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }
}

/// Handles one webhook. `body` is what was sent, byte for byte: the signature covers these bytes.
async fn receive(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    // Also rejects a timestamp that is more than five minutes off, so that an old request cannot be sent again.
    if let Err(error) = receiver.webhook.verify(&body, &headers) {
        println!("rejected: {error}");
        return StatusCode::UNAUTHORIZED;
    }
    let header = |name| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    };
    let id = header("webhook-id");
    let mut processed = receiver.processed.lock().expect("no thread panicked");
    // Deliveries arrive at least once: after a lost response, or by a replay, the same webhook-id comes again.
    if !processed.insert(id) {
        println!("duplicate {id}");
        return StatusCode::NO_CONTENT;
    }
    let event_type = header("posthaste-event-type");
    println!(
        "received {id} {event_type} {}",
        String::from_utf8_lossy(&body)
    );
    StatusCode::NO_CONTENT
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let receiver = Receiver {
        webhook: Webhook::new(&env::var("WEBHOOK_SECRET")?)?,
        processed: Mutex::default(),
    };
    let port = env::var("PORT").unwrap_or_else(|_| "8421".to_owned());
    let app = Router::new()
        .fallback(post(receive))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(Arc::new(receiver));
    let listener = TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
