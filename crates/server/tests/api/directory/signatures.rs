//! Signature styles of endpoints, and the kinds of secret that each style needs.

use serde_json::{Value, json};

use crate::fixture::{ApiResponse, TestServer};

const ALL: &str = "/v1/tenants/acme/endpoints";
const URL: &str = "https://example.com/hooks";
const SHARED: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// A secret in the format of another webhook sender.
const OPAQUE: &str = "It's a Secret to Everybody";

async fn create(server: &TestServer, mut fields: Value) -> ApiResponse {
    fields["url"] = json!(URL);
    server.post(ALL, fields).await
}

async fn made(server: &TestServer, fields: Value) -> (ApiResponse, String) {
    let made = create(server, fields).await;
    assert_eq!(made.status, 201, "{}", made.json);
    let path = format!("{ALL}/{}", made.field("id"));
    (made, path)
}

fn private_key() -> String {
    format!("whsk_{}", "A".repeat(43) + "=")
}

fn message(answer: &ApiResponse) -> String {
    let message = answer.json["errors"][0]["message"].as_str();
    message.expect("a message").to_owned()
}

#[tokio::test]
async fn a_signature_style_is_stored_and_null_restores_the_default() {
    let server = TestServer::with_acme().await;
    for style in ["standard", "github", "stripe"] {
        let (made, path) = made(&server, json!({"signature_style": style})).await;
        assert_eq!(made.json["signature_style"], style);
        assert_eq!(server.get(&path).await.json["signature_style"], style);
        let back = server.patch(&path, json!({"signature_style": null})).await;
        assert_eq!(back.json["signature_style"], "standard");
    }
    for wrong in [json!("GitHub"), json!(""), json!(1), json!(["github"])] {
        let refused = create(&server, json!({"signature_style": wrong})).await;
        assert_eq!(refused.wrong_fields(), ["signature_style"]);
    }
}

#[tokio::test]
async fn a_generated_secret_has_the_requested_kind() {
    let server = TestServer::with_acme().await;
    for (fields, prefix) in [
        (json!({}), "whsec_"),
        (json!({"secret_kind": null}), "whsec_"),
        (json!({"secret_kind": "hmac"}), "whsec_"),
        (json!({"secret_kind": "ed25519"}), "whsk_"),
        (
            json!({"secret_kind": "ed25519", "secret": private_key()}),
            "whsk_",
        ),
        (json!({"secret_kind": "hmac", "secret": SHARED}), "whsec_"),
    ] {
        let (made, path) = made(&server, fields.clone()).await;
        assert!(made.field("secret").starts_with(prefix), "{fields}");
        let shown = server.get(&format!("{path}/secret")).await;
        assert_eq!(shown.json["secret"], made.json["secret"]);
        let public = made.json.get("public_key");
        assert_eq!(public.is_some(), prefix == "whsk_", "{fields}");
        assert_eq!(shown.json.get("public_key"), public);
        if let Some(public) = public {
            assert!(public.as_str().expect("a text").starts_with("whpk_"));
        }
        let read = server.get(&path).await.json;
        assert_eq!((read.get("secret"), read.get("public_key")), (None, None));
    }
    let refused = create(&server, json!({"secret_kind": "rsa"})).await;
    assert_eq!(refused.wrong_fields(), ["secret_kind"]);
    for (kind, secret) in [("ed25519", SHARED.to_owned()), ("hmac", private_key())] {
        let fields = json!({"secret_kind": kind, "secret": secret});
        let refused = create(&server, fields).await;
        assert_eq!(refused.wrong_fields(), ["secret_kind"], "{kind}");
    }
}

#[tokio::test]
async fn a_foreign_secret_is_accepted_with_its_style() {
    let server = TestServer::with_acme().await;
    for style in ["github", "stripe"] {
        let fields = json!({"signature_style": style, "secret": OPAQUE});
        let (made, path) = made(&server, fields).await;
        assert_eq!(made.field("secret"), OPAQUE);
        let shown = server.get(&format!("{path}/secret")).await;
        assert_eq!(shown.json, json!({"secret": OPAQUE, "previous": []}));
        // The standard style cannot use it alone.
        let refused = server.patch(&path, json!({"signature_style": null})).await;
        assert_eq!(refused.wrong_fields(), ["signature_style"]);
        assert!(message(&refused).contains("/secret/rotate"));
        assert!(!message(&refused).contains(OPAQUE));
        let rotate = format!("{path}/secret/rotate");
        let other = json!({"secret": "another one of the kind"});
        assert_eq!(server.post(&rotate, other).await.status, 200);
        let own = server.post(&rotate, json!({})).await;
        assert_eq!(own.json["previous"][1]["secret"], OPAQUE);
        let back = server.patch(&path, json!({"signature_style": null})).await;
        assert_eq!(back.status, 200, "{}", back.json);
        let refused = server
            .post(&rotate, json!({"secret": "yet another one of it"}))
            .await;
        assert_eq!(refused.wrong_fields(), ["secret"]);
        assert!(
            message(&refused).contains("github"),
            "{}",
            message(&refused)
        );
    }
    let refused = create(&server, json!({"secret": OPAQUE})).await;
    assert_eq!(refused.wrong_fields(), ["secret"]);
    let style = json!({"signature_style": "github", "secret": "too short"});
    assert_eq!(create(&server, style).await.wrong_fields(), ["secret"]);
    let style = json!({"signature_style": "github", "secret": "whpk_AAAAAAAAAAAAAAAAAAAAAAAA"});
    assert_eq!(create(&server, style).await.wrong_fields(), ["secret"]);
}

#[tokio::test]
async fn a_style_with_a_shared_secret_requires_one() {
    let server = TestServer::with_acme().await;
    for style in ["github", "stripe"] {
        let fields = json!({"signature_style": style, "secret_kind": "ed25519"});
        let refused = create(&server, fields).await;
        assert_eq!(refused.wrong_fields(), ["secret_kind"]);
        assert!(message(&refused).contains("hmac") && message(&refused).contains(style));
        let fields = json!({"signature_style": style, "secret": private_key()});
        assert_eq!(create(&server, fields).await.wrong_fields(), ["secret"]);
        // A change to the style is refused, too.
        let (_, path) = made(&server, json!({"secret_kind": "ed25519"})).await;
        let wish = json!({"signature_style": style});
        let refused = server.patch(&path, wish.clone()).await;
        assert_eq!(refused.wrong_fields(), ["signature_style"]);
        assert!(message(&refused).contains("\"secret_kind\": \"hmac\""));
        let rotate = format!("{path}/secret/rotate");
        server.post(&rotate, json!({"secret_kind": "hmac"})).await;
        assert_eq!(server.patch(&path, wish).await.status, 200);
        // A rotation to another kind is refused: after the overlap no shared secret would be left.
        for wish in [
            json!({"secret_kind": "ed25519", "overlap": "30d"}),
            json!({"secret": private_key()}),
        ] {
            let field = wish.as_object().expect("an object").keys().next().cloned();
            let refused = server.post(&rotate, wish).await;
            assert_eq!(refused.wrong_fields(), [field.expect("one")]);
        }
    }
}

#[tokio::test]
async fn a_secret_can_be_rotated_to_another_kind() {
    let server = TestServer::with_acme().await;
    let (made, path) = made(&server, json!({})).await;
    let rotate = format!("{path}/secret/rotate");
    let rotated = server
        .post(&rotate, json!({"secret_kind": "ed25519"}))
        .await;
    assert!(rotated.field("secret").starts_with("whsk_"));
    let public = rotated.field("public_key");
    assert!(public.starts_with("whpk_"));
    assert_eq!(rotated.json["previous"][0]["secret"], made.json["secret"]);
    let back = server.post(&rotate, json!({})).await;
    assert!(back.field("secret").starts_with("whsec_"));
    assert_eq!(back.json.get("public_key"), None);
    assert_eq!(back.json["previous"][0]["public_key"], public.as_str());
    for wrong in [
        json!({"secret_kind": "x"}),
        json!({"secret_kind": "hmac", "secret": private_key()}),
    ] {
        let refused = server.post(&rotate, wrong).await;
        assert_eq!(refused.wrong_fields(), ["secret_kind"]);
    }
}
