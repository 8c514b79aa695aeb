//! Receive webhooks: verify their signatures and process each of them once.
//!
//! - [`Verifier`] checks Standard Webhooks signatures (`v1` and `v1a`) with one or more keys. [`Receiver`] also reads the request.
//! - An inbox recognises webhooks that arrive again: [`MemoryInbox`], or `SqliteInbox` and `PostgresInbox` (features `sqlite` and
//!   `postgres`) in the transaction of the application.
//! - [`EventOrder`] compares events that arrive in another order than they happened in.
//! - Feature `tower`: `WebhookLayer`. Feature `axum`: [`Webhook`] and [`RawWebhook`] are extractors, [`Reply`] is a response.
//!
//! Any sender of [Standard Webhooks](https://www.standardwebhooks.com) can be received; the `posthaste-…` headers are optional.
//!
//! # With axum and PostgreSQL
//!
//! ```
//! # #[cfg(all(feature = "axum", feature = "postgres"))]
//! # mod example {
//! use std::sync::Arc;
//! use axum::Router;
//! use axum::extract::{FromRef, State};
//! use axum::http::StatusCode;
//! use axum::routing::post;
//! use posthaste_receiver::{Begin, KeyError, PostgresInbox, Receiver, Reply, Verifier, Webhook};
//! use tokio::sync::Mutex;
//! use tokio_postgres::Client;
//!
//! #[derive(serde::Deserialize)]
//! struct Invoice {
//!     id: i64,
//! }
//!
//! #[derive(Clone)]
//! struct App {
//!     receiver: Receiver,
//!     inbox: PostgresInbox,
//!     database: Arc<Mutex<Client>>, // in production a pool
//! }
//!
//! impl FromRef<App> for Receiver {
//!     fn from_ref(app: &App) -> Receiver {
//!         app.receiver.clone()
//!     }
//! }
//!
//! async fn pay(database: &mut Client, app: &App, webhook: &Webhook<Invoice>) -> Result<Reply, tokio_postgres::Error> {
//!     let transaction = database.transaction().await?;
//!     match app.inbox.begin(&transaction, &webhook.head.id, app.receiver.now()).await? {
//!         Begin::New(()) => {
//!             let invoice = webhook.payload.id;
//!             transaction.execute("UPDATE invoices SET paid = true WHERE id = $1", &[&invoice]).await?;
//!             transaction.commit().await?;
//!             Ok(Reply::processed())
//!         }
//!         Begin::Duplicate => Ok(Reply::duplicate()),
//!         Begin::InProgress => Ok(Reply::in_progress()),
//!     }
//! }
//!
//! async fn receive(State(app): State<App>, webhook: Webhook<Invoice>) -> Result<Reply, StatusCode> {
//!     let mut database = app.database.lock().await;
//!     // 5xx: the sender tries again later.
//!     pay(&mut database, &app, &webhook).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
//! }
//!
//! fn app(database: Client) -> Result<Router, KeyError> {
//!     // While the secret is rotated, the old one and the new one.
//!     let verifier = Verifier::new(["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"])?;
//!     let app = App {
//!         receiver: Receiver::new(verifier),
//!         inbox: PostgresInbox::new(),
//!         database: Arc::new(Mutex::new(database)),
//!     };
//!     Ok(Router::new().route("/hooks", post(receive)).with_state(app))
//! }
//! # }
//! ```

mod error;
#[cfg(feature = "axum")]
mod extract;
mod inbox;
mod key;
#[cfg(feature = "tower")]
mod layer;
mod order;
mod receiver;
mod reply;
mod verify;
mod webhook;

pub use error::ReceiveError;
#[cfg(feature = "postgres")]
pub use inbox::PostgresInbox;
#[cfg(feature = "sqlite")]
pub use inbox::SqliteInbox;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use inbox::TableNameError;
pub use inbox::{Begin, Claim, InboxFull, MemoryInbox};
pub use key::{KeyError, MAX_SECRET_BYTES, MIN_SECRET_BYTES, PUBLIC_KEY_BYTES};
#[cfg(feature = "tower")]
pub use layer::{WebhookLayer, WebhookService};
pub use order::{EventOrder, OrderError};
pub use receiver::{BoxError, Receiver};
pub use reply::Reply;
pub use verify::{
    DEFAULT_MAX_BODY_BYTES, DEFAULT_TOLERANCE, MAX_ID_BYTES, MAX_KEYS, MAX_SIGNATURES, Verifier,
};
pub use webhook::{Head, RawWebhook, Webhook};

/// The code in the README, compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
