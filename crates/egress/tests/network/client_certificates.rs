//! Receivers that require a client certificate (mutual TLS).
//!
//! A request with a trusted identity is accepted; a missing or untrusted one has its own send error. Invalid
//! identities are refused when they are parsed, keys of every supported kind work, and no debug form shows a key.

use std::sync::Arc;

use posthaste_core::classify::TransportError;
use posthaste_egress::{
    Client, ClientIdentity, IdentityError, MAX_CHAIN, PoolKey, Request, SendError, SendReport,
};
use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
};
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedProtocolVersion, pki_types::PrivatePkcs8KeyDer};

use crate::fixture::*;
use crate::tls::{Authority, NAME, secured, trusting};

const RSA: &str = include_str!("../keys/rsa.pem");
const RSA_PKCS1: &str = include_str!("../keys/rsa-pkcs1.pem");
const P256_SEC1: &str = include_str!("../keys/p256-sec1.pem");
const P521: &str = include_str!("../keys/p521.pem");
const ENCRYPTED: &str = include_str!("../keys/encrypted.pem");

/// Issues a client certificate for this key, in PEM.
fn certificate(authority: &Authority, key: &KeyPair) -> String {
    let params = CertificateParams::new(["sender.example".to_owned()]).unwrap();
    params.signed_by(key, authority.issuer()).unwrap().pem()
}

fn identity(authority: &Authority) -> ClientIdentity {
    let key = KeyPair::generate().unwrap();
    let chain = certificate(authority, &key);
    ClientIdentity::from_pem(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
}

/// Starts a receiver that accepts client certificates issued by `guests`.
async fn guarded(
    authority: &Authority,
    guests: &Authority,
    version: &'static SupportedProtocolVersion,
) -> Receiver {
    let mut roots = RootCertStore::empty();
    roots.add(guests.issuer().der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([NAME.to_owned()]).unwrap();
    let own = params.signed_by(&key, authority.issuer()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![own.into()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap();
    secured(Arc::new(config), OK).await
}

async fn post_as(
    client: &Client,
    receiver: &Receiver,
    identity: Option<&ClientIdentity>,
) -> SendReport {
    let request = Request {
        identity: identity.cloned(),
        ..request(&receiver.named("https", NAME))
    };
    client.send(request).await.unwrap()
}

#[tokio::test]
async fn a_trusted_client_certificate_is_accepted() {
    let (authority, guests) = (Authority::new(), Authority::named("Guests"));
    for version in [&TLS13, &TLS12] {
        let receiver = guarded(&authority, &guests, version).await;
        let client = trusting(authority.roots());
        let known = identity(&guests);
        for reused in [false, true] {
            let report = post_as(&client, &receiver, Some(&known)).await;
            assert_eq!((status(&report), report.reused), (200, reused));
        }
    }
}

#[tokio::test]
async fn a_missing_or_untrusted_client_certificate_has_its_own_error() {
    let (authority, guests) = (Authority::new(), Authority::named("Guests"));
    let strangers = Authority::named("Strangers");
    for version in [&TLS13, &TLS12] {
        let mut receiver = guarded(&authority, &guests, version).await;
        let client = trusting(authority.roots());
        for (shown, send_error) in [
            (None, SendError::ClientCertificateRequired),
            (
                Some(identity(&strangers)),
                SendError::ClientCertificateRefused,
            ),
        ] {
            let report = post_as(&client, &receiver, shown.as_ref()).await;
            assert_eq!(report.send_error, Some(send_error), "{version:?}");
            assert_eq!(fault(&report), TransportError::Tls);
            assert!(report.detail().contains("client certificate"));
            assert_eq!(client.idle_connections(), 0);
        }
        assert_eq!(receiver.untaken_requests(), 0, "no request was accepted");
    }
}

#[tokio::test]
async fn an_identity_that_is_not_requested_is_harmless() {
    let authority = Authority::new();
    let receiver = secured(authority.server(NAME, (2020, 2100), &[]), OK).await;
    let client = trusting(authority.roots());
    let report = post_as(&client, &receiver, Some(&identity(&authority))).await;
    assert_eq!(status(&report), 200);
}

#[tokio::test]
async fn connections_are_not_shared_between_identities() {
    let (authority, guests) = (Authority::new(), Authority::named("Guests"));
    let receiver = guarded(&authority, &guests, &TLS13).await;
    let client = trusting(authority.roots());
    let (one, other) = (identity(&guests), identity(&guests));
    assert!(!post_as(&client, &receiver, Some(&one)).await.reused);
    assert!(post_as(&client, &receiver, Some(&one)).await.reused);
    assert!(!post_as(&client, &receiver, Some(&other)).await.reused);
    // A request without the identity must not use the connection of one with it.
    let report = post_as(&client, &receiver, None).await;
    assert_eq!(
        report.send_error,
        Some(SendError::ClientCertificateRequired)
    );
    let of_another = Request {
        pool_key: PoolKey::new("globex"),
        identity: Some(one),
        ..request(&receiver.named("https", NAME))
    };
    assert!(!client.send(of_another).await.unwrap().reused);
}

#[tokio::test]
async fn every_kind_of_private_key_can_be_used() {
    let (authority, guests) = (Authority::new(), Authority::named("Guests"));
    let generated = [
        &PKCS_ECDSA_P256_SHA256,
        &PKCS_ECDSA_P384_SHA384,
        &PKCS_ED25519,
    ];
    let mut keys: Vec<(KeyPair, String)> = generated
        .into_iter()
        .map(|kind| {
            let key = KeyPair::generate_for(kind).unwrap();
            let pem = key.serialize_pem();
            (key, pem)
        })
        .collect();
    let rsa = || KeyPair::from_pem(RSA).unwrap();
    keys.push((rsa(), RSA.to_owned()));
    keys.push((rsa(), RSA_PKCS1.to_owned()));
    for version in [&TLS13, &TLS12] {
        let receiver = guarded(&authority, &guests, version).await;
        let client = trusting(authority.roots());
        for (key, pem) in &keys {
            let chain = certificate(&guests, key);
            let known = ClientIdentity::from_pem(chain.as_bytes(), pem.as_bytes()).unwrap();
            let report = post_as(&client, &receiver, Some(&known)).await;
            assert_eq!(status(&report), 200, "{:?}", key.algorithm());
        }
    }
}

#[test]
fn invalid_identities_are_refused_when_parsed() {
    let authority = Authority::new();
    let key = KeyPair::generate().unwrap();
    let chain = certificate(&authority, &key);
    let pem = key.serialize_pem();
    let read = |chain: &str, key: &str| ClientIdentity::from_pem(chain.as_bytes(), key.as_bytes());
    let refused = |chain: &str, key: &str| read(chain, key).err();
    assert_eq!(refused(&chain, &pem), None);
    let sec1 = refused(&chain, P256_SEC1);
    assert_eq!(
        sec1,
        Some(IdentityError::Mismatch),
        "the SEC1 key is parsed"
    );
    assert_eq!(refused(&chain, RSA), Some(IdentityError::Mismatch));
    assert_eq!(refused(&chain, ENCRYPTED), Some(IdentityError::Key));
    assert_eq!(refused(&chain, P521), Some(IdentityError::Key));
    assert_eq!(refused(&chain, ""), Some(IdentityError::Key));
    assert_eq!(refused(&chain, &chain), Some(IdentityError::Key));
    assert_eq!(refused("", &pem), Some(IdentityError::NoCertificate));
    assert_eq!(refused(&pem, &pem), Some(IdentityError::NoCertificate));
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let found = refused(nonsense, &pem);
    assert_eq!(found, Some(IdentityError::Certificate(1)));
    let broken = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
    let found = refused(&format!("{chain}{broken}"), &pem);
    assert_eq!(found, Some(IdentityError::Certificate(2)));
    assert_eq!(refused(&chain.repeat(MAX_CHAIN), &pem), None);
    let found = refused(&chain.repeat(MAX_CHAIN + 1), &pem);
    assert_eq!(found, Some(IdentityError::LongChain));
}

#[test]
fn a_key_is_in_no_debug_form() {
    let authority = Authority::new();
    let known = identity(&authority);
    assert_eq!(format!("{known:?}"), "Identity(…)");
    let request = Request {
        identity: Some(known),
        ..request("https://127.0.0.1/")
    };
    assert!(!format!("{request:?}").contains("PRIVATE"));
}
