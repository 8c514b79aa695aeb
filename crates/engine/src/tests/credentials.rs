//! Tests of the credentials that deliveries carry besides their signature.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::Standing;
use posthaste_core::sign::SignatureStyle;
use posthaste_store::{Endpoint, ReplaceResult, Store};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::World;
use super::token_server::{TokenServer, token};
use crate::credentials::{Auth, ClientAuthentication, Credentials, OAuth2};
use crate::vault::Purpose;

type Judge = Box<dyn Fn(&HeaderMap) -> u16 + Send + Sync>;

/// A receiver that keeps the request headers and derives the response status from them.
struct Gate {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<HeaderMap>>>,
    /// Client port of each request: one port is one connection.
    ports: Arc<Mutex<Vec<u16>>>,
    judge: Arc<Mutex<Arc<Judge>>>,
    /// Semaphore that a response waits for.
    bar: Arc<Semaphore>,
}

/// More than ever wait at once.
const BARS: u32 = 100;

impl Gate {
    async fn start() -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gate = Gate {
            address: listener.local_addr().unwrap(),
            heads: Arc::default(),
            ports: Arc::default(),
            judge: Arc::new(Mutex::new(Arc::new(Box::new(|_| 200)))),
            bar: Arc::new(Semaphore::new(BARS as usize)),
        };
        let bar = gate.bar.clone();
        let (heads, judge) = (gate.heads.clone(), gate.judge.clone());
        let ports = gate.ports.clone();
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let (heads, judge) = (heads.clone(), judge.clone());
                let (ports, bar) = (ports.clone(), bar.clone());
                let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let (heads, judge) = (heads.clone(), judge.clone());
                    let bar = bar.clone();
                    ports.lock().unwrap().push(peer.port());
                    async move {
                        let (head, body) = request.into_parts();
                        body.collect().await?;
                        drop(bar.acquire().await);
                        let judge = judge.lock().unwrap().clone();
                        let status = judge(&head.headers);
                        heads.lock().unwrap().push(head.headers);
                        let response = http::Response::builder().status(status);
                        Ok::<_, hyper::Error>(response.body(Full::new(Bytes::new())).unwrap())
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        gate
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn judge(&self, judge: impl Fn(&HeaderMap) -> u16 + Send + Sync + 'static) {
        *self.judge.lock().unwrap() = Arc::new(Box::new(judge));
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
    fn saw(&self, name: &str) -> Vec<String> {
        let heads = self.heads.lock().unwrap();
        let value = |head: &HeaderMap| head[name].to_str().unwrap().to_owned();
        heads.iter().map(value).collect()
    }
}

impl World {
    fn seal_auth(&self, endpoint: &mut Endpoint, auth: Auth) {
        let credentials = Credentials {
            auth: Some(auth),
            client_certificate: None,
        };
        endpoint.sealed_credentials = self.vault.seal(
            &endpoint.tenant,
            endpoint.id,
            Purpose::Credentials,
            &credentials.keep(),
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
    let world = World::start().await;
    let gate = Gate::start().await;
    let basic = Auth::Basic {
        username: "Aladdin".to_owned(),
        password: "open sesame".to_owned(),
    };
    let id = world.authorized(gate.url(), basic).await;
    for _ in 0..2 {
        let delivery = world.events(1).await[0];
        world.until(delivery, Status::Succeeded).await;
    }
    let mut row = world.store.endpoint(id).await.unwrap().unwrap().endpoint;
    world.seal_auth(&mut row, bearer("abc"));
    let replaced = world.store.replace_endpoint(world.clock.wall(), row).await;
    assert_eq!(replaced, Ok(ReplaceResult::Done));
    world.engine.changed(id);
    let delivery = world.events(1).await[0];
    world.until(delivery, Status::Succeeded).await;
    let basic = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
    assert_eq!(gate.saw("authorization"), [basic, basic, "Bearer abc"]);
    let ports = gate.ports.lock().unwrap();
    assert_eq!(ports[0], ports[1], "a connection is used again");
    assert_ne!(ports[1], ports[2], "but not with other credentials");
}

/// Even a connection that was in use while the URL was changed, and that leads to the same host, is not reused.
#[tokio::test]
async fn a_connection_that_comes_back_late_does_not_serve_another_url() {
    let world = World::start().await;
    let gate = Gate::start().await;
    let id = world.endpoint(gate.url()).await;
    let hold = gate.bar.acquire_many(BARS).await.unwrap();
    let mut deliveries = world.events(1).await;
    gate.arrivals(1).await;
    let mut row = world.store.endpoint(id).await.unwrap().unwrap().endpoint;
    row.url.push_str("other");
    let replaced = world.store.replace_endpoint(world.clock.wall(), row).await;
    assert_eq!(replaced, Ok(ReplaceResult::Done));
    world.engine.changed(id);
    deliveries.extend(world.events(1).await);
    gate.arrivals(2).await;
    drop(hold);
    for delivery in deliveries.drain(..) {
        world.until(delivery, Status::Succeeded).await;
    }
    let hold = gate.bar.acquire_many(BARS).await.unwrap();
    deliveries.extend(world.events(2).await);
    let ports = gate.arrivals(4).await;
    drop(hold);
    assert!(!ports[1..].contains(&ports[0]), "{ports:?}");
    assert!(ports[2..].contains(&ports[1]), "{ports:?}");
    for delivery in deliveries {
        world.until(delivery, Status::Succeeded).await;
    }
}

#[tokio::test]
async fn the_standard_signature_comes_with_every_style() {
    let world = World::start().await;
    let gate = Gate::start().await;
    for style in [SignatureStyle::GitHub, SignatureStyle::Stripe] {
        let adjust = |endpoint: &mut Endpoint| endpoint.signature_style = style;
        let endpoint = world.endpoint_with(gate.url(), adjust).await;
        let delivery = world.events(1).await[0];
        world.until(delivery, Status::Succeeded).await;
        let gone = Standing::Deleted;
        world.engine.stand(endpoint, gone, None).await.unwrap();
    }
    let heads = gate.heads.lock().unwrap();
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
    let world = World::start().await;
    let (gate, server) = (Gate::start().await, TokenServer::start().await);
    world.authorized(gate.url(), oauth2(&server)).await;
    for delivery in world.events(60).await {
        world.until(delivery, Status::Succeeded).await;
    }
    assert_eq!(gate.saw("authorization"), vec!["Bearer t1"; 60]);
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_401_to_a_kept_token_is_tried_again_with_a_fresh_one() {
    let world = World::start().await;
    let (gate, server) = (Gate::start().await, TokenServer::start().await);
    world.authorized(gate.url(), oauth2(&server)).await;
    let first = world.events(1).await[0];
    world.until(first, Status::Succeeded).await;
    gate.judge(|head| {
        if head["authorization"] == "Bearer t1" {
            401
        } else {
            200
        }
    });
    let second = world.events(1).await[0];
    let shown = world.until(second, Status::Succeeded).await;
    assert_eq!(shown.delivery.facts().attempts, 2);
    assert_eq!(
        gate.saw("authorization"),
        ["Bearer t1", "Bearer t1", "Bearer t2"]
    );
}

#[tokio::test]
async fn a_401_to_a_fresh_token_is_an_answer_like_any_other() {
    let world = World::start().await;
    let (gate, server) = (Gate::start().await, TokenServer::start().await);
    world.authorized(gate.url(), oauth2(&server)).await;
    gate.judge(|_| 401);
    let first = world.events(1).await[0];
    let shown = world.until(first, Status::Failed).await;
    assert_eq!(shown.delivery.facts().attempts, 1);
    // The next delivery cannot know whether the token has been revoked since, so a 401 makes it fetch a new one.
    let second = world.events(1).await[0];
    let shown = world.until(second, Status::Failed).await;
    assert_eq!(shown.delivery.facts().attempts, 2);
    assert_eq!(
        gate.saw("authorization"),
        ["Bearer t1", "Bearer t1", "Bearer t2"]
    );
}

#[tokio::test]
async fn a_hiccup_of_the_token_server_costs_one_attempt() {
    let world = World::start().await;
    let (gate, server) = (Gate::start().await, TokenServer::start().await);
    server.behave(|number| match number {
        1 => (503, Bytes::new()),
        _ => (200, token(number).to_string().into()),
    });
    world.authorized(gate.url(), oauth2(&server)).await;
    let delivery = world.events(1).await[0];
    let shown = world.until(delivery, Status::Succeeded).await;
    assert_eq!(shown.delivery.facts().attempts, 2);
    assert_eq!(gate.saw("authorization"), ["Bearer t2"]);
}

#[tokio::test]
async fn without_a_token_the_receiver_is_not_called() {
    let world = World::start().await;
    let (gate, server) = (Gate::start().await, TokenServer::start().await);
    server.say(400, r#"{"error":"unauthorized_client"}"#);
    world.authorized(gate.url(), oauth2(&server)).await;
    let delivery = world.events(1).await[0];
    world.until(delivery, Status::Failed).await;
    assert!(gate.saw("authorization").is_empty());
    let found = world.store.delivery(world.tenant.clone(), delivery).await;
    let (_, attempts) = found.unwrap().expect("it is there");
    let words = "no access token: the token server answered 400 (unauthorized_client)";
    assert_eq!(attempts.len(), 4);
    for attempt in attempts {
        assert_eq!(attempt.detail.as_deref(), Some(words));
        assert_eq!(attempt.error_kind, Some(FailureKind::Unknown));
        assert_eq!(attempt.status_code, None);
    }
}
