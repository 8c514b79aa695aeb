//! Fixture: two nodes on one database, and the owners of shards.

use std::time::{Duration, Instant};

use posthaste_testbed::{Api, Database, Node, NodeOptions, PATIENCE};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Maximum time until every node applies a change.
pub(crate) const PROPAGATION_LIMIT: Duration = Duration::from_secs(1);

/// Two nodes on one database.
pub(crate) struct Pair {
    pub(crate) nodes: [Node; 2],
    pub(crate) database: Database,
    home: TempDir,
}

impl Pair {
    /// Starts two nodes with all roles, and waits until each owns half of the shards.
    pub(crate) async fn start() -> Pair {
        let pair = Pair::with_roles(["all", "all"]).await;
        pair.wait_balanced().await;
        pair
    }

    pub(crate) async fn with_roles(roles: [&str; 2]) -> Pair {
        Pair::with(roles, &[]).await
    }

    pub(crate) async fn with(roles: [&str; 2], arguments: &[&str]) -> Pair {
        let database = Database::with_schema();
        let home = tempfile::tempdir().expect("a directory");
        let start = |role: &str| {
            let launch = launch(&database, &home).role(role).with(arguments);
            Node::start(&launch)
        };
        let nodes = roles.map(start);
        for node in &nodes {
            node.until_ready().await;
        }
        Pair {
            nodes,
            database,
            home,
        }
    }

    /// Starts another node on the same database.
    pub(crate) fn another(&self) -> Node {
        Node::start(&launch(&self.database, &self.home))
    }

    pub(crate) fn api(&self, node: usize) -> Api {
        self.nodes[node].api()
    }

    /// Number of the node in the database.
    pub(crate) fn number(&self, node: &Node) -> i64 {
        let pid = node.pid();
        self.database
            .number(&format!("SELECT no FROM nodes WHERE name LIKE '%/{pid}'"))
    }

    /// Number of shards that a node owns.
    pub(crate) fn shards(&self, node: &Node) -> i64 {
        let owner = self.number(node);
        let sql = format!("SELECT count(*) FROM shards WHERE owner = {owner}");
        self.database.number(&sql)
    }

    /// Waits until both nodes own the same number of shards.
    pub(crate) async fn wait_balanced(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.nodes.iter().all(|node| self.shards(node) == 128) {
            assert!(Instant::now() < deadline, "the work is not shared");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until this node owns all shards.
    pub(crate) async fn wait_owns_all(&self, node: &Node) {
        let deadline = Instant::now() + PATIENCE;
        while self.shards(node) != 256 {
            assert!(Instant::now() < deadline, "others own something");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Creates an endpoint of `acme` that this node owns.
    pub(crate) async fn endpoint_of(&self, owner: usize, fields: Value) -> String {
        let mut api = self.api(0);
        let owner = self.number(&self.nodes[owner]);
        loop {
            let endpoint = api.endpoint("acme", fields.clone()).await;
            let id = endpoint["id"].as_str().expect("an id").to_owned();
            let last = "SELECT s.owner FROM endpoints e JOIN shards s ON s.no = e.shard \
                        ORDER BY e.no DESC LIMIT 1";
            if self.database.number(last) == owner {
                return id;
            }
            let gone = api
                .call("DELETE", &format!("/v1/tenants/acme/endpoints/{id}"), None)
                .await;
            assert_eq!(gone.status, 204);
        }
    }
}

fn launch(database: &Database, home: &TempDir) -> NodeOptions {
    NodeOptions::new(
        env!("CARGO_BIN_EXE_posthaste"),
        &database.url(),
        home.path(),
    )
}

/// An event that all endpoints subscribe to.
pub(crate) fn event() -> Value {
    json!({"type": "invoice.paid", "payload": {"amount": 1}})
}

/// Returns the delivery of an event to its only endpoint.
pub(crate) fn delivery(event: &Value) -> String {
    event["deliveries"][0]["id"]
        .as_str()
        .expect("a delivery")
        .to_owned()
}
