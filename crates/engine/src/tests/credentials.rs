//! Tests of the credentials that deliveries carry besides their signature.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::HeaderMap;
use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::sign::SignatureStyle;
use posthaste_store::{Endpoint, Lists, ReplaceResult, Store};
use tokio::sync::Semaphore;

use super::Fixture;
use super::http_server::serve;
use super::token_server::{TokenServer, token};
use crate::credentials::{Auth, ClientAuthentication, Credentials, OAuth2};
use crate::vault::Purpose;

type ChooseStatus = Box<dyn Fn(&HeaderMap) -> u16 + Send + Sync>;

/// A receiver that keeps the request headers and derives the response status from them.
struct HeaderReceiver {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<HeaderMap>>>,
    /// Client port of each request: one port is one connection.
    ports: Arc<Mutex<Vec<u16>>>,
    choose_status: Arc<Mutex<Arc<ChooseStatus>>>,
    /// A response waits for one of these permits.
    permits: Arc<Semaphore>,
}

/// More requests than ever wait at once.
const MAX_WAITING: u32 = 100;

impl HeaderReceiver {
    async fn start() -> HeaderReceiver {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let ports = Arc::new(Mutex::new(Vec::new()));
        let choose_status: ChooseStatus = Box::new(|_| 200);
        let choose_status = Arc::new(Mutex::new(Arc::new(choose_status)));
        let permits = Arc::new(Semaphore::new(MAX_WAITING as usize));
        let shared = (heads.clone(), choose_status.clone(), permits.clone());
        let arrived_ports = ports.clone();
        let address = serve(move |request| {
            let (heads, choose_status, permits) = shared.clone();
            arrived_ports.lock().unwrap().push(request.client_port);
            async move {
                drop(permits.acquire().await);
                let choose_status = choose_status.lock().unwrap().clone();
                let status = choose_status(&request.headers);
                heads.lock().unwrap().push(request.headers);
                (status, Bytes::new())
            }
        });
        HeaderReceiver {
            address: address.await,
            heads,
            ports,
            choose_status,
            permits,
        }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn choose_status(&self, choose_status: impl Fn(&HeaderMap) -> u16 + Send + Sync + 'static) {
        *self.choose_status.lock().unwrap() = Arc::new(Box::new(choose_status));
    }

    /// Waits until `wanted` requests have arrived, and returns their client ports.
    async fn arrivals(&self, wanted: usize) -> Vec<u16> {
        loop {
            let ports = self.ports.lock().unwrap().clone();
            if ports.len() >= wanted {
                return ports;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the values of this header, in order of arrival.
    fn header_values(&self, name: &str) -> Vec<String> {
        let heads = self.heads.lock().unwrap();
        let value = |head: &HeaderMap| head[name].to_str().unwrap().to_owned();
        heads.iter().map(value).collect()
    }
}

impl Fixture {
    fn seal_auth(&self, endpoint: &mut Endpoint, auth: Auth) {
        let credentials = Credentials {
            auth: Some(auth),
            client_certificate: None,
        };
        endpoint.sealed_credentials = self.vault.seal(
            &endpoint.tenant,
            endpoint.id,
            Purpose::Credentials,
            &credentials.to_stored(),
        );
    }

    async fn authorized(&self, url: String, auth: Auth) -> EndpointId {
        let adjust = |endpoint: &mut Endpoint| self.seal_auth(endpoint, auth);
        self.endpoint_with(url, adjust).await
    }
}

fn bearer(token: &str) -> Auth {
    Auth::Bearer {
        token: token.to_owned(),
    }
}

fn oauth2(server: &TokenServer) -> Auth {
    Auth::OAuth2(OAuth2 {
        token_url: server.url(),
        client_id: "me".to_owned(),
        client_secret: "secret".to_owned(),
        scope: None,
        audience: None,
        client_authentication: ClientAuthentication::Body,
    })
}

#[tokio::test]
async fn a_changed_credential_arrives_and_on_another_connection() {
    let fixture = Fixture::start().await;
    let receiver = HeaderReceiver::start().await;
    let basic = Auth::Basic {
        username: "Aladdin".to_owned(),
        password: "open sesame".to_owned(),
    };
    let id = fixture.authorized(receiver.url(), basic).await;
    for _ in 0..2 {
        let delivery = fixture.events(1).await[0];
        fixture.until(delivery, Status::Succeeded).await;
    }
    let mut row = fixture.store.endpoint(id).await.unwrap().unwrap().endpoint;
    fixture.seal_auth(&mut row, bearer("abc"));
    let replaced = fixture
        .store
        .replace_endpoint(fixture.clock.wall(), row)
        .await;
    assert_eq!(replaced, Ok(ReplaceResult::Done));
    fixture.engine.changed(id);
    let delivery = fixture.events(1).await[0];
    fixture.until(delivery, Status::Succeeded).await;
    let basic = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
    assert_eq!(
        receiver.header_values("authorization"),
        [basic, basic, "Bearer abc"]
    );
    let ports = receiver.ports.lock().unwrap();
    assert_eq!(ports[0], ports[1], "a connection is used again");
    assert_ne!(ports[1], ports[2], "but not with other credentials");
}

/// Even a connection that was in use while the URL was changed, and that leads to the same host, is not reused.
#[tokio::test]
async fn a_connection_that_comes_back_late_does_not_serve_another_url() {
    let fixture = Fixture::start().await;
    let receiver = HeaderReceiver::start().await;
    let id = fixture.endpoint(receiver.url()).await;
    let hold = receiver.permits.acquire_many(MAX_WAITING).await.unwrap();
    let mut deliveries = fixture.events(1).await;
    receiver.arrivals(1).await;
    let mut row = fixture.store.endpoint(id).await.unwrap().unwrap().endpoint;
    row.url.push_str("other");
    let replaced = fixture
        .store
        .replace_endpoint(fixture.clock.wall(), row)
        .await;
    assert_eq!(replaced, Ok(ReplaceResult::Done));
    fixture.engine.changed(id);
    deliveries.extend(fixture.events(1).await);
    receiver.arrivals(2).await;
    drop(hold);
    for delivery in deliveries.drain(..) {
        fixture.until(delivery, Status::Succeeded).await;
    }
    let hold = receiver.permits.acquire_many(MAX_WAITING).await.unwrap();
    deliveries.extend(fixture.events(2).await);
    let ports = receiver.arrivals(4).await;
    drop(hold);
    assert!(!ports[1..].contains(&ports[0]), "{ports:?}");
    assert!(ports[2..].contains(&ports[1]), "{ports:?}");
    for delivery in deliveries {
        fixture.until(delivery, Status::Succeeded).await;
    }
}

#[tokio::test]
async fn the_standard_signature_comes_with_every_style() {
    let fixture = Fixture::start().await;
    let receiver = HeaderReceiver::start().await;
    for style in [SignatureStyle::GitHub, SignatureStyle::Stripe] {
        let adjust = |endpoint: &mut Endpoint| endpoint.signature_style = style;
        let endpoint = fixture.endpoint_with(receiver.url(), adjust).await;
        let delivery = fixture.events(1).await[0];
        fixture.until(delivery, Status::Succeeded).await;
        let gone = EndpointStatus::Deleted;
        fixture
            .engine
            .set_status(endpoint, gone, None)
            .await
            .unwrap();
    }
    let heads = receiver.heads.lock().unwrap();
    let names = [
        "webhook-signature",
        "x-hub-signature-256",
        "stripe-signature",
    ];
    let has = |head: &HeaderMap| names.map(|name| head.contains_key(name));
    assert_eq!(has(&heads[0]), [true, true, false]);
    assert_eq!(has(&heads[1]), [true, false, true]);
}

#[tokio::test]
async fn one_token_serves_every_delivery() {
    let fixture = Fixture::start().await;
    let (receiver, server) = (HeaderReceiver::start().await, TokenServer::start().await);
    fixture.authorized(receiver.url(), oauth2(&server)).await;
    for delivery in fixture.events(60).await {
        fixture.until(delivery, Status::Succeeded).await;
    }
    assert_eq!(
        receiver.header_values("authorization"),
        vec!["Bearer t1"; 60]
    );
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_401_to_a_kept_token_is_tried_again_with_a_fresh_one() {
    let fixture = Fixture::start().await;
    let (receiver, server) = (HeaderReceiver::start().await, TokenServer::start().await);
    fixture.authorized(receiver.url(), oauth2(&server)).await;
    let first = fixture.events(1).await[0];
    fixture.until(first, Status::Succeeded).await;
    receiver.choose_status(|head| {
        if head["authorization"] == "Bearer t1" {
            401
        } else {
            200
        }
    });
    let second = fixture.events(1).await[0];
    let stored = fixture.until(second, Status::Succeeded).await;
    assert_eq!(stored.delivery.facts().attempts, 2);
    assert_eq!(
        receiver.header_values("authorization"),
        ["Bearer t1", "Bearer t1", "Bearer t2"]
    );
}

#[tokio::test]
async fn a_401_to_a_fresh_token_is_an_answer_like_any_other() {
    let fixture = Fixture::start().await;
    let (receiver, server) = (HeaderReceiver::start().await, TokenServer::start().await);
    fixture.authorized(receiver.url(), oauth2(&server)).await;
    receiver.choose_status(|_| 401);
    let first = fixture.events(1).await[0];
    let stored = fixture.until(first, Status::Failed).await;
    assert_eq!(stored.delivery.facts().attempts, 1);
    // The next delivery cannot know whether the token has been revoked since, so a 401 makes it fetch a new one.
    let second = fixture.events(1).await[0];
    let stored = fixture.until(second, Status::Failed).await;
    assert_eq!(stored.delivery.facts().attempts, 2);
    assert_eq!(
        receiver.header_values("authorization"),
        ["Bearer t1", "Bearer t1", "Bearer t2"]
    );
}

#[tokio::test]
async fn a_hiccup_of_the_token_server_costs_one_attempt() {
    let fixture = Fixture::start().await;
    let (receiver, server) = (HeaderReceiver::start().await, TokenServer::start().await);
    server.behave(|number| match number {
        1 => (503, Bytes::new()),
        _ => (200, token(number).to_string().into()),
    });
    fixture.authorized(receiver.url(), oauth2(&server)).await;
    let delivery = fixture.events(1).await[0];
    let stored = fixture.until(delivery, Status::Succeeded).await;
    assert_eq!(stored.delivery.facts().attempts, 2);
    assert_eq!(receiver.header_values("authorization"), ["Bearer t2"]);
}

#[tokio::test]
async fn without_a_token_the_receiver_is_not_called() {
    let fixture = Fixture::start().await;
    let (receiver, server) = (HeaderReceiver::start().await, TokenServer::start().await);
    server.say(400, r#"{"error":"unauthorized_client"}"#);
    fixture.authorized(receiver.url(), oauth2(&server)).await;
    let delivery = fixture.events(1).await[0];
    fixture.until(delivery, Status::Failed).await;
    assert!(receiver.header_values("authorization").is_empty());
    let found = fixture
        .store
        .delivery(fixture.tenant.clone(), delivery)
        .await;
    let (_, attempts) = found.unwrap().expect("it is there");
    let expected = "no access token: the token server responded with 400 (unauthorized_client)";
    assert_eq!(attempts.len(), 4);
    for attempt in attempts {
        assert_eq!(attempt.detail.as_deref(), Some(expected));
        assert_eq!(attempt.error_kind, Some(FailureKind::Unknown));
        assert_eq!(attempt.status_code, None);
    }
}
