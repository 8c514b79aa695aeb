//! All credentials of endpoints except signatures, accepted and refused.

use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use super::fixture::{Answer, Arrival, Receiver};
use super::leak_scenario::{CanaryFixture, rude};

/// Returns the received credentials, to be sent back.
fn said(arrival: &Arrival) -> Value {
    json!(arrival.header("authorization"))
}

/// Starts a receiver that is also a token server. The path decides how it answers.
async fn both(fixture: &CanaryFixture) -> Receiver {
    let token = fixture.canaries.plant("fetched token");
    let refused = fixture.canaries.plant("refused token");
    Receiver::start(move |arrival| {
        let (status, body) = match arrival.path.as_str() {
            "/token" => (
                200,
                json!({"access_token": token, "token_type": "Bearer", "expires_in": 3_600}),
            ),
            "/no-client" => (
                401,
                json!({"error": "invalid_client", "error_description": refused, "access_token": refused}),
            ),
            "/no-bearer" => (200, json!({"access_token": refused, "token_type": "mac"})),
            "/no-object" => (200, json!([refused])),
            "/no-token" => (200, json!({"access_token": [refused], "token_type": refused})),
            "/bad-token" => (
                200,
                json!({"access_token": format!("{refused}\r\nX-A: 1"), "token_type": "Bearer"}),
            ),
            "/unwelcome" => (401, json!({"error": "go away", "you": said(arrival)})),
            _ => (200, said(arrival)),
        };
        Answer {
            body: body.to_string().into(),
            ..Answer::status(status)
        }
    })
    .await
}

fn certificate(fixture: &mut CanaryFixture) -> Value {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["client.example".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let name = "private key of a certificate";
    fixture.canaries.add_private_key(name, &key.serialize_der());
    json!({"certificate": certificate.pem(), "private_key": key.serialize_pem()})
}

/// Uses each kind of credential, and makes each fail that can.
pub(crate) async fn use_all(fixture: &mut CanaryFixture) {
    let receiver = both(fixture).await;
    let there = format!("http://{}", receiver.address);
    let oauth2 = |path: &str, place: &str| {
        json!({"kind": "oauth2", "token_url": format!("{there}{path}"), "client_id": "me",
            "client_secret": fixture.canaries.plant("client secret"), "client_authentication": place})
    };
    let basic =
        json!({"kind": "basic", "username": "me", "password": fixture.canaries.plant("password")});
    let key = json!({"kind": "basic", "username": fixture.canaries.plant("key as a name"), "password": ""});
    let bearer = json!({"kind": "bearer", "token": fixture.canaries.plant("bearer token")});
    let cases = [
        ("/hook", "succeeded", basic.clone()),
        ("/hook", "succeeded", key),
        ("/hook", "succeeded", bearer.clone()),
        ("/hook", "succeeded", oauth2("/token", "basic")),
        ("/hook", "succeeded", oauth2("/token", "body")),
        ("/unwelcome", "failed", basic),
        ("/unwelcome", "failed", oauth2("/token", "basic")),
        ("/hook", "failed", oauth2("/no-client", "basic")),
        ("/hook", "failed", oauth2("/no-bearer", "body")),
        ("/hook", "failed", oauth2("/no-object", "basic")),
        ("/hook", "failed", oauth2("/no-token", "basic")),
        ("/hook", "failed", oauth2("/bad-token", "basic")),
    ];
    let mut deliveries = Vec::new();
    for (number, (path, ends, auth)) in cases.into_iter().enumerate() {
        let name = format!("auth{number}");
        // `auth` sets the header that all other endpoints of this test set themselves.
        let more = json!({"auth": auth, "headers": {}});
        fixture
            .endpoint(&name, &format!("{there}{path}"), more)
            .await;
        deliveries.push((ends, fixture.send(&name, json!({})).await));
    }
    let shown = certificate(fixture);
    let silent = rude(String::new()).await;
    let more = json!({"client_certificate": shown});
    fixture
        .endpoint("mutual", &format!("https://{silent}/"), more)
        .await;
    deliveries.push(("failed", fixture.send("mutual", json!({})).await));
    for (ends, delivery) in deliveries {
        fixture.until(&delivery, ends).await;
    }
}
