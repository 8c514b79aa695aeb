//! Destination checks at connection time.
//!
//! A name is resolved and all its addresses are vetted for every new connection; one forbidden address refuses the
//! name. The connected peer is vetted too. Unreachable addresses are skipped, and a failing resolver is a local
//! fault.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use posthaste_core::address::{Destination, DestinationError, EgressRules, ForbiddenAddress};
use posthaste_core::classify::TransportError;
use posthaste_egress::{
    Client, ClientSettings, LocalFault, Lookup, Request, Resolve, ResolveError, SendError,
    SendReport,
};

use crate::fixture::*;

const NAME: &str = "hooks.customer.com";

/// Creates a client for which [`NAME`] has these addresses, one answer after the other.
fn resolving(answers: &[&str]) -> Client {
    Client::new(ClientSettings {
        resolver: FixedResolver::with(NAME, answers),
        ..settings()
    })
}

fn check_unsafe(report: &SendReport, kind: ForbiddenAddress) {
    assert_eq!(fault(report), TransportError::UnsafeDestination);
    assert_eq!(report.send_error, Some(SendError::Forbidden(kind)));
    assert_eq!(report.first_byte_at, None);
    for digits in ["127.", "10.", "169.", "::"] {
        assert!(!report.detail().contains(digits), "{}", report.detail());
    }
}

#[tokio::test]
async fn a_name_is_resolved_and_sent_as_host() {
    let mut receiver = Receiver::answering(OK).await;
    let client = resolving(&["127.0.0.1"]);
    let report = post(&client, &receiver.named("http", NAME)).await;
    assert_eq!(status(&report), 200);
    let host = format!("host: {NAME}:{}", receiver.address.port());
    assert!(receiver.received().await.lines().contains(&host.as_str()));
}

#[tokio::test]
async fn an_unresolvable_name_is_a_dns_fault() {
    let report = post(&resolving(&[]), "https://other.example.com/").await;
    assert_eq!(fault(&report), TransportError::Dns);
    assert_eq!(report.send_error, Some(SendError::Unresolved));
    let report = post(&resolving(&[""]), &format!("https://{NAME}/")).await;
    assert_eq!(fault(&report), TransportError::Dns);
    assert_eq!(report.send_error, Some(SendError::NoAddress));
}

#[tokio::test]
async fn one_forbidden_answer_refuses_the_name() {
    let receiver = Receiver::answering(OK).await;
    let url = receiver.named("http", NAME);
    for (answer, kind) in [
        ("10.0.0.1", ForbiddenAddress::Private),
        ("127.0.0.1 10.0.0.1", ForbiddenAddress::Private),
        (
            "127.0.0.1 1.1.1.1 169.254.169.254",
            ForbiddenAddress::Metadata,
        ),
        ("127.0.0.1 ::1", ForbiddenAddress::Loopback),
        ("127.0.0.1 ::ffff:192.168.0.1", ForbiddenAddress::Private),
        ("0.0.0.0", ForbiddenAddress::Unspecified),
    ] {
        check_unsafe(&post(&resolving(&[answer]), &url).await, kind);
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_name_with_changing_addresses_is_vetted_again() {
    let receiver = Receiver::answering(OK).await;
    let url = receiver.named("http", NAME);
    let client = resolving(&["127.0.0.1", "10.0.0.1"]);
    assert_eq!(status(&post(&client, &url).await), 200);
    client.forget(&request(&url).pool_key);
    check_unsafe(&post(&client, &url).await, ForbiddenAddress::Private);
}

#[tokio::test]
async fn the_destination_is_checked_by_the_rules_of_the_client() {
    let receiver = Receiver::answering(OK).await;
    let strict = |rules| {
        Client::new(ClientSettings {
            rules,
            ..settings()
        })
    };
    // The endpoint was created when loopback and plain HTTP were allowed.
    let loopback = DestinationError::Address(ForbiddenAddress::Loopback);
    for (rules, scheme, error) in [
        (EgressRules::default(), "http", DestinationError::PlainHttp),
        (EgressRules::default(), "https", loopback),
        (
            EgressRules {
                deny_networks: vec!["127.0.0.1/32".parse().unwrap()],
                ..development()
            },
            "http",
            DestinationError::Address(ForbiddenAddress::Denied),
        ),
    ] {
        let report = post(&strict(rules), &receiver.named(scheme, "127.0.0.1")).await;
        assert_eq!(fault(&report), TransportError::UnsafeDestination);
        assert_eq!(report.send_error, Some(SendError::Unsafe(error)));
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn localhost_is_not_resolved() {
    let receiver = Receiver::answering(OK).await;
    let book = FixedResolver::with("api.localhost", &["10.0.0.1"]);
    let client = Client::new(ClientSettings {
        resolver: Arc::clone(&book) as Arc<dyn Resolve>,
        ..settings()
    });
    for name in ["localhost", "api.localhost"] {
        let report = post(&client, &receiver.named("http", name)).await;
        assert_eq!(status(&report), 200);
    }
    assert_eq!(book.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_refuses() {
    let receiver = Receiver::answering(OK).await;
    let url = receiver.named("http", NAME);
    // Nothing listens on the other addresses.
    let client = resolving(&["127.0.0.2 127.0.0.3 127.0.0.1"]);
    assert_eq!(status(&post(&client, &url).await), 200);
    let report = post(&resolving(&["127.0.0.2 127.0.0.3"]), &url).await;
    assert_eq!(report.send_error, Some(SendError::Refused));
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_hangs() {
    let receiver = Receiver::answering(OK).await;
    let port = receiver.address.port();
    let _clogged = full_backlog(&format!("127.0.0.2:{port}")).await;
    let client = resolving(&["127.0.0.2 127.0.0.1"]);
    let report = post(&client, &receiver.named("http", NAME)).await;
    assert_eq!(status(&report), 200);
    // Long before the operating system's timeout for the first address.
    assert!(report.latency < AMPLE / 4, "{:?}", report.latency);
}

struct Unable;

impl Resolve for Unable {
    fn resolve<'a>(&'a self, _: &'a str) -> Lookup<'a> {
        Box::pin(async { Err(ResolveError::Unable(io::Error::from_raw_os_error(24))) })
    }
}

#[tokio::test]
async fn a_broken_resolver_is_a_local_fault() {
    let client = Client::new(ClientSettings {
        resolver: Arc::new(Unable),
        ..settings()
    });
    let sent = client.send(request("https://hooks.customer.com/")).await;
    assert_eq!(sent.unwrap_err(), LocalFault::Resolver);
}

#[tokio::test]
async fn a_literal_address_is_vetted() {
    // Rules of a misconfigured caller, which allow everything.
    let lax = EgressRules {
        allow_networks: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
        allow_http: true,
        ..EgressRules::default()
    };
    for host in [
        "10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[fe80::1]",
        "0.0.0.0",
    ] {
        let url = format!("http://{host}:8080/");
        let request = Request {
            destination: Destination::parse(&url, &lax).unwrap(),
            ..request("http://127.0.0.1/")
        };
        let report = client().send(request).await.unwrap();
        assert_eq!(fault(&report), TransportError::UnsafeDestination, "{host}");
    }
}

#[tokio::test]
async fn all_of_1000_addresses_are_vetted_and_few_are_tried() {
    let receiver = Receiver::answering(OK).await;
    let url = receiver.named("http", NAME);
    let many: Vec<String> = (1..1_000)
        .map(|nth| format!("127.0.{}.{}", nth / 250, nth % 250 + 1))
        .collect();
    let many = many.join(" ");
    // The forbidden address is the last one.
    let client = resolving(&[&format!("{many} 10.0.0.1")]);
    check_unsafe(&post(&client, &url).await, ForbiddenAddress::Private);
    assert_eq!(receiver.connections(), 0);
    // Nothing listens on any of them, and the client stops after a few.
    let report = post(&resolving(&[&many]), &url).await;
    assert_eq!(report.send_error, Some(SendError::Refused));
    let report = post(&resolving(&[&format!("127.0.0.1 {many}")]), &url).await;
    assert_eq!(status(&report), 200);
}

/// On most systems the unspecified address connects to the machine itself. Allowing it must not allow the
/// address at which the connection ends.
#[tokio::test]
async fn the_connected_peer_is_vetted() {
    let receiver = Receiver::answering(OK).await;
    let url = receiver.named("http", NAME);
    let opening = |networks: &[&str]| {
        Client::new(ClientSettings {
            rules: EgressRules {
                allow_networks: networks.iter().map(|it| it.parse().unwrap()).collect(),
                ..development()
            },
            resolver: FixedResolver::with(NAME, &["0.0.0.0"]),
            ..settings()
        })
    };
    let report = post(&opening(&["0.0.0.0/32"]), &url).await;
    check_unsafe(&report, ForbiddenAddress::Loopback);
    let report = post(&opening(&["0.0.0.0/32", "127.0.0.0/8"]), &url).await;
    assert_eq!(report.send_error, Some(SendError::UnexpectedPeer));
    assert_eq!(report.first_byte_at, None);
}
