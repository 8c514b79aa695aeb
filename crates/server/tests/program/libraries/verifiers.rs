//! The libraries that verify signatures, and the calls to them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::fixture::Arrival;

/// The library or algorithm that verifies a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verifier {
    /// The official `standardwebhooks` libraries. They accept text only.
    Standard,
    /// HMAC-SHA256 as in the specification, for bodies that are not text.
    Hmac,
    /// Ed25519 as in the specification: no official library supports `v1a`.
    Ed25519,
    /// GitHub's signatures: `@octokit/webhooks-methods`, and the code in GitHub's documentation.
    GitHub,
    /// Stripe's signatures: the official `stripe` libraries.
    Stripe,
}

impl Verifier {
    fn name(self) -> &'static str {
        match self {
            Verifier::Standard => "standardwebhooks",
            Verifier::Hmac => "hmac",
            Verifier::Ed25519 => "ed25519",
            Verifier::GitHub => "github",
            Verifier::Stripe => "stripe",
        }
    }
}

/// A request as it arrived, or a modified copy.
#[derive(Clone, Debug)]
pub(crate) struct SignedRequest {
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Bytes,
}

impl SignedRequest {
    /// Returns a copy with another header.
    pub(crate) fn with_header(&self, name: &'static str, value: &str) -> SignedRequest {
        let mut request = self.clone();
        let value = value.parse().expect("a header");
        request.headers.insert(name, value);
        request
    }

    /// Returns a copy with another body.
    pub(crate) fn with_body(&self, body: &[u8]) -> SignedRequest {
        SignedRequest {
            body: Bytes::copy_from_slice(body),
            ..self.clone()
        }
    }
}

impl From<&Arrival> for SignedRequest {
    fn from(arrival: &Arrival) -> SignedRequest {
        SignedRequest {
            headers: arrival.headers.clone(),
            body: arrival.body.clone(),
        }
    }
}

/// A request, and the expected result of its verification.
pub(crate) struct SignatureCheck {
    what: String,
    method: Verifier,
    secret: String,
    request: SignedRequest,
    is_valid: bool,
}

/// Claims that are verified together, because starting a verifier is slow.
#[derive(Default)]
pub(crate) struct SignatureChecks(Vec<SignatureCheck>);

impl SignatureChecks {
    /// Claims that this request verifies with this secret.
    pub(crate) fn expect_valid(
        &mut self,
        what: &str,
        method: Verifier,
        secret: &str,
        request: &SignedRequest,
    ) {
        self.claim(what, method, secret, request, true);
    }

    /// Claims that this request does not verify.
    pub(crate) fn refused(
        &mut self,
        what: &str,
        method: Verifier,
        secret: &str,
        request: &SignedRequest,
    ) {
        self.claim(what, method, secret, request, false);
    }

    fn claim(
        &mut self,
        what: &str,
        method: Verifier,
        secret: &str,
        request: &SignedRequest,
        is_valid: bool,
    ) {
        self.0.push(SignatureCheck {
            what: what.to_owned(),
            method,
            secret: secret.to_owned(),
            request: request.clone(),
            is_valid,
        });
    }

    /// Claims that this request verifies, and that every modified copy does not.
    pub(crate) fn expect_valid_and_tamper_proof(
        &mut self,
        what: &str,
        method: Verifier,
        secret: &str,
        request: &SignedRequest,
    ) {
        self.expect_valid(what, method, secret, request);
        let mut longer = request.body.to_vec();
        longer.push(b' ');
        let timestamp: u64 = text(request, "webhook-timestamp").parse().expect("seconds");
        let changed = [
            ("another body", request.with_body(&longer)),
            ("no body", request.with_body(b"")),
            (
                "another id",
                request.with_header("webhook-id", "dlv_another"),
            ),
            (
                "another time",
                request.with_header("webhook-timestamp", &(timestamp + 1).to_string()),
            ),
            (
                "a signature of nothing",
                request.with_header("webhook-signature", "v1,AAAA v1a,AAAA"),
            ),
        ];
        for (change, request) in changed {
            self.refused(&format!("{what}, with {change}"), method, secret, &request);
        }
    }

    /// Verifies every claim with every library.
    pub(crate) fn verify(self) {
        assert!(!self.0.is_empty(), "there are no signatures to check");
        let checks: Vec<Value> = self.0.iter().map(SignatureCheck::written).collect();
        let checks = Value::Array(checks).to_string();
        for (verifier, verdicts) in [
            ("Python", python(&checks)),
            ("JavaScript", javascript(&checks)),
        ] {
            assert_eq!(
                verdicts.len(),
                self.0.len(),
                "{verifier} returned another number of verdicts"
            );
            for (claim, verdict) in self.0.iter().zip(verdicts) {
                assert_eq!(verdict, claim.is_valid, "{verifier}: {}", claim.what);
            }
        }
        for claim in &self.0 {
            let verdict = match claim.method {
                Verifier::Standard => rust(claim),
                Verifier::Hmac | Verifier::Ed25519 | Verifier::GitHub | Verifier::Stripe => {
                    continue;
                }
            };
            assert_eq!(verdict, claim.is_valid, "Rust: {}", claim.what);
        }
    }
}

impl SignatureCheck {
    fn written(&self) -> Value {
        let headers: Map<String, Value> = self
            .request
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), json!(value.to_str().expect("text"))))
            .collect();
        json!({
            "with": self.method.name(),
            "secret": self.secret,
            "headers": headers,
            "body": BASE64_STANDARD.encode(&self.request.body),
        })
    }
}

/// A header, as text.
pub(crate) fn text<'a>(request: &'a SignedRequest, name: &str) -> &'a str {
    let value = request.headers.get(name);
    let value = value.unwrap_or_else(|| panic!("no {name} in {:?}", request.headers));
    value.to_str().expect("text")
}

fn rust(claim: &SignatureCheck) -> bool {
    let webhook = standardwebhooks::Webhook::new(&claim.secret).expect("a secret");
    let verified = webhook.verify(&claim.request.body, &claim.request.headers);
    verified.is_ok()
}

fn python(checks: &str) -> Vec<bool> {
    let program = tools().join("python/bin/python");
    let mut command = Command::new(program);
    command.arg(script("verify.py"));
    ask(command, checks)
}

fn javascript(checks: &str) -> Vec<bool> {
    let mut command = Command::new("node");
    command.arg(script("verify.mjs"));
    command.arg(tools().join("javascript"));
    ask(command, checks)
}

fn script(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("tests/program/libraries").join(name)
}

/// The folder where `scripts/libraries` installs the libraries. Without them the test fails and explains what to do.
fn tools() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tools = workspace.join("target/tools/libraries");
    assert!(
        tools.join("mark").exists(),
        "the libraries that verify deliveries are not installed: run scripts/test, or scripts/libraries alone"
    );
    tools
}

fn ask(mut command: Command, checks: &str) -> Vec<bool> {
    let mut verifier = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the verifier can be started: run scripts/test, which installs it");
    let mut input = verifier.stdin.take().expect("a piped stream");
    input.write_all(checks.as_bytes()).expect("a listener");
    drop(input);
    let output = verifier.wait_with_output().expect("the process ends");
    assert!(output.status.success(), "{command:?} failed");
    serde_json::from_slice(&output.stdout).expect("a list of verdicts")
}
