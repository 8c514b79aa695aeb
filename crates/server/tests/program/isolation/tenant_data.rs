//! A tenant with one resource of each kind, in every state.

use std::collections::BTreeMap;

use posthaste_core::time::Span;
use posthaste_system::clock::Clock;
use serde_json::{Value, json};

use super::fixture::{Caller, IsolationFixture};
use crate::fixture::{Answer, Receiver};

/// The tenant that calls. The names are unusual, so that they appear in no text by chance.
pub(crate) const OWN: &str = "own-5d1f";
/// The tenant whose resources are requested.
pub(crate) const OTHER_TENANT: &str = "theirs-8a40";
/// The tenant that is deleted.
pub(crate) const DELETED_TENANT: &str = "gone-19e2";

/// A tenant and its resources.
pub(crate) struct TenantData {
    /// Id of the tenant.
    pub(crate) tenant: String,
    /// A client with the tenant's key.
    pub(crate) caller: Caller,
    /// Ids of its resources, by kind.
    pub(crate) ids: BTreeMap<&'static str, Vec<String>>,
}

/// Starts a receiver whose answer depends on the path.
pub(crate) async fn receiver() -> Receiver {
    Receiver::start(|arrival| match arrival.path.as_str() {
        "/good" => Answer::status(200),
        "/bad" => Answer::status(400),
        _ => Answer::hang(),
    })
    .await
}

fn in_a_month() -> String {
    Clock::system()
        .wall()
        .after(Span::from_days(30))
        .to_string()
}

fn id_of(shown: &Value) -> String {
    let id = shown["id"].as_str();
    id.unwrap_or_else(|| panic!("no id in {shown}")).to_owned()
}

impl TenantData {
    /// Creates a tenant with three endpoints, and deliveries that succeeded, failed, are in flight and wait.
    pub(crate) async fn create(
        fixture: &IsolationFixture,
        receiver: &Receiver,
        tenant: &str,
    ) -> TenantData {
        let admin = fixture.admin();
        let body = json!({"id": tenant, "name": format!("name of {tenant}")});
        admin
            .call("POST", "/v1/tenants", Some(&body))
            .await
            .json(201);
        let base = format!("/v1/tenants/{tenant}");
        let make = async |path: &str, status: u16, body: Value| {
            let path = format!("{base}{path}");
            admin.call("POST", &path, Some(&body)).await.json(status)
        };
        let key = make("/keys", 201, json!({"name": "own"})).await;
        let mut ids: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        ids.insert("tenant", vec![tenant.to_owned()]);
        ids.insert("key", vec![id_of(&key)]);
        let link = make("/portal-links", 201, json!({"expires_in": "1h"})).await;
        ids.insert("link", vec![id_of(&link)]);
        for path in ["good", "bad", "slow"] {
            let endpoint = json!({
                "url": format!("http://{}/{path}", receiver.address),
                "event_types": [format!("to.{path}")],
                "timeout": "60s",
                "headers": {"X-Of": tenant},
                "description": format!("belongs to {tenant}"),
            });
            let endpoint = make("/endpoints", 201, endpoint).await;
            ids.entry("endpoint").or_default().push(id_of(&endpoint));
        }
        for (path, ends, later) in [
            ("good", "succeeded", None),
            ("bad", "failed", None),
            ("slow", "in_progress", None),
            ("good", "pending", Some(in_a_month())),
        ] {
            let event = json!({"type": format!("to.{path}"), "payload": {"of": tenant},
                "idempotency_key": format!("key {path} {ends}"), "deliver_at": later});
            let event = make("/events", 202, event).await;
            let delivery = id_of(&event["deliveries"][0]);
            fixture
                .until(&format!("{base}/deliveries/{delivery}"), ends)
                .await;
            ids.entry("event").or_default().push(id_of(&event));
            ids.entry("delivery").or_default().push(delivery);
        }
        let replay = make("/replays", 202, json!({"status": "failed"})).await;
        let replay = id_of(&replay);
        fixture
            .until(&format!("{base}/replays/{replay}"), "done")
            .await;
        let failed = &ids["delivery"][1];
        fixture
            .until(&format!("{base}/deliveries/{failed}"), "failed")
            .await;
        ids.insert("replay", vec![replay]);
        let schedule = json!({
            "id": format!("nightly-{tenant}"), "cron": "0 9 * * *",
            "event": {"type": "to.good", "payload": {"of": tenant}},
        });
        let schedule = make("/schedules", 201, schedule).await;
        ids.insert("schedule", vec![id_of(&schedule)]);
        let key = key["key"].as_str().expect("a key");
        TenantData {
            tenant: tenant.to_owned(),
            caller: fixture.caller(key),
            ids,
        }
    }

    /// Returns every id with its kind.
    pub(crate) fn all_ids(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let kinds = self.ids.iter();
        kinds.flat_map(|(kind, ids)| ids.iter().map(|id| (*kind, id.as_str())))
    }

    /// Returns one id of this kind.
    pub(crate) fn id(&self, kind: &str) -> &str {
        let ids = self.ids.get(kind);
        &ids.unwrap_or_else(|| panic!("the tenant has no {kind}"))[0]
    }

    /// Fills the parameters of a path with ids of this tenant.
    pub(crate) fn path(&self, pattern: &str) -> String {
        let mut path = pattern.to_owned();
        for kind in self.ids.keys() {
            path = path.replace(&format!("{{{kind}}}"), self.id(kind));
        }
        assert!(!path.contains('{'), "{path} has an unknown parameter");
        path
    }
}

/// Returns an id of the same format that does not exist.
pub(crate) fn missing_id(id: &str) -> String {
    let (rest, last) = id.split_at(id.len() - 1);
    let other = if last == "0" { "1" } else { "0" };
    format!("{rest}{other}")
}
