//! The demo's server, its receivers, and their temporary folder.

use std::io::ErrorKind;
use std::net::SocketAddr;

use http::Method;
use posthaste_core::address::EgressRules;
use posthaste_core::sign::{SigningKey, VerifyingKeys};
use posthaste_core::time::Span;
use posthaste_egress::operator::Origin;
use posthaste_system::clock::Clock;
use posthaste_system::random;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::ledger::Ledger;
use super::script::{Role, Script, TENANT};
use crate::cli::failure::Failure;
use crate::cli::remote::ApiCommandError;
use crate::cli::remote::args::ConnectArgs;
use crate::cli::remote::client::{Call, Client};
use crate::cli::serve::node_settings;
use crate::config::{Config, StoreLocation};
use crate::listener::{Behaviour, ReceiverServer, Settings};
use crate::node::{Node, StartError};

/// Prefix of the temporary folder's name.
pub const FOLDER_PREFIX: &str = "posthaste-demo-";
/// Grace period of a stop. Short, because receivers answer immediately.
const GRACE: Span = Span::from_secs(1);
/// Name of the store's file in the folder.
const STORE_NAME: &str = "posthaste.db";

/// A receiver and its endpoint.
pub struct Receiver {
    /// Role of the receiver.
    pub role: Role,
    /// Id of the endpoint.
    pub endpoint: String,
    /// Counts of its requests.
    pub ledger: Ledger,
    listener: ReceiverServer,
}

impl Receiver {
    /// Returns the URL it listens on.
    pub fn url(&self) -> String {
        self.listener.url()
    }
}

/// The running demo.
pub struct Stage {
    /// The receivers, in the order of [`Role::ALL`].
    pub receivers: Vec<Receiver>,
    /// The admin key.
    pub key: String,
    /// True if the requested address was in use and another one was taken.
    pub moved: bool,
    script: Script,
    node: Node,
    home: TempDir,
    _ledgers: JoinSet<()>,
}

impl Stage {
    /// Starts the server and the receivers, and creates the endpoints.
    pub async fn start(script: Script, listen: SocketAddr) -> Result<Stage, Failure> {
        let home = TempDir::with_prefix(FOLDER_PREFIX).map_err(Failure::Unprepared)?;
        let mut config = Config {
            listen,
            store: StoreLocation::Sqlite(home.path().join(STORE_NAME)),
            egress: EgressRules {
                allow_networks: vec!["127.0.0.0/8".parse().expect("a network")],
                allow_http: true,
                ..EgressRules::default()
            },
            grace: GRACE,
            breaker: script.breaker(),
            ..Config::default()
        };
        let mut moved = false;
        let mut started = Node::start(node_settings(&config)?).await;
        if let Err(StartError::Listen { error, .. }) = &started
            && error.kind() == ErrorKind::AddrInUse
        {
            moved = true;
            config.listen.set_port(0);
            started = Node::start(node_settings(&config)?).await;
        }
        let mut node = started.map_err(Failure::NotStarted)?;
        let key = node
            .take_first_admin_key()
            .expect("a new store has no key yet");
        let mut client = client(node.address(), &key)?;
        let tenant = json!({"id": TENANT, "name": "Demo"});
        ask(&mut client, "/v1/tenants", tenant).await?;
        let mut receivers = Vec::new();
        let mut ledgers = JoinSet::new();
        for role in Role::ALL {
            receivers.push(start_receivers(role, &script, &mut client, &mut ledgers).await?);
        }
        Ok(Stage {
            receivers,
            key,
            moved,
            script,
            node,
            home,
            _ledgers: ledgers,
        })
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        format!("http://{}", self.node.address())
    }

    /// Creates a client of its API.
    pub fn client(&self) -> Result<Client, Failure> {
        client(self.node.address(), &self.key)
    }

    /// Changes the flaky receiver's behaviour at the times of the script.
    pub async fn run_flaky_script(&self) {
        let begun_at = Instant::now();
        for (behaviour, until) in self.script.flaky_acts() {
            self.tell_flaky(behaviour);
            sleep_until(begun_at + until).await;
        }
        self.tell_flaky(self.script.behaviour(Role::Flaky));
    }

    fn tell_flaky(&self, behaviour: Behaviour) {
        let receivers = self.receivers.iter();
        for receiver in receivers.filter(|receiver| receiver.role == Role::Flaky) {
            receiver.listener.behave(behaviour);
        }
    }

    /// Stops everything and removes the folder.
    pub async fn stop(self) -> Result<(), Failure> {
        self.node.stop().await;
        drop(self.receivers);
        self.home.close().map_err(Failure::Unprepared)
    }
}

async fn start_receivers(
    role: Role,
    script: &Script,
    client: &mut Client,
    ledgers: &mut JoinSet<()>,
) -> Result<Receiver, Failure> {
    let secret = random::fresh_secret();
    let shown = secret.reveal().to_owned();
    let keys = VerifyingKeys::new(vec![SigningKey::Shared(secret).verifying_key()]);
    let (listener, heard) = ReceiverServer::start(Settings {
        keys: Some(keys.expect("one key is not too many")),
        opens_after: script.opens_after(role),
        seed: script.seed(role),
        clock: Clock::system(),
        ..Settings::local(script.behaviour(role))
    })
    .map_err(Failure::Unprepared)?;
    let ledger = Ledger::default();
    ledgers.spawn(ledger.clone().keep(heard));
    let endpoint = json!({
        "url": format!("{}/{}", listener.url(), role.name()),
        "description": script.promise(role),
        "event_types": role.event_types(),
        "retry_policy": script.policy(),
        "timeout": "5s",
        "rate_limit": {"per_second": script.limit_per_second(), "burst": 10},
        "secret": shown,
    });
    let path = format!("/v1/tenants/{TENANT}/endpoints");
    let made = ask(client, &path, endpoint).await?;
    let id = made.get("id").and_then(Value::as_str);
    Ok(Receiver {
        role,
        endpoint: id.map(str::to_owned).ok_or_else(|| {
            ApiCommandError::OutcomeFailed(format!("POST {path} answered without an id"))
        })?,
        ledger,
        listener,
    })
}

fn client(address: SocketAddr, key: &str) -> Result<Client, Failure> {
    // A server that listens on all addresses is reached at the loopback address.
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let connect = ConnectArgs {
        server: Origin::plain(address),
        key: Some(key.to_owned()),
        ca: None,
        json: false,
    };
    Ok(Client::new(&connect)?)
}

async fn ask(client: &mut Client, path: &str, body: Value) -> Result<Value, Failure> {
    let call = Call {
        method: Method::POST,
        target: path.to_owned(),
        body: Some(body.to_string()),
    };
    Ok(client.ask(&call).await?.value)
}
