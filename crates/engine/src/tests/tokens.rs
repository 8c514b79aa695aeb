//! Tests of access tokens, fetched from a real server with a clock that the test sets.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posthaste_core::address::{Destination, EgressRules};
use posthaste_core::classify::TransportError;
use posthaste_core::id::EndpointId;
use posthaste_core::time::{Now, Tick, Timestamp};
use posthaste_egress::{Client, ClientSettings, Lookup, Resolve, Roots};
use posthaste_system::clock::Clock;
use serde_json::json;
use tokio::time::timeout;

use super::TEST_TIMEOUT;
use super::token_server::{TokenServer, token};
use crate::credentials::{Auth, ClientAuthentication, Credentials, OAuth2};
use crate::tokens::{Grant, NoToken, Token, TokenCache, TokenFailure};

const LIMIT: Duration = Duration::from_secs(20);

/// Resolves every name to one address, except `inner.example`, and panics for `falls.example`.
struct Resolver;

impl Resolve for Resolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            let address = match name {
                "falls.example" => panic!("the resolver falls over"),
                "inner.example" => Ipv4Addr::new(10, 0, 0, 1),
                _ => Ipv4Addr::LOCALHOST,
            };
            Ok(vec![IpAddr::V4(address)])
        })
    }
}

struct TokenFixture {
    tokens: Arc<TokenCache>,
    tick_ms: Arc<AtomicU64>,
    rules: EgressRules,
}

impl TokenFixture {
    fn new() -> TokenFixture {
        let tick_ms = Arc::new(AtomicU64::new(0));
        let ticks = tick_ms.clone();
        let clock = Clock::from_fn(move || Now {
            wall: Timestamp(1_700_000_000_000),
            tick: Tick(ticks.load(Ordering::SeqCst)),
        });
        let rules = EgressRules {
            allow_networks: vec!["127.0.0.0/8".parse().unwrap()],
            allow_http: true,
            ..EgressRules::default()
        };
        let client = Client::new(ClientSettings {
            rules: rules.clone(),
            roots: Roots::none(),
            resolver: Arc::new(Resolver),
            ..ClientSettings::default()
        });
        TokenFixture {
            tokens: Arc::new(TokenCache::new(client, clock)),
            tick_ms,
            rules,
        }
    }

    fn pass_secs(&self, secs: u64) {
        self.tick_ms.fetch_add(secs * 1_000, Ordering::SeqCst);
    }

    fn grant(&self, token_url: &str, endpoint: u128) -> Arc<Grant> {
        let oauth2 = OAuth2 {
            token_url: token_url.to_owned(),
            client_id: "me".to_owned(),
            client_secret: "secret".to_owned(),
            scope: Some("hooks".to_owned()),
            audience: None,
            client_authentication: ClientAuthentication::Basic,
        };
        let credentials = Credentials {
            auth: Some(Auth::OAuth2(oauth2.clone())),
            client_certificate: None,
        };
        let destination = Destination::parse(token_url, &self.rules).unwrap();
        let mark = credentials.fingerprint();
        Arc::new(Grant::new(EndpointId(endpoint), mark, &oauth2, destination))
    }

    async fn get(&self, grant: &Arc<Grant>) -> Result<Token, NoToken> {
        let getting = self.tokens.get(grant, LIMIT);
        timeout(TEST_TIMEOUT, getting).await.expect("the call ends")
    }

    async fn header(&self, grant: &Arc<Grant>) -> (String, bool) {
        let token = self.get(grant).await.expect("a token");
        (token.header.to_str().unwrap().to_owned(), token.fresh)
    }

    async fn failure(&self, grant: &Arc<Grant>) -> TokenFailure {
        match self.get(grant).await {
            Err(NoToken::TokenServer(failure)) => failure,
            other @ (Ok(_) | Err(NoToken::Internal(_))) => panic!("{other:?}"),
        }
    }
}

fn fresh(token: &str) -> (String, bool) {
    (format!("Bearer {token}"), true)
}

fn kept(token: &str) -> (String, bool) {
    (format!("Bearer {token}"), false)
}

#[tokio::test]
async fn a_hundred_callers_cause_one_fetch() {
    let fixture = TokenFixture::new();
    let server = TokenServer::start().await;
    let grant = fixture.grant(&server.url(), 1);
    server.answers.send_replace(false);
    let asking: Vec<_> = (0..100)
        .map(|_| {
            let (tokens, grant) = (fixture.tokens.clone(), grant.clone());
            tokio::spawn(async move { tokens.get(&grant, LIMIT).await })
        })
        .collect();
    let requests = server.requests(1).await;
    server.answers.send_replace(true);
    for one in asking {
        let token = one.await.unwrap().expect("a token");
        // A task may have asked after the token had arrived, so `fresh` is not checked.
        assert_eq!(token.header, "Bearer t1");
    }
    assert_eq!(server.count(), 1);
    assert_eq!(fixture.header(&grant).await, kept("t1"));
    assert_eq!(requests[0].headers["authorization"], "Basic bWU6c2VjcmV0");
    assert_eq!(requests[0].headers["accept"], "application/json");
    assert_eq!(
        requests[0].body,
        "grant_type=client_credentials&scope=hooks"
    );
    let agent = requests[0].headers["user-agent"].to_str().unwrap();
    assert!(agent.starts_with("posthaste/"), "{agent}");
}

#[tokio::test]
async fn every_endpoint_has_its_own_token() {
    let fixture = TokenFixture::new();
    let server = TokenServer::start().await;
    let (one, other) = (
        fixture.grant(&server.url(), 1),
        fixture.grant(&server.url(), 2),
    );
    assert_eq!(fixture.header(&one).await, fresh("t1"));
    assert_eq!(fixture.header(&other).await, fresh("t2"));
    assert_eq!(fixture.header(&one).await, kept("t1"));
}

#[tokio::test]
async fn a_token_is_renewed_in_the_background() {
    let fixture = TokenFixture::new();
    let server = TokenServer::start().await;
    let grant = fixture.grant(&server.url(), 1);
    assert_eq!(fixture.header(&grant).await, fresh("t1"));
    fixture.pass_secs(3_539);
    assert_eq!(fixture.header(&grant).await, kept("t1"));
    assert_eq!(server.count(), 1);
    fixture.pass_secs(1);
    server.answers.send_replace(false);
    for _ in 0..5 {
        assert_eq!(fixture.header(&grant).await, kept("t1"));
    }
    server.requests(2).await;
    // The old token expires while the new one is being fetched: now callers wait for the new one.
    fixture.pass_secs(60);
    let (tokens, waiting) = (fixture.tokens.clone(), grant.clone());
    let waiting = tokio::spawn(async move { tokens.get(&waiting, LIMIT).await });
    server.answers.send_replace(true);
    let token = waiting.await.unwrap().expect("a token");
    assert_eq!(token.header, "Bearer t2");
    assert_eq!(fixture.header(&grant).await, kept("t2"));
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn a_rejected_or_forgotten_token_is_not_used_again() {
    let fixture = TokenFixture::new();
    let server = TokenServer::start().await;
    let grant = fixture.grant(&server.url(), 1);
    fixture.header(&grant).await;
    let token = fixture.get(&grant).await.expect("a token");
    fixture.tokens.rejected(grant.key, &token);
    assert_eq!(fixture.header(&grant).await, fresh("t2"));
    // A late rejection of the old token does not affect the new one.
    fixture.tokens.rejected(grant.key, &token);
    assert_eq!(fixture.header(&grant).await, kept("t2"));
    fixture.tokens.forget(grant.key);
    assert_eq!(fixture.header(&grant).await, fresh("t3"));
}

#[tokio::test]
async fn an_outdated_fetch_does_not_end_a_newer_one() {
    let fixture = TokenFixture::new();
    let server = TokenServer::start().await;
    let grant = fixture.grant(&server.url(), 1);
    server.answers.send_replace(false);
    // The first fetch fails, and a caller waits for its result.
    let (tokens, asking) = (fixture.tokens.clone(), grant.clone());
    let brief = Duration::from_millis(500);
    tokio::spawn(async move { tokens.get(&asking, brief).await });
    server.requests(1).await;
    let mut waiting = Box::pin(fixture.tokens.get(&grant, LIMIT));
    let _ = timeout(Duration::ZERO, &mut waiting).await;
    // The endpoint's URL is changed, and its credentials stay the same.
    fixture.tokens.forget(grant.key);
    let (tokens, asking) = (fixture.tokens.clone(), grant.clone());
    let second = tokio::spawn(async move { tokens.get(&asking, LIMIT).await });
    server.requests(2).await;
    let old = timeout(TEST_TIMEOUT, waiting).await.expect("the call ends");
    assert!(matches!(old, Err(NoToken::TokenServer(_))), "{old:?}");
    // The second fetch is still in progress, and this caller waits for it.
    let mut third = Box::pin(fixture.tokens.get(&grant, LIMIT));
    let early = timeout(Duration::ZERO, &mut third).await;
    assert!(early.is_err(), "{early:?}");
    server.answers.send_replace(true);
    for token in [second.await.unwrap(), third.await] {
        assert_eq!(token.expect("a token").header, "Bearer t2");
    }
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn failures_are_cached_for_a_growing_time() {
    let fixture = TokenFixture::new();
    let server = TokenServer::start().await;
    let grant = fixture.grant(&server.url(), 1);
    server.say(401, json!({"error": "invalid_client"}).to_string());
    let expected = TokenFailure {
        fault: TransportError::NoToken,
        detail: "no access token: the token server responded with 401 (invalid_client)".to_owned(),
    };
    // After the first failure the next caller asks again.
    assert_eq!(fixture.failure(&grant).await, expected);
    assert_eq!(server.count(), 1);
    for (round, pause) in [1, 2, 4].into_iter().enumerate() {
        for _ in 0..5 {
            assert_eq!(fixture.failure(&grant).await, expected);
        }
        assert_eq!(server.count(), round + 2);
        fixture.pass_secs(pause - 1);
        assert_eq!(fixture.failure(&grant).await, expected);
        assert_eq!(server.count(), round + 2);
        fixture.pass_secs(1);
    }
    server.behave(|number| (200, token(number).to_string().into()));
    assert_eq!(fixture.header(&grant).await, fresh("t5"));
}

#[tokio::test]
async fn an_unreachable_server_fails_with_the_fault_of_the_connection() {
    let fixture = TokenFixture::new();
    let server = TokenServer::start().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let unused = listener.local_addr().unwrap();
    drop(listener);
    let failure = fixture
        .failure(&fixture.grant(&format!("http://{unused}/token"), 1))
        .await;
    assert_eq!(failure.fault, TransportError::Connection);
    assert!(failure.detail.starts_with("no access token: "));
    // A name that resolves to a forbidden address is detected at the connection.
    let inner = fixture.grant("http://inner.example/token", 2);
    let failure = fixture.failure(&inner).await;
    assert_eq!(failure.fault, TransportError::UnsafeDestination);
    assert!(
        failure
            .detail
            .starts_with("no access token: unsafe destination")
    );
    assert!(!failure.detail.contains("10.0.0.1"), "{}", failure.detail);
    // A server that never answers takes as long as the time limit.
    server.answers.send_replace(false);
    let grant = fixture.grant(&server.url(), 3);
    let getting = fixture.tokens.get(&grant, Duration::from_millis(50));
    match timeout(TEST_TIMEOUT, getting).await.expect("the call ends") {
        Err(NoToken::TokenServer(failure)) => assert_eq!(failure.fault, TransportError::Timeout),
        other @ (Ok(_) | Err(NoToken::Internal(_))) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_internal_fault_is_not_cached() {
    let fixture = TokenFixture::new();
    let grant = fixture.grant("http://falls.example/token", 1);
    for _ in 0..2 {
        let absent = fixture.get(&grant).await.expect_err("it fell over");
        assert!(matches!(absent, NoToken::Internal(_)), "{absent:?}");
    }
}

#[tokio::test]
async fn an_unusable_response_is_described_without_quoting_it() {
    let fixture = TokenFixture::new();
    let server = TokenServer::start().await;
    let large = json!({
        "access_token": "a", "token_type": "bearer", "padding": "x".repeat(20_000),
    });
    for (endpoint, (status, body)) in [
        (200, String::new()),
        (200, "canary".to_owned()),
        (200, json!({"access_token": "canary"}).to_string()),
        (
            200,
            json!({"access_token": "canary", "token_type": "mac"}).to_string(),
        ),
        (
            200,
            json!({"access_token": "can\nary", "token_type": "bearer"}).to_string(),
        ),
        (200, large.to_string()),
        (302, "canary".to_owned()),
        (
            400,
            json!({"error": "canary", "error_description": "canary"}).to_string(),
        ),
        (500, "canary".to_owned()),
        (503, String::new()),
    ]
    .into_iter()
    .enumerate()
    {
        server.say(status, body.clone());
        let grant = fixture.grant(&server.url(), endpoint as u128);
        let failure = fixture.failure(&grant).await;
        assert_eq!(failure.fault, TransportError::NoToken, "{body}");
        assert!(
            failure
                .detail
                .starts_with("no access token: the token server")
        );
        assert!(!failure.detail.contains("canary"), "{}", failure.detail);
    }
}
