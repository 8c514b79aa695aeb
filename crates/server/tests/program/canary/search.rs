//! The places that are searched for canary words.

use serde_json::Value;

use super::canaries::{Canaries, Kind};
use super::client::Client;
use super::recorded_server::Program;

/// Search for secret and private words.
pub(crate) const NOTHING: &[Kind] = &[Kind::Secret, Kind::Private];
/// Search for secret words only: private ones may be here, because their owner reads them.
pub(crate) const NO_SECRETS: &[Kind] = &[Kind::Secret];

/// Paths whose responses must contain neither secret nor private words.
const METRIC_PATHS: &[&str] = &[
    "/metrics",
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/docs",
    "/v1/stats",
    "/v1/stats/series",
    "/v1/policies",
    "/v1/tenants",
    "/v1/tenants/acme",
    "/v1/tenants/acme/stats",
    "/v1/tenants/acme/stats/series",
    "/v1/tenants/acme/keys",
    "/v1/tenants/acme/replays",
];

/// The file with the master keys, the only one that may contain them.
const KEY_FILE: &str = "posthaste.db.key";

/// Collects all findings, to report them together.
#[derive(Default)]
pub(crate) struct Search {
    found: Vec<String>,
    looked_at: usize,
}

impl Search {
    /// Searches a place for words of these kinds.
    pub(crate) fn look(&mut self, canaries: &Canaries, place: &str, bytes: &[u8], kinds: &[Kind]) {
        self.looked_at += 1;
        for found in canaries.found_in(bytes, kinds) {
            self.found.push(format!("{place}: {found}"));
        }
    }

    /// Searches all output of the program.
    pub(crate) fn words(&mut self, canaries: &Canaries, program: &Program) {
        let words = program.words();
        let logged: usize = words.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(logged > 1_000, "the log is too short to be searched");
        for (name, bytes) in words {
            self.look(canaries, &name, &bytes, NOTHING);
        }
    }

    /// Searches every error response that a client received.
    pub(crate) fn problems(&mut self, canaries: &Canaries, client: &Client) {
        for (asked, response) in &client.problems {
            self.look(
                canaries,
                &format!("the answer to {asked}"),
                response,
                NOTHING,
            );
        }
    }

    /// Searches every byte of the store's files.
    pub(crate) fn store(&mut self, canaries: &Canaries, program: &Program, when: &str) {
        let files = program.store();
        assert!(
            files.iter().any(|(name, _)| name == "posthaste.db"),
            "no store"
        );
        for (name, bytes) in files {
            if name != KEY_FILE {
                self.look(canaries, &format!("{name} {when}"), &bytes, NO_SECRETS);
            }
        }
    }

    /// Searches stats, lists and deliveries.
    pub(crate) async fn search_metrics(&mut self, canaries: &Canaries, client: &mut Client) {
        for path in METRIC_PATHS {
            let shown = client.get(path).await;
            assert_eq!(shown.status, 200, "{path}");
            self.look(canaries, path, &shown.bytes, NOTHING);
        }
        // A request for an event or a response may show private values, but no secrets.
        for list in ["events", "deliveries"] {
            let path = format!("/v1/tenants/acme/{list}");
            let mut next = Some(path.clone());
            while let Some(page) = next.take() {
                let shown = client.get(&page).await;
                self.look(canaries, &page, &shown.bytes, NO_SECRETS);
                let shown = shown.expect(200);
                for item in shown["data"].as_array().expect("a list") {
                    let path = format!("{path}/{}", item["id"].as_str().expect("an id"));
                    let one = client.get(&path).await;
                    self.look(canaries, &path, &one.bytes, NO_SECRETS);
                    self.delivery(canaries, &path, &one.expect(200));
                }
                let cursor = shown["next_cursor"].as_str();
                next = cursor.map(|cursor| format!("{path}?cursor={cursor}"));
            }
        }
        for endpoint in client.get("/v1/tenants/acme/endpoints").await.expect(200)["data"]
            .as_array()
            .expect("a list")
        {
            // Headers are shown to callers that may change them. No other secret of an endpoint is shown.
            let mut bare = endpoint.clone();
            bare.as_object_mut().expect("an object").remove("headers");
            self.look(
                canaries,
                "an endpoint",
                bare.to_string().as_bytes(),
                NO_SECRETS,
            );
            let id = endpoint["id"].as_str().expect("an id");
            let path = format!("/v1/tenants/acme/endpoints/{id}/health");
            let shown = client.get(&path).await;
            assert_eq!(shown.status, 200, "{path}");
            self.look(canaries, &path, &shown.bytes, NOTHING);
        }
    }

    /// Searches an attempt without its response headers and snippet. Everything else in it is written by posthaste.
    fn delivery(&mut self, canaries: &Canaries, path: &str, shown: &Value) {
        let Some(attempts) = shown["attempts"].as_array() else {
            return;
        };
        for attempt in attempts {
            let mut attempt = attempt.clone();
            let fields = attempt.as_object_mut().expect("an object");
            fields.remove("response_snippet");
            fields.remove("response_headers");
            self.look(canaries, path, attempt.to_string().as_bytes(), NOTHING);
        }
        let error = shown["last_error"].to_string();
        self.look(canaries, path, error.as_bytes(), NOTHING);
    }

    /// Panics if anything was found.
    pub(crate) fn assert_clean(self) {
        assert!(self.looked_at > 0, "no output was searched");
        let leaks = self.found.len();
        assert!(leaks == 0, "{leaks} leaks:\n{}", self.found.join("\n"));
    }
}
