//! Several nodes on one database, and the owners of shards and endpoints.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use posthaste_testbed::{Api, Database, Node, NodeOptions, PATIENCE, Receiver};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// Tenant of all events.
pub(crate) const TENANT: &str = "acme";

/// Interval between checks while a test polls.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const SHARDS: i64 = 256;
/// Maximum number of endpoints. Enough to spread over three nodes with any ids.
const MAX_ENDPOINTS: usize = 60;

/// Nodes on one database. A node that has ended keeps its index.
pub(crate) struct Fleet {
    pub(crate) database: Database,
    pub(crate) nodes: Vec<Node>,
    home: TempDir,
    settings: Vec<String>,
}

impl Fleet {
    /// No nodes yet, on a new database.
    pub(crate) fn new(lease: &str) -> Fleet {
        Fleet::on(Database::with_schema(), lease)
    }

    /// No nodes yet, on this database.
    pub(crate) fn on(database: Database, lease: &str) -> Fleet {
        Fleet {
            database,
            nodes: Vec::new(),
            home: tempfile::tempdir().expect("a directory"),
            settings: vec![format!("lease={lease}")],
        }
    }

    /// Starts this number of nodes with all roles, and waits until the shards are balanced.
    pub(crate) async fn of(nodes: usize, lease: &str) -> Fleet {
        let mut fleet = Fleet::new(lease);
        for _ in 0..nodes {
            fleet.join();
        }
        fleet.wait_balanced().await;
        fleet
    }

    /// Adds a setting for all nodes that are started later.
    pub(crate) fn set(&mut self, setting: &str) {
        self.settings.push(setting.to_owned());
    }

    /// Starts another node and returns its index.
    pub(crate) fn join(&mut self) -> usize {
        let url = self.database.url();
        self.join_by(&url, "all")
    }

    /// Starts another node with this database URL and role. Returns its index.
    pub(crate) fn join_by(&mut self, url: &str, role: &str) -> usize {
        let program = env!("CARGO_BIN_EXE_posthaste");
        let mut launch = NodeOptions::new(program, url, self.home.path())
            .role(role)
            .with(&["--log-level", "info,posthaste::attempt=off"]);
        for setting in &self.settings {
            launch = launch.with(&["--set", setting]);
        }
        self.nodes.push(Node::start(&launch));
        self.nodes.len() - 1
    }

    /// Returns an API client for one node.
    pub(crate) fn api(&self, node: usize) -> Api {
        self.nodes[node].api()
    }

    /// Addresses of these nodes.
    pub(crate) fn addresses(&self, nodes: &[usize]) -> Vec<String> {
        let address = |node: &usize| self.nodes[*node].address.clone();
        nodes.iter().map(address).collect()
    }

    /// Number of the node in the database, if it is a member now.
    pub(crate) fn number(&self, node: usize) -> Option<i64> {
        let pid = self.nodes[node].pid();
        let rows = self
            .database
            .query(&format!("SELECT no FROM nodes WHERE name LIKE '%/{pid}'"));
        let number = rows.first()?.first()?.as_ref()?;
        Some(number.parse().expect("a number"))
    }

    /// Returns the number of shards of each owner, and of `None` for shards without one.
    pub(crate) fn shares(&self) -> BTreeMap<Option<i64>, i64> {
        let rows = self
            .database
            .query("SELECT owner, count(*) FROM shards GROUP BY owner");
        let number = |text: &Option<String>| text.as_ref().map(|text| text.parse().unwrap());
        rows.iter()
            .map(|row| (number(&row[0]), number(&row[1]).expect("a count")))
            .collect()
    }

    /// Waits until every shard has an owner and `nodes` nodes own equal shares.
    pub(crate) async fn wait_shared_by(&self, nodes: usize) {
        let nodes = i64::try_from(nodes).expect("few");
        let even = || {
            let shares = self.shares();
            let is_even = |share: &i64| (SHARDS / nodes..=SHARDS / nodes + 1).contains(share);
            !shares.contains_key(&None)
                && shares.len() as i64 == nodes
                && shares.values().all(is_even)
        };
        until(&format!("shares of {nodes} nodes"), async || even()).await;
    }

    /// Waits until all started nodes own equal shares.
    pub(crate) async fn wait_balanced(&self) {
        self.wait_shared_by(self.nodes.len()).await;
    }

    /// Returns the node that owns an endpoint, if one does.
    pub(crate) fn owner(&self, endpoint: &str) -> Option<usize> {
        let id: posthaste_core::id::EndpointId = endpoint.parse().expect("an id");
        let sql = format!(
            "SELECT s.owner FROM endpoints e JOIN shards s ON s.no = e.shard WHERE e.id = '{:032x}'",
            id.0
        );
        let rows = self.database.query(&sql);
        let owner = rows.first()?.first()?.as_ref()?.parse().expect("a number");
        (0..self.nodes.len()).find(|node| self.number(*node) == Some(owner))
    }

    /// Creates endpoints at this receiver until each of these nodes owns at least two. Endpoint `/0` subscribes to
    /// events of type `t.0`, and so on.
    pub(crate) async fn endpoints(
        &self,
        receiver: &Receiver,
        nodes: &[usize],
        fields: &Value,
    ) -> Vec<String> {
        let mut api = self.api(nodes[0]);
        api.tenant(TENANT).await;
        let mut endpoints = Vec::new();
        let mut owned = vec![0; self.nodes.len()];
        while nodes.iter().any(|node| owned[*node] < 2) || endpoints.len() < 8 {
            let number = endpoints.len();
            assert!(number < MAX_ENDPOINTS, "all of them by a few: {owned:?}");
            let mut fields = fields.clone();
            fields["url"] = json!(receiver.url_of(&number.to_string()));
            fields["event_types"] = json!([format!("t.{number}")]);
            let endpoint = api.endpoint(TENANT, fields).await;
            let id = endpoint["id"].as_str().expect("an id").to_owned();
            owned[self.owner(&id).expect("somebody owns it")] += 1;
            endpoints.push(id);
        }
        endpoints
    }

    /// Creates an endpoint with these fields that this node owns.
    pub(crate) async fn endpoint_of(&self, node: usize, fields: &Value) -> String {
        let mut api = self.api(node);
        for _ in 0..MAX_ENDPOINTS {
            let endpoint = api.endpoint(TENANT, fields.clone()).await;
            let id = endpoint["id"].as_str().expect("an id").to_owned();
            if self.owner(&id) == Some(node) {
                return id;
            }
            let path = format!("/v1/tenants/{TENANT}/endpoints/{id}");
            assert_eq!(api.call("DELETE", &path, None).await.status, 204);
        }
        panic!("node {node} never owns what is new: {:?}", self.shares());
    }

    /// Checks that no node has logged a panic.
    pub(crate) fn assert_no_panics(&self) {
        for node in &self.nodes {
            let log = node.log();
            let panicked = log.iter().find(|line| line.contains("panicked"));
            assert_eq!(panicked, None);
        }
    }
}

/// Waits until the condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, come: impl Fn() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !come().await {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(LOOK_EVERY).await;
    }
}
