//! Invalid requests and commands that contain a secret.

use serde_json::{Value, json};

use super::canaries::Canaries;
use super::client::Client;
use super::recorded_server::Program;

const ENDPOINTS: &str = "/v1/tenants/acme/endpoints";
const EVENTS: &str = "/v1/tenants/acme/events";

/// Returns requests with a secret in each field that takes another value.
fn misplaced(secret: &str) -> Vec<(&'static str, Value)> {
    let url = "https://example.com/";
    let mut wrong = vec![("/v1/tenants", json!({"id": format!("no id: {secret}")}))];
    for field in [
        json!({"url": secret}),
        json!({"url": format!("https://{secret}:8080:80/")}),
        json!({"url": format!("ftp://example.com/{secret}")}),
        json!({"url": format!("https://example.com:22/?{secret}")}),
        json!({"timeout": secret}),
        json!({"max_in_flight": secret}),
        json!({"ordered": secret}),
        json!({"rate_limit": secret}),
        json!({"rate_limit": {"per_second": secret}}),
        json!({"event_types": secret}),
        json!({"event_types": [format!("{secret} !")]}),
        json!({"owner_email": secret}),
        json!({"headers": secret}),
        json!({"headers": {"X-A": format!("{secret}\r\nX-B: 1")}}),
        json!({"headers": {"X-A": [secret]}}),
        json!({"headers": {"X-A": format!("{secret}{}", "x".repeat(5_000))}}),
        json!({"description": format!("{secret}{}", "x".repeat(2_000))}),
        json!({"secret": secret}),
        json!({"secret": format!("whsec_{secret}!")}),
        json!({"secret": format!("whsk_{secret}")}),
        json!({"secret": format!("whsec_{}", secret.repeat(100))}),
        json!({"secret": [secret]}),
        json!({"retry_policy": secret}),
        json!({"retry_policy": {"preset": secret}}),
        json!({"retry_policy": {"backoff": {"kind": secret}}}),
        json!({"retry_policy": {"rules": [{"on": secret, "then": secret}]}}),
        json!({"no_such_field": secret}),
        json!({"signature_style": secret}),
        json!({"secret_kind": secret}),
        json!({"auth": secret}),
        json!({"auth": {"kind": secret}}),
        json!({"auth": {"kind": "basic", "username": format!("{secret}:"), "password": secret}}),
        json!({"auth": {"kind": "basic", "username": "a", "password": format!("{secret}\n")}}),
        json!({"auth": {"kind": "basic", "username": "a", "password": [secret]}}),
        json!({"auth": {"kind": "bearer", "token": format!("{secret}\r\nX-A: 1")}}),
        json!({"auth": {"kind": "bearer", "token": secret.repeat(1_000)}}),
        json!({"auth": {"kind": "bearer", "token": secret, "password": secret}}),
        json!({"auth": {"kind": "bearer", "token": secret}, "headers": {"Authorization": secret}}),
        json!({"auth": {"kind": "oauth2", "token_url": secret, "client_id": "a", "client_secret": secret}}),
        json!({"auth": {"kind": "oauth2", "token_url": format!("https://10.0.0.1/{secret}"),
            "client_id": "a", "client_secret": secret, "client_authentication": secret}}),
        json!({"client_certificate": secret}),
        json!({"client_certificate": {"certificate": secret, "private_key": secret}}),
        json!({"client_certificate": {"certificate": format!("-----BEGIN CERTIFICATE-----\n{secret}\n-----END CERTIFICATE-----\n"),
            "private_key": format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n")}}),
    ] {
        let mut endpoint = json!({"url": url});
        for (name, value) in field.as_object().expect("a field") {
            endpoint[name] = value.clone();
        }
        wrong.push((ENDPOINTS, endpoint));
    }
    for event in [
        json!({"type": format!("{secret} !"), "payload": 1}),
        json!({"type": "a", "body_base64": format!("{secret}!")}),
        json!({"type": "a", "body_base64": "", "content_type": format!("{secret}\n")}),
        json!({"type": "a", "payload": 1, "deliver_at": secret}),
        json!({"type": "a", "payload": secret, "body_base64": secret}),
        json!({"type": "a", "payload": 1, "idempotency_key": format!("{secret}\n")}),
        json!({"type": "a", "payload": 1, "ordering_key": [secret]}),
        json!({"payload": secret}),
        json!([secret]),
        json!(secret),
    ] {
        wrong.push((EVENTS, event.clone()));
        wrong.push(("/v1/tenants/acme/events/batch", json!({"events": [event]})));
    }
    for replay in [
        json!({"status": secret}),
        json!({"endpoint": secret}),
        json!({"event_type": format!("{secret} !")}),
        json!({"error_kind": secret}),
        json!({"since": secret}),
        json!({"missed_since": secret}),
    ] {
        wrong.push(("/v1/tenants/acme/replays", replay));
    }
    wrong.push(("/v1/policies/preview", json!({"preset": secret})));
    wrong.push((
        "/v1/policies/simulate",
        json!({"pending": 1, "outage": secret, "capacity": 1}),
    ));
    wrong.push(("/v1/tenants/acme/keys", json!({"name": [secret]})));
    wrong
}

/// Sends all of them.
pub(crate) async fn ask(client: &mut Client, canaries: &Canaries) {
    let secret = canaries.plant("misplaced secret");
    for (path, body) in misplaced(secret) {
        let answer = client.post(path, body.clone()).await;
        assert!((400..500).contains(&answer.status), "{path} took {body}");
    }
    let userinfo = canaries.plant("userinfo password");
    let body = json!({"url": format!("https://me:{userinfo}@example.com/")});
    assert_eq!(client.post(ENDPOINTS, body).await.status, 422);

    // Invalid JSON, with the error at the secret.
    for broken in [
        format!("{{\"secret\":\"{secret}\""),
        format!("{{\"secret\":{secret}}}"),
        format!("{{\"secret\":\"{secret}\n\"}}"),
        format!("{{\"secret\":\"{secret}\\x\"}}"),
        format!("{{\"url\":1,\"url\":\"{secret}\"}}"),
        format!("{secret}={secret}"),
    ] {
        for path in [ENDPOINTS, EVENTS, "/v1/tenants/acme/events/batch"] {
            let answer = client.send("POST", path, &[], broken.clone()).await;
            assert!((400..500).contains(&answer.status), "{path} took {broken}");
        }
    }
    let mut bytes = format!("{{\"secret\":\"{secret}").into_bytes();
    bytes.extend(b"\xff\"}");
    assert_eq!(client.send("POST", ENDPOINTS, &[], bytes).await.status, 400);
    let huge = format!("{{\"payload\":\"{}\"}}", secret.repeat(100_000));
    assert_eq!(client.send("POST", EVENTS, &[], huge).await.status, 413);

    // Unknown keys, in every place where callers put them.
    let key = canaries.plant("wrong key");
    for value in [
        format!("Bearer {key}"),
        format!("Basic {key}"),
        key.to_owned(),
        format!("Bearer {}", key.repeat(20)),
    ] {
        let headers = [("authorization", value.as_str())];
        let answer = client.send("GET", "/v1/tenants", &headers, "").await;
        assert_eq!(answer.status, 401);
    }
    let query = canaries.plant("request query");
    for path in [
        format!("/v1/tenants?key={query}"),
        format!("/v1/tenants?limit={query}"),
        format!("/v1/tenants?cursor={query}"),
        format!("{EVENTS}?since={query}"),
        format!("/v1/tenants/acme/deliveries?endpoint={query}&status={query}&error_kind={query}"),
        format!("/v1/tenants/{query}"),
        format!("{ENDPOINTS}/{query}"),
        format!("/{query}"),
        format!("/v1/tenants/acme/{query}?{query}"),
    ] {
        let answer = client.get(&path).await;
        assert!((400..500).contains(&answer.status), "{path}");
    }
    let answer = client
        .send("BREW", &format!("/v1/tenants?{query}"), &[], "")
        .await;
    assert_eq!(answer.status, 405);
    for (name, value) in [("content-type", "text/plain"), ("content-encoding", "gzip")] {
        let body = json!({"secret": secret}).to_string();
        let answer = client.send("POST", ENDPOINTS, &[(name, value)], body).await;
        assert_eq!(answer.status, 415, "{name}");
    }
    let headers = [("idempotency-key", secret), ("x-forwarded-for", secret)];
    let body = json!({"type": "a", "payload": 1, "idempotency_key": "another"}).to_string();
    let answer = client.send("POST", EVENTS, &headers, body).await;
    assert!((400..500).contains(&answer.status));
}

/// Types the secrets into other commands of the program.
pub(crate) fn type_in(program: &Program, canaries: &Canaries) {
    let secret = canaries.plant("misplaced secret");
    let key = canaries.plant("wrong key");
    let server = format!("http://{}", program.address);
    let known = [
        ("POSTHASTE_KEY", key),
        ("POSTHASTE_SERVER", server.as_str()),
    ];
    let header = format!("Authorization {secret}");
    // The prefix makes it invalid. Any other text could be a secret of another sender.
    let misread = format!("whsec_{secret}!");
    let commands: &[(&str, &[&str])] = &[
        ("cli-refused", &["tenants", "list"]),
        (
            "cli-create",
            &[
                "endpoints",
                "create",
                "https://example.com/",
                "--tenant",
                "acme",
                "--header",
                "X-A: 1",
            ],
        ),
        (
            "cli-header",
            &[
                "endpoints",
                "create",
                "https://example.com/",
                "--tenant",
                "acme",
                "--header",
                &header,
            ],
        ),
        ("cli-key", &["tenants", "list", "--key", secret]),
        ("cli-stray", &["tenants", "list", secret]),
        ("cli-command", &["tenants", secret]),
        (
            "cli-listen",
            &["listen", "--listen", "127.0.0.1:0", "--secret", &misread],
        ),
    ];
    for (name, arguments) in commands {
        let code = program.command(name, arguments, &known);
        assert_ne!(code, 0, "{name} succeeded");
    }
}
