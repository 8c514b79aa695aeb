//! The demo's server, its receivers, and their temporary folder.
//!
//! [`RunningDemo`] starts them all and creates the endpoints. Stopping it removes the folder, so that nothing is left
//! behind.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};

use posthaste_core::address::EgressRules;
use posthaste_core::time::Span;
use posthaste_egress::trusted_client::BaseUrl;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::error::DemoError;
use super::receiver::DemoReceiver;
use super::scenario::{DemoScenario, ReceiverKind, TENANT};
use crate::client::{ApiClient, ApiRequest, ClientError};
use crate::config::{Config, StoreLocation};
use crate::node::{Node, NodeSettings, StartError};
use crate::webhook_receiver::Behaviour;

/// Prefix of the temporary folder's name.
const FOLDER_PREFIX: &str = "posthaste-demo-";
/// Grace period of a stop. Short, because receivers answer immediately.
const GRACE: Span = Span::from_secs(1);
/// Name of the store's file in the folder.
const STORE_NAME: &str = "posthaste.db";

/// The running demo.
pub struct RunningDemo {
    /// The receivers, in the order of [`ReceiverKind::ALL`].
    pub receivers: Vec<DemoReceiver>,
    /// The admin key.
    pub key: String,
    /// True if the requested address was in use and another one was taken.
    pub port_changed: bool,
    scenario: DemoScenario,
    node: Node,
    folder: TempDir,
    _counter_tasks: JoinSet<()>,
}

impl RunningDemo {
    /// Starts the server and the receivers, and creates the endpoints.
    pub async fn start(
        scenario: DemoScenario,
        listen: SocketAddr,
    ) -> Result<RunningDemo, DemoError> {
        let folder = TempDir::with_prefix(FOLDER_PREFIX).map_err(DemoError::System)?;
        let mut config = Config {
            listen,
            store: StoreLocation::Sqlite(folder.path().join(STORE_NAME)),
            egress: EgressRules {
                allow_networks: vec!["127.0.0.0/8".parse().expect("127.0.0.0/8 is a network")],
                allow_http: true,
                ..EgressRules::default()
            },
            grace: GRACE,
            breaker: scenario.breaker(),
            ..Config::default()
        };
        let mut port_changed = false;
        let mut started = Node::start(NodeSettings::from_config(&config)?).await;
        if let Err(StartError::Listen { error, .. }) = &started
            && error.kind() == ErrorKind::AddrInUse
        {
            port_changed = true;
            config.listen.set_port(0);
            started = Node::start(NodeSettings::from_config(&config)?).await;
        }
        let mut node = started?;
        let key = node
            .take_first_admin_key()
            .expect("the first start creates an admin key");
        let mut client = client(node.address(), &key)?;
        let tenant = json!({"id": TENANT, "name": "Demo"});
        client
            .send(&ApiRequest::post("/v1/tenants", tenant))
            .await?;
        let mut receivers = Vec::new();
        let mut counter_tasks = JoinSet::new();
        for kind in ReceiverKind::ALL {
            let receiver = DemoReceiver::start(kind, &scenario, &mut client, &mut counter_tasks);
            receivers.push(receiver.await?);
        }
        Ok(RunningDemo {
            receivers,
            key,
            port_changed,
            scenario,
            node,
            folder,
            _counter_tasks: counter_tasks,
        })
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        format!("http://{}", self.node.address())
    }

    /// Creates a client of its API.
    pub fn client(&self) -> Result<ApiClient, ClientError> {
        client(self.node.address(), &self.key)
    }

    /// Changes the flaky receiver's behaviour at the times of the scenario.
    pub async fn run_flaky_phases(&self) {
        let started_at = Instant::now();
        for (behaviour, until) in self.scenario.flaky_phases() {
            self.set_flaky_behaviour(behaviour);
            sleep_until(started_at + until).await;
        }
        self.set_flaky_behaviour(self.scenario.behaviour(ReceiverKind::Flaky));
    }

    fn set_flaky_behaviour(&self, behaviour: Behaviour) {
        let receivers = self.receivers.iter();
        for receiver in receivers.filter(|receiver| receiver.kind == ReceiverKind::Flaky) {
            receiver.set_behaviour(behaviour);
        }
    }

    /// Stops everything and removes the folder.
    pub async fn stop(self) -> Result<(), DemoError> {
        self.node.stop().await;
        drop(self.receivers);
        self.folder.close().map_err(DemoError::System)
    }
}

fn client(mut address: SocketAddr, key: &str) -> Result<ApiClient, ClientError> {
    // A server that listens on all addresses is reached at the loopback address.
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    ApiClient::new(BaseUrl::plain(address), Some(key))
}
