//! Receives webhooks with axum: verifies the signature, and processes each webhook once, in a transaction of SQLite.
//!
//! ```sh
//! WEBHOOK_SECRET=whsec_… DATABASE=receiver.db PORT=8421 cargo run
//! ```
//!
//! WEBHOOK_SECRET may hold several secrets, separated by spaces, while the secret is rotated. CRASH=before-commit or
//! CRASH=after-commit ends the process there, to see that nothing is lost or processed twice.

use std::error::Error;
use std::time::Duration;
use std::{env, process};

use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use posthaste_receiver::{Begin, RawWebhook, Receiver, Reply, SqliteInbox, Verifier, Webhook};
use rusqlite::{Connection, TransactionBehavior};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

/// Time that a transaction waits for another one that writes.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Time for which webhooks are remembered: for as long as posthaste can send them again.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);
/// Marks that are deleted at each start. An application that runs for months also does so in between.
const MAX_DELETED: u32 = 100_000;

#[derive(Clone)]
struct App {
    receiver: Receiver,
    inbox: SqliteInbox,
    database: String,
    crash: String,
}

impl FromRef<App> for Receiver {
    fn from_ref(app: &App) -> Receiver {
        app.receiver.clone()
    }
}

#[derive(Deserialize)]
struct Invoice {
    amount: i64,
}

impl App {
    fn connect(&self) -> rusqlite::Result<Connection> {
        let database = Connection::open(&self.database)?;
        database.busy_timeout(MAX_WAIT)?;
        Ok(database)
    }

    fn prepare(&self) -> rusqlite::Result<()> {
        let database = self.connect()?;
        database.pragma_update(None, "journal_mode", "wal")?;
        database.execute_batch("CREATE TABLE IF NOT EXISTS payments (webhook TEXT NOT NULL, amount INTEGER NOT NULL)")?;
        self.inbox.create_table(&database)?;
        let now = self.receiver.now();
        self.inbox.delete_expired(&database, now, REMEMBERED, MAX_DELETED)?;
        Ok(())
    }

    /// Processes a webhook once: the payment and the mark in the inbox are committed together.
    fn process(&self, webhook: &Webhook<Invoice>) -> rusqlite::Result<Reply> {
        let id = &webhook.head.id;
        let mut database = self.connect()?;
        let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        match self.inbox.begin(&transaction, id, self.receiver.now())? {
            Begin::New(()) => {
                let sql = "INSERT INTO payments (webhook, amount) VALUES (?1, ?2)";
                transaction.execute(sql, (id, webhook.payload.amount))?;
                self.crash_if("before-commit");
                transaction.commit()?;
                self.crash_if("after-commit");
                let event_type = webhook.head.event_type.as_deref().unwrap_or_default();
                println!("received {id} {event_type} {}", webhook.payload.amount);
                Ok(Reply::processed())
            }
            Begin::Duplicate => {
                println!("duplicate {id}");
                Ok(Reply::duplicate())
            }
            Begin::InProgress => Ok(Reply::in_progress()),
        }
    }

    fn crash_if(&self, point: &str) {
        if self.crash == point {
            process::exit(1);
        }
    }
}

/// Takes only requests with a valid signature. Others are answered 400, 401 or 413.
async fn receive(
    State(app): State<App>,
    webhook: Result<RawWebhook, posthaste_receiver::ReceiveError>,
) -> Reply {
    let webhook = match webhook.and_then(RawWebhook::json) {
        Ok(webhook) => webhook,
        Err(error) => {
            println!("rejected: {error}");
            return Reply::from(&error);
        }
    };
    match spawn_blocking(move || app.process(&webhook)).await {
        Ok(Ok(reply)) => reply,
        // 503: posthaste tries again later.
        Ok(Err(error)) => {
            eprintln!("the database failed: {error}");
            Reply::busy()
        }
        Err(error) => {
            eprintln!("the handler failed: {error}");
            Reply::busy()
        }
    }
}

/// Shows what was processed: the number of payments and their sum.
async fn payments(State(app): State<App>) -> Result<Json<[i64; 2]>, StatusCode> {
    let sums = spawn_blocking(move || {
        let sql = "SELECT count(*), coalesce(sum(amount), 0) FROM payments";
        app.connect()?
            .query_row(sql, [], |row| Ok([row.get(0)?, row.get(1)?]))
    });
    match sums.await {
        Ok(Ok(sums)) => Ok(Json(sums)),
        Ok(Err(_)) | Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let secrets = env::var("WEBHOOK_SECRET")?;
    let app = App {
        receiver: Receiver::new(Verifier::new(secrets.split_whitespace())?),
        inbox: SqliteInbox::new(),
        database: env::var("DATABASE").unwrap_or_else(|_| "receiver.db".to_owned()),
        crash: env::var("CRASH").unwrap_or_default(),
    };
    app.prepare()?;
    let router = Router::new()
        .route("/hooks", post(receive))
        .route("/payments", get(payments))
        .with_state(app);
    let port = env::var("PORT").unwrap_or_else(|_| "8421".to_owned());
    let listener = TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}
