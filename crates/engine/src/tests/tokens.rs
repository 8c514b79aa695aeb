//! Tests of access tokens, fetched from a real server with a clock that the test sets.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posthaste_core::address::{Destination, EgressRules};
use posthaste_core::classify::Fault;
use posthaste_core::id::EndpointId;
use posthaste_core::time::{Now, Tick, Timestamp};
use posthaste_egress::{Client, ClientSettings, Lookup, Resolve, Roots};
use posthaste_system::clock::Clock;
use serde_json::json;
use tokio::time::timeout;

use super::PATIENCE;
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

struct Office {
    tokens: Arc<TokenCache>,
    tick_ms: Arc<AtomicU64>,
    rules: EgressRules,
}

impl Office {
    fn open() -> Office {
        let tick_ms = Arc::new(AtomicU64::new(0));
        let told = tick_ms.clone();
        let clock = Clock::told(move || Now {
            wall: Timestamp(1_700_000_000_000),
            tick: Tick(told.load(Ordering::SeqCst)),
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
        Office {
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
        let mark = credentials.mark();
        Arc::new(Grant::new(EndpointId(endpoint), mark, &oauth2, destination))
    }

    async fn lend(&self, grant: &Arc<Grant>) -> Result<Token, NoToken> {
        let lending = self.tokens.lend(grant, LIMIT);
        timeout(PATIENCE, lending).await.expect("it ends")
    }

    async fn lent(&self, grant: &Arc<Grant>) -> (String, bool) {
        let lent = self.lend(grant).await.expect("a token");
        (lent.header.to_str().unwrap().to_owned(), lent.fresh)
    }

    async fn missing(&self, grant: &Arc<Grant>) -> TokenFailure {
        match self.lend(grant).await {
            Err(NoToken::Theirs(missing)) => missing,
            other @ (Ok(_) | Err(NoToken::Ours(_))) => panic!("{other:?}"),
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
async fn a_hundred_ask_and_one_fetches() {
    let office = Office::open();
    let server = TokenServer::start().await;
    let grant = office.grant(&server.url(), 1);
    server.answers.send_replace(false);
    let asking: Vec<_> = (0..100)
        .map(|_| {
            let (tokens, grant) = (office.tokens.clone(), grant.clone());
            tokio::spawn(async move { tokens.lend(&grant, LIMIT).await })
        })
        .collect();
    let asked = server.asked(1).await;
    server.answers.send_replace(true);
    for one in asking {
        let lent = one.await.unwrap().expect("a token");
        // A task may have asked after the token had arrived, so `fresh` is not checked.
        assert_eq!(lent.header, "Bearer t1");
    }
    assert_eq!(server.count(), 1);
    assert_eq!(office.lent(&grant).await, kept("t1"));
    assert_eq!(asked[0].headers["authorization"], "Basic bWU6c2VjcmV0");
    assert_eq!(asked[0].headers["accept"], "application/json");
    assert_eq!(asked[0].body, "grant_type=client_credentials&scope=hooks");
    let agent = asked[0].headers["user-agent"].to_str().unwrap();
    assert!(agent.starts_with("posthaste/"), "{agent}");
}

#[tokio::test]
async fn another_endpoint_has_a_token_of_its_own() {
    let office = Office::open();
    let server = TokenServer::start().await;
    let (one, other) = (
        office.grant(&server.url(), 1),
        office.grant(&server.url(), 2),
    );
    assert_eq!(office.lent(&one).await, fresh("t1"));
    assert_eq!(office.lent(&other).await, fresh("t2"));
    assert_eq!(office.lent(&one).await, kept("t1"));
}

#[tokio::test]
async fn its_successor_is_fetched_before_it_ends_and_nobody_waits() {
    let office = Office::open();
    let server = TokenServer::start().await;
    let grant = office.grant(&server.url(), 1);
    assert_eq!(office.lent(&grant).await, fresh("t1"));
    office.pass_secs(3_539);
    assert_eq!(office.lent(&grant).await, kept("t1"));
    assert_eq!(server.count(), 1);
    office.pass_secs(1);
    server.answers.send_replace(false);
    for _ in 0..5 {
        assert_eq!(office.lent(&grant).await, kept("t1"));
    }
    server.asked(2).await;
    // The old token expires while the new one is being fetched: now callers wait for the new one.
    office.pass_secs(60);
    let (tokens, waiting) = (office.tokens.clone(), grant.clone());
    let waiting = tokio::spawn(async move { tokens.lend(&waiting, LIMIT).await });
    server.answers.send_replace(true);
    let lent = waiting.await.unwrap().expect("a token");
    assert_eq!(lent.header, "Bearer t2");
    assert_eq!(office.lent(&grant).await, kept("t2"));
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn one_that_was_rejected_or_forgotten_is_not_lent_again() {
    let office = Office::open();
    let server = TokenServer::start().await;
    let grant = office.grant(&server.url(), 1);
    office.lent(&grant).await;
    let lent = office.lend(&grant).await.expect("a token");
    office.tokens.rejected(grant.key, &lent);
    assert_eq!(office.lent(&grant).await, fresh("t2"));
    // A late rejection of the old token does not affect the new one.
    office.tokens.rejected(grant.key, &lent);
    assert_eq!(office.lent(&grant).await, kept("t2"));
    office.tokens.forget(grant.key);
    assert_eq!(office.lent(&grant).await, fresh("t3"));
}

#[tokio::test]
async fn what_was_asked_for_before_does_not_end_what_is_asked_for_now() {
    let office = Office::open();
    let server = TokenServer::start().await;
    let grant = office.grant(&server.url(), 1);
    server.answers.send_replace(false);
    // The first fetch fails, and a caller waits for its result.
    let (tokens, asking) = (office.tokens.clone(), grant.clone());
    let brief = Duration::from_millis(500);
    tokio::spawn(async move { tokens.lend(&asking, brief).await });
    server.asked(1).await;
    let mut waiting = Box::pin(office.tokens.lend(&grant, LIMIT));
    let _ = timeout(Duration::ZERO, &mut waiting).await;
    // The endpoint's URL is changed, and its credentials stay the same.
    office.tokens.forget(grant.key);
    let (tokens, asking) = (office.tokens.clone(), grant.clone());
    let second = tokio::spawn(async move { tokens.lend(&asking, LIMIT).await });
    server.asked(2).await;
    let old = timeout(PATIENCE, waiting).await.expect("it ends");
    assert!(matches!(old, Err(NoToken::Theirs(_))), "{old:?}");
    // The second fetch is still in progress, and this caller waits for it.
    let mut third = Box::pin(office.tokens.lend(&grant, LIMIT));
    let early = timeout(Duration::ZERO, &mut third).await;
    assert!(early.is_err(), "{early:?}");
    server.answers.send_replace(true);
    for lent in [second.await.unwrap(), third.await] {
        assert_eq!(lent.expect("a token").header, "Bearer t2");
    }
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn a_server_that_fails_is_left_in_peace_for_a_growing_time() {
    let office = Office::open();
    let server = TokenServer::start().await;
    let grant = office.grant(&server.url(), 1);
    server.say(401, json!({"error": "invalid_client"}).to_string());
    let expected = TokenFailure {
        fault: Fault::NoToken,
        detail: "no access token: the token server answered 401 (invalid_client)".to_owned(),
    };
    // After the first failure the next caller asks again.
    assert_eq!(office.missing(&grant).await, expected);
    assert_eq!(server.count(), 1);
    for (round, pause) in [1, 2, 4].into_iter().enumerate() {
        for _ in 0..5 {
            assert_eq!(office.missing(&grant).await, expected);
        }
        assert_eq!(server.count(), round + 2);
        office.pass_secs(pause - 1);
        assert_eq!(office.missing(&grant).await, expected);
        assert_eq!(server.count(), round + 2);
        office.pass_secs(1);
    }
    server.behave(|number| (200, token(number).to_string().into()));
    assert_eq!(office.lent(&grant).await, fresh("t5"));
}

#[tokio::test]
async fn a_server_that_is_not_there_has_the_fault_of_its_connection() {
    let office = Office::open();
    let server = TokenServer::start().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let missing = office
        .missing(&office.grant(&format!("http://{nobody}/token"), 1))
        .await;
    assert_eq!(missing.fault, Fault::Connection);
    assert!(missing.detail.starts_with("no access token: "));
    // A name that resolves to a forbidden address is detected at the connection.
    let inner = office.grant("http://inner.example/token", 2);
    let missing = office.missing(&inner).await;
    assert_eq!(missing.fault, Fault::UnsafeDestination);
    assert!(
        missing
            .detail
            .starts_with("no access token: unsafe destination")
    );
    assert!(!missing.detail.contains("10.0.0.1"), "{}", missing.detail);
    // A server that never answers takes as long as the time limit.
    server.answers.send_replace(false);
    let grant = office.grant(&server.url(), 3);
    let lending = office.tokens.lend(&grant, Duration::from_millis(50));
    match timeout(PATIENCE, lending).await.expect("it ends") {
        Err(NoToken::Theirs(missing)) => assert_eq!(missing.fault, Fault::Timeout),
        other @ (Ok(_) | Err(NoToken::Ours(_))) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_fault_of_ours_is_ours_and_not_remembered() {
    let office = Office::open();
    let grant = office.grant("http://falls.example/token", 1);
    for _ in 0..2 {
        let absent = office.lend(&grant).await.expect_err("it fell over");
        assert!(matches!(absent, NoToken::Ours(_)), "{absent:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_used_is_told_and_not_repeated() {
    let office = Office::open();
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
        let grant = office.grant(&server.url(), endpoint as u128);
        let missing = office.missing(&grant).await;
        assert_eq!(missing.fault, Fault::NoToken, "{body}");
        assert!(
            missing
                .detail
                .starts_with("no access token: the token server")
        );
        assert!(!missing.detail.contains("canary"), "{}", missing.detail);
    }
}
