//! A receiver of the demo, and the endpoint of the server that points to it.

use posthaste_core::sign::{SigningKey, VerifyingKeys};
use posthaste_system::clock::Clock;
use posthaste_system::random;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::error::DemoError;
use super::request_counts::RequestCounter;
use super::scenario::{DemoScenario, ReceiverKind, TENANT};
use crate::client::{ApiClient, ApiRequest, ClientError};
use crate::webhook_receiver::{Behaviour, ReceiverServer, ReceiverSettings};

/// A receiver and its endpoint.
pub struct DemoReceiver {
    /// Kind of the receiver.
    pub kind: ReceiverKind,
    /// Id of the endpoint.
    pub endpoint: String,
    /// Counts of its requests.
    pub counter: RequestCounter,
    server: ReceiverServer,
}

impl DemoReceiver {
    /// Starts a receiver and creates its endpoint. Its requests are counted by a task in `counter_tasks`.
    pub async fn start(
        kind: ReceiverKind,
        scenario: &DemoScenario,
        client: &mut ApiClient,
        counter_tasks: &mut JoinSet<()>,
    ) -> Result<DemoReceiver, DemoError> {
        let secret = random::fresh_secret();
        let secret_text = secret.reveal().to_owned();
        let keys = VerifyingKeys::new(vec![SigningKey::Shared(secret).verifying_key()]);
        let (server, requests) = ReceiverServer::start(ReceiverSettings {
            keys: Some(keys.expect("one key is not too many")),
            opens_after: scenario.opens_after(kind),
            seed: scenario.seed(kind),
            clock: Clock::system(),
            ..ReceiverSettings::local(scenario.behaviour(kind))
        })
        .map_err(DemoError::System)?;
        let counter = RequestCounter::default();
        counter_tasks.spawn(counter.clone().run(requests));
        let endpoint = json!({
            "url": format!("{}/{}", server.url(), kind.name()),
            "description": scenario.description(kind),
            "event_types": kind.event_types(),
            "retry_policy": scenario.policy(),
            "timeout": "5s",
            "rate_limit": {"per_second": scenario.limit_per_second(), "burst": 10},
            "secret": secret_text,
        });
        let path = format!("/v1/tenants/{TENANT}/endpoints");
        let created = client
            .send(&ApiRequest::post(path.clone(), endpoint))
            .await?;
        let id = created.value.get("id").and_then(Value::as_str);
        Ok(DemoReceiver {
            kind,
            endpoint: id.map(str::to_owned).ok_or_else(|| {
                ClientError::UnexpectedAnswer(format!("the response to POST {path} has no id"))
            })?,
            counter,
            server,
        })
    }

    /// Returns the URL it listens on.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Changes its behaviour from now on.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.server.set_behaviour(behaviour);
    }
}
