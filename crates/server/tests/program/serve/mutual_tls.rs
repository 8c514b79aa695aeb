//! Mutual TLS, with a certificate authority that the operator trusts.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::fixture::TestServer;

/// A certificate authority made for one test.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "Test Trust");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    fn issue(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        (certificate, key)
    }

    /// Creates the client certificate of an endpoint.
    fn client(&self, name: &str) -> (CertificateDer<'static>, Value) {
        let (certificate, key) = self.issue(name, ExtendedKeyUsagePurpose::ClientAuth);
        let shown = json!({"certificate": certificate.pem(), "private_key": key.serialize_pem()});
        (certificate.into(), shown)
    }

    /// A receiver on loopback that requires a client certificate of this authority.
    fn receiver(&self) -> ServerConfig {
        let (certificate, key) = self.issue("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a root");
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier.build().expect("a verifier"))
            .with_single_cert(vec![certificate.into()], key)
            .expect("a server")
    }

    /// Creates a configuration that trusts this authority.
    fn trusted(&self, directory: &std::path::Path) -> PathBuf {
        let bundle = directory.join("trust.pem");
        std::fs::write(&bundle, self.0.pem()).expect("written");
        let config = directory.join("posthaste.toml");
        let text = format!("ca_bundle = {:?}\n", bundle.display().to_string());
        std::fs::write(&config, text).expect("written");
        config
    }
}

/// Starts a receiver that answers 200 and records the client certificates.
async fn serve(config: ServerConfig) -> (String, Arc<Mutex<Vec<CertificateDer<'static>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!(
        "https://{}/hook",
        listener.local_addr().expect("a bound address")
    );
    let shown = Arc::new(Mutex::new(Vec::new()));
    let records = shown.clone();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, records) = (acceptor.clone(), records.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let peer = stream.get_ref().1.peer_certificates();
                let peer = peer.expect("a client certificate")[0].clone().into_owned();
                let service = service_fn(move |request: http::Request<Incoming>| {
                    records.lock().unwrap().push(peer.clone());
                    async move {
                        request.into_body().collect().await?;
                        Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::new())))
                    }
                });
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (url, shown)
}

#[tokio::test]
async fn a_receiver_with_mutual_tls_gets_the_client_certificate() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new();
    let config = authority.trusted(directory.path());
    let config = config.to_str().expect("a path");
    let server = TestServer::start_in(directory.path(), &["--config", config]);
    let (url, shown) = serve(authority.receiver()).await;
    let mut api = server.api();
    api.tenant("acme").await;

    // A connection without a certificate is refused.
    let once = json!({"backoff": {"kind": "fixed", "interval": "10ms"}, "max_attempts": 1});
    let fields = json!({"url": url, "retry_policy": once});
    let endpoint = api.endpoint("acme", fields).await;
    let path = format!("/v1/tenants/acme/endpoints/{}", text(&endpoint["id"]));
    let deliver = json!({"type": "a.b", "payload": {}});
    let event = api.event("acme", deliver.clone()).await;
    let delivery = text(&event["deliveries"][0]["id"]);
    let delivery = format!("/v1/tenants/acme/deliveries/{delivery}");
    api.until(&delivery, |body| body["status"] == "failed")
        .await;
    assert!(shown.lock().unwrap().is_empty());

    // With a certificate it is accepted. Another certificate uses another connection.
    for name in ["first.example", "second.example"] {
        let (certificate, fields) = authority.client(name);
        let change = json!({"client_certificate": fields});
        let changed = api.call("PATCH", &path, Some(&change)).await.expect(200);
        let fingerprint = text(&changed["client_certificate"]["fingerprint"]);
        assert!(fingerprint.starts_with("sha256:"), "{changed}");
        let event = api.event("acme", deliver.clone()).await;
        let delivery = text(&event["deliveries"][0]["id"]);
        let delivery = format!("/v1/tenants/acme/deliveries/{delivery}");
        api.until(&delivery, |body| body["status"] == "succeeded")
            .await;
        assert_eq!(shown.lock().unwrap().last(), Some(&certificate), "{name}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
