//! Every signature style in real deliveries, verified by independent code.

use base64::prelude::{BASE64_STANDARD, Engine};
use ring::{hmac, signature};
use serde_json::{Value, json};

use super::fixture::{Api, Arrival, Receiver, TestServer};

/// The example secret of GitHub's documentation.
const OPAQUE: &str = "It's a Secret to Everybody";

struct SignedEndpoint {
    _server: TestServer,
    receiver: Receiver,
    api: Api,
    endpoint: String,
    secret: String,
    public_key: Option<String>,
}

impl SignedEndpoint {
    async fn start(mut fields: Value) -> SignedEndpoint {
        let (server, mut api) = TestServer::start_with_tenant(&[]).await;
        let receiver = Receiver::healthy().await;
        fields["url"] = json!(receiver.url());
        let made = api.endpoint("acme", fields).await;
        SignedEndpoint {
            endpoint: format!(
                "/v1/tenants/acme/endpoints/{}",
                made["id"].as_str().expect("an id")
            ),
            secret: made["secret"]
                .as_str()
                .expect("a secret in the response")
                .to_owned(),
            public_key: made["public_key"].as_str().map(str::to_owned),
            _server: server,
            receiver,
            api,
        }
    }

    /// Sends an event and returns the request that arrives.
    async fn arrival(&mut self) -> Arrival {
        let before = self.receiver.count();
        let event = json!({"type": "a.b", "payload": {"hello": "world"}});
        self.api.event("acme", event).await;
        self.receiver.arrivals(before + 1).await.remove(before)
    }

    async fn rotate(&mut self, body: Value) -> Value {
        let path = format!("{}/secret/rotate", self.endpoint);
        self.api.post(&path, body).await.expect(200)
    }
}

/// Returns the HMAC-SHA256 in hexadecimal, as OpenSSL prints it.
fn hex_tag(secret: &str, parts: &[&[u8]]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, &parts.concat());
    tag.as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn signed_content(arrival: &Arrival) -> Vec<u8> {
    let (id, time) = (arrival.delivery(), arrival.header("webhook-timestamp"));
    [format!("{id}.{time}.").as_bytes(), &arrival.body].concat()
}

fn signatures(arrival: &Arrival, version: &str) -> Vec<Vec<u8>> {
    let all = arrival.header("webhook-signature").split(' ');
    let of_it = all.filter_map(|one| one.strip_prefix(version)?.strip_prefix(','));
    of_it
        .map(|text| BASE64_STANDARD.decode(text).expect("base64"))
        .collect()
}

/// Verifies Ed25519 with the public key only.
fn verifies(public_key: &str, arrival: &Arrival) -> bool {
    let key = public_key.strip_prefix("whpk_").expect("the prefix");
    let key = BASE64_STANDARD.decode(key).expect("base64");
    let key = signature::UnparsedPublicKey::new(&signature::ED25519, key);
    let content = signed_content(arrival);
    let found = signatures(arrival, "v1a");
    found.iter().any(|one| key.verify(&content, one).is_ok())
}

fn official(secret: &str, arrival: &Arrival) -> bool {
    let webhook = standardwebhooks::Webhook::new(secret).expect("a secret");
    webhook.verify(&arrival.body, &arrival.headers).is_ok()
}

#[tokio::test]
async fn a_key_pair_signs_and_its_public_half_verifies_through_rotations() {
    let mut world = SignedEndpoint::start(json!({"secret_kind": "ed25519"})).await;
    let first = world.public_key.clone().expect("a secret in the response");
    let arrival = world.arrival().await;
    assert!(verifies(&first, &arrival));
    assert!(signatures(&arrival, "v1").is_empty());
    // During the overlap both kinds sign.
    let rotated = world.rotate(json!({"secret_kind": "hmac"})).await;
    let shared = rotated["secret"].as_str().expect("a secret").to_owned();
    let arrival = world.arrival().await;
    assert!(verifies(&first, &arrival) && official(&shared, &arrival));
    let rotated = world
        .rotate(json!({"secret_kind": "ed25519", "overlap": "1h"}))
        .await;
    let second = rotated["public_key"]
        .as_str()
        .expect("a public key")
        .to_owned();
    let arrival = world.arrival().await;
    assert!(verifies(&first, &arrival) && verifies(&second, &arrival));
    assert!(official(&shared, &arrival));
    // After it only the newest one signs.
    let rotated = world
        .rotate(json!({"secret_kind": "ed25519", "overlap": "0s"}))
        .await;
    let third = rotated["public_key"]
        .as_str()
        .expect("a public key")
        .to_owned();
    let arrival = world.arrival().await;
    assert!(verifies(&third, &arrival));
    assert!(!verifies(&first, &arrival) && !verifies(&second, &arrival));
    assert!(signatures(&arrival, "v1").is_empty());
}

#[tokio::test]
async fn github_s_style_signs_with_the_newest_secret() {
    let fields = json!({"signature_style": "github", "secret": OPAQUE});
    let mut world = SignedEndpoint::start(fields).await;
    assert_eq!(world.secret, OPAQUE);
    let arrival = world.arrival().await;
    let expected = format!("sha256={}", hex_tag(OPAQUE, &[&arrival.body]));
    assert_eq!(arrival.header("x-hub-signature-256"), expected);
    // The standard signature uses the bytes of the secret's text.
    let key = hmac::Key::new(hmac::HMAC_SHA256, OPAQUE.as_bytes());
    let standard = signatures(&arrival, "v1");
    assert!(hmac::verify(&key, &signed_content(&arrival), &standard[0]).is_ok());
    assert!(!arrival.headers.contains_key("stripe-signature"));
    let rotated = world.rotate(json!({"overlap": "1h"})).await;
    let newest = rotated["secret"].as_str().expect("a secret").to_owned();
    let arrival = world.arrival().await;
    let expected = format!("sha256={}", hex_tag(&newest, &[&arrival.body]));
    assert_eq!(arrival.header("x-hub-signature-256"), expected);
    assert_eq!(signatures(&arrival, "v1").len(), 2);
    assert!(official(&newest, &arrival));
}

#[tokio::test]
async fn stripe_s_style_signs_with_every_secret() {
    let mut world = SignedEndpoint::start(json!({"signature_style": "stripe"})).await;
    let first = world.secret.clone();
    let rotated = world.rotate(json!({"overlap": "1h"})).await;
    let newest = rotated["secret"].as_str().expect("a secret").to_owned();
    let arrival = world.arrival().await;
    let time = arrival.header("webhook-timestamp");
    let tag = |secret: &str| hex_tag(secret, &[time.as_bytes(), b".", &arrival.body]);
    let expected = format!("t={time},v1={},v1={}", tag(&newest), tag(&first));
    assert_eq!(arrival.header("stripe-signature"), expected);
    assert!(official(&newest, &arrival) && official(&first, &arrival));
    assert!(!arrival.headers.contains_key("x-hub-signature-256"));
}
