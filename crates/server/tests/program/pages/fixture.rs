//! Fixture of the page tests: a server, a browser, tenants, and receivers that fail or succeed on request.

use posthaste_testbed::browser::{Browser, Locator, Page};
use posthaste_testbed::{ADMIN_KEY, Api, Node, NodeOptions, Receiver};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server, a browser and receivers.
pub(crate) struct PagesFixture {
    pub(crate) browser: Browser,
    pub(crate) api: Api,
    /// Receivers at one address, by name. Each answers 200 until a test changes that.
    pub(crate) receiver: Receiver,
    pub(crate) node: Node,
    _home: TempDir,
}

impl PagesFixture {
    /// Starts a server on SQLite.
    pub(crate) async fn start() -> PagesFixture {
        PagesFixture::start_with(&[]).await
    }

    /// Starts a server on SQLite with these arguments.
    pub(crate) async fn start_with(arguments: &[&str]) -> PagesFixture {
        let home = tempfile::tempdir().expect("a directory");
        let program = env!("CARGO_BIN_EXE_posthaste");
        let launch = NodeOptions::new(program, "sqlite:posthaste.db", home.path()).with(arguments);
        let node = Node::start(&launch);
        node.until_ready().await;
        PagesFixture {
            browser: Browser::start(),
            api: node.api(),
            receiver: Receiver::healthy().await,
            node,
            _home: home,
        }
    }

    /// URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        url(&self.node, path)
    }

    /// Returns a client without a browser.
    pub(crate) fn client(&self) -> Api {
        Api::new(&self.node.address, "")
    }

    /// Opens a page that is signed in with the admin key.
    pub(crate) async fn signed_in(&self) -> Page {
        signed_in(&self.browser, &self.node).await
    }

    /// Creates an endpoint at one of the receivers. Its deliveries fail for good after two quick attempts.
    pub(crate) async fn endpoint(&mut self, tenant: &str, name: &str, fields: Value) -> String {
        let wanted = impatient(&self.receiver.url_of(name), fields);
        id_of(&self.api.endpoint(tenant, wanted).await)
    }

    /// Sends an event and waits until its only delivery has this status. Returns the delivery.
    pub(crate) async fn delivered(
        &mut self,
        tenant: &str,
        kind: &str,
        payload: Value,
        status: &str,
    ) -> String {
        let event = json!({"type": kind, "payload": payload});
        let delivery = self.api.deliver(tenant, event).await;
        self.api.until_status(tenant, &delivery, status).await;
        delivery
    }

    /// Creates a portal link of a tenant and returns the response.
    pub(crate) async fn portal(&mut self, tenant: &str, expires_in: &str) -> Value {
        let path = format!("/v1/tenants/{tenant}/portal-links");
        let wanted = json!({"expires_in": expires_in});
        self.api.post(&path, wanted).await.expect(201)
    }
}

/// URL of a path of a node.
pub(crate) fn url(node: &Node, path: &str) -> String {
    format!("http://{}{path}", node.address)
}

/// Opens a page that is signed in at this node with the admin key.
pub(crate) async fn signed_in(browser: &Browser, node: &Node) -> Page {
    let page = browser.page().await;
    page.open(&url(node, "/dashboard")).await;
    page.fill(Locator::labelled("Key"), ADMIN_KEY).await;
    let document = page.follow(Locator::with_text("button", "Sign in")).await;
    assert_eq!(document.status, 200);
    page
}

/// Fields of an endpoint whose deliveries fail for good after two quick attempts.
pub(crate) fn impatient(url: &str, fields: Value) -> Value {
    let mut wanted = json!({
        "url": url,
        "retry_policy": {
            "backoff": {"kind": "fixed", "interval": "20ms"}, "jitter": {"kind": "none"},
            "max_attempts": 2, "give_up_after": "1h",
        },
    });
    let fields = fields.as_object().expect("fields").clone();
    wanted.as_object_mut().expect("fields").extend(fields);
    wanted
}

/// Returns the id in a response.
pub(crate) fn id_of(value: &Value) -> String {
    let id = value["id"].as_str();
    id.unwrap_or_else(|| panic!("no id in {value}")).to_owned()
}
