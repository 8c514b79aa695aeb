//! The inbox table in PostgreSQL, together with a side effect. The environment names the server: scripts/postgres starts one.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use posthaste_receiver::{Begin, PostgresInbox};
use tokio::net::TcpStream;
use tokio_postgres::{Client, Config, NoTls, Transaction};

use crate::fixture::at;

const SERVER: &str = "POSTHASTE_TEST_POSTGRES";

/// A schema of one test on the server, with an inbox and a side effect. It is dropped at the end.
struct Schema {
    name: String,
    inbox: PostgresInbox,
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test connects to the database of the tests"
)]
async fn connect() -> Client {
    let server = std::env::var(SERVER).unwrap_or_default();
    assert!(
        !server.is_empty(),
        "{SERVER} names no PostgreSQL: scripts/postgres run cargo nextest run …"
    );
    let config: Config = server.parse().expect("the URL of a server");
    let tokio_postgres::config::Host::Tcp(host) = &config.get_hosts()[0] else {
        panic!("{SERVER} has no host");
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let stream = TcpStream::connect((host.as_str(), port)).await;
    let connected = config.connect_raw(stream.expect("a server"), NoTls).await;
    let (client, connection) = connected.expect("a connection");
    tokio::spawn(connection);
    client
}

impl Schema {
    async fn new(client: &Client) -> Schema {
        let random = RandomState::new().hash_one(Instant::now());
        let name = format!("receiver_{random:016x}");
        let inbox = PostgresInbox::in_table(&format!("{name}.inbox")).expect("a name");
        let create = format!(
            "CREATE SCHEMA {name}; CREATE TABLE {name}.effects AS SELECT 0 AS count; {}",
            inbox.create_sql()
        );
        client.batch_execute(&create).await.expect("a schema");
        // A second time, as at the next start of the application.
        inbox.create_table(client).await.expect("a table");
        Schema { name, inbox }
    }

    /// Marks a webhook and counts it, if it is new.
    async fn process(&self, transaction: &Transaction<'_>, id: &str) -> Begin {
        let begun = self.inbox.begin(transaction, id, at(0)).await;
        let begun = begun.expect("an answer");
        if begun == Begin::New(()) {
            let count = format!("UPDATE {}.effects SET count = count + 1", self.name);
            transaction.batch_execute(&count).await.expect("counted");
        }
        begun
    }

    async fn effects(&self, client: &Client) -> i32 {
        let sql = format!("SELECT count FROM {}.effects", self.name);
        client.query_one(&sql, &[]).await.expect("a count").get(0)
    }

    async fn drop(self, client: &Client) {
        let drop = format!("DROP SCHEMA {} CASCADE", self.name);
        client.batch_execute(&drop).await.expect("dropped");
    }
}

#[tokio::test]
async fn effect_and_mark_are_committed_together() {
    let mut client = connect().await;
    let schema = Schema::new(&client).await;
    for (id, commits, expected, effects) in [
        ("dlv_1", false, Begin::New(()), 0),
        ("dlv_1", true, Begin::New(()), 1),
        ("dlv_1", true, Begin::Duplicate, 1),
        ("dlv_2", true, Begin::New(()), 2),
    ] {
        let transaction = client.transaction().await.expect("a transaction");
        assert_eq!(schema.process(&transaction, id).await, expected);
        if commits {
            // A second time in the same transaction.
            assert_eq!(schema.process(&transaction, id).await, Begin::Duplicate);
            transaction.commit().await.expect("committed");
        } else {
            transaction.rollback().await.expect("rolled back");
        }
        assert_eq!(schema.effects(&client).await, effects);
    }
    schema.drop(&client).await;
}

#[tokio::test]
async fn a_webhook_that_another_transaction_processes_is_in_progress() {
    let (mut first, mut second) = (connect().await, connect().await);
    let schema = Schema::new(&first).await;
    for (commits, after) in [(false, Begin::New(())), (true, Begin::Duplicate)] {
        let processing = first.transaction().await.expect("a transaction");
        assert_eq!(schema.process(&processing, "dlv_1").await, Begin::New(()));
        let other = second.transaction().await.expect("a transaction");
        // Neither waits for the other, and another webhook is not held up.
        assert_eq!(schema.process(&other, "dlv_1").await, Begin::InProgress);
        let begun = schema.inbox.begin(&other, "dlv_2", at(0)).await;
        assert_eq!(begun.expect("an answer"), Begin::New(()));
        other.rollback().await.expect("rolled back");
        if commits {
            processing.commit().await.expect("committed");
        } else {
            processing.rollback().await.expect("rolled back");
        }
        let third = second.transaction().await.expect("a transaction");
        assert_eq!(schema.process(&third, "dlv_1").await, after);
        third.rollback().await.expect("rolled back");
    }
    schema.drop(&first).await;
}

#[tokio::test]
async fn a_lost_connection_releases_the_webhook() {
    let mut client = connect().await;
    let mut doomed = connect().await;
    let schema = Schema::new(&client).await;
    let session = doomed.query_one("SELECT pg_backend_pid()", &[]).await;
    let session: i32 = session.expect("a session").get(0);
    let processing = doomed.transaction().await.expect("a transaction");
    assert_eq!(schema.process(&processing, "dlv_1").await, Begin::New(()));
    let end = "SELECT pg_terminate_backend($1, 10000)";
    let ended = client.query_one(end, &[&session]).await;
    assert!(ended.expect("an answer").get::<_, bool>(0));
    let transaction = client.transaction().await.expect("a transaction");
    assert_eq!(schema.process(&transaction, "dlv_1").await, Begin::New(()));
    transaction.commit().await.expect("committed");
    assert_eq!(schema.effects(&client).await, 1);
    schema.drop(&client).await;
}

#[tokio::test]
async fn expired_marks_are_deleted_oldest_first() {
    let mut client = connect().await;
    let schema = Schema::new(&client).await;
    for (id, second) in [("c", 12), ("a", 10), ("b", 11), ("d", 20)] {
        let transaction = client.transaction().await.expect("a transaction");
        let begun = schema.inbox.begin(&transaction, id, at(second)).await;
        assert_eq!(begun.expect("an answer"), Begin::New(()));
        transaction.commit().await.expect("committed");
    }
    let minute = Duration::from_secs(60);
    for (now, limit, expected) in [(70, 100, 0), (79, 2, 2), (79, 2, 1), (79, 2, 0)] {
        let deleted = schema.inbox.delete_expired(&client, at(now), minute, limit);
        assert_eq!(deleted.await.expect("deleted"), expected);
    }
    let left = format!("SELECT string_agg(id, ',') FROM {}.inbox", schema.name);
    let left = client.query_one(&left, &[]).await.expect("the rest");
    assert_eq!(left.get::<_, String>(0), "d");
    schema.drop(&client).await;
}
