//! Self-calls: requests that would reach this same server are refused.
//!
//! The rules allow the network of this machine and name the sockets of the server. A name or literal that leads to
//! one of them must be refused with `OwnListener`, and another port of the machine must be reached.

use std::net::SocketAddr;

use posthaste_core::address::{DestinationError, EgressRules, ForbiddenAddress};
use posthaste_core::classify::TransportError;
use posthaste_egress::{Client, ClientSettings, SendError};

use crate::fixture::*;

const NAME: &str = "hooks.customer.com";

/// Creates the client of a server that listens on `own`, for which [`NAME`] has these addresses.
fn client_of(own: SocketAddr, addresses: &str) -> Client {
    Client::new(ClientSettings {
        rules: EgressRules {
            own_sockets: vec![own],
            ..development()
        },
        resolver: FixedResolver::with(NAME, &[addresses]),
        ..settings()
    })
}

#[tokio::test]
async fn a_name_of_this_server_is_refused() {
    let ourselves = Receiver::answering(OK).await;
    let port = ourselves.address.port();
    let wildcards = [format!("0.0.0.0:{port}"), format!("[::]:{port}")];
    let wildcards = wildcards.iter().map(|own| own.parse().unwrap());
    for own in wildcards.chain([ourselves.address]) {
        for addresses in ["127.0.0.1", "::ffff:127.0.0.1", "127.0.0.9 127.0.0.1"] {
            let client = client_of(own, addresses);
            let report = post(&client, &ourselves.named("http", NAME)).await;
            assert_eq!(
                fault(&report),
                TransportError::UnsafeDestination,
                "{own} {addresses}"
            );
            let forbidden = SendError::Forbidden(ForbiddenAddress::OwnListener);
            assert_eq!(report.send_error, Some(forbidden), "{own} {addresses}");
            assert!(!report.detail().contains("127."), "{}", report.detail());
        }
        for host in [
            "127.0.0.1",
            "localhost",
            "hooks.localhost",
            "[::ffff:127.0.0.1]",
        ] {
            let report = post(&client_of(own, ""), &ourselves.named("http", host)).await;
            let error = DestinationError::Address(ForbiddenAddress::OwnListener);
            assert_eq!(
                report.send_error,
                Some(SendError::Unsafe(error)),
                "{own} {host}"
            );
        }
    }
    assert_eq!(ourselves.connections(), 0);
}

#[tokio::test]
async fn another_port_on_this_machine_is_reached() {
    let ourselves = Receiver::answering(OK).await;
    let neighbour = Receiver::answering(OK).await;
    let everywhere = SocketAddr::from(([0, 0, 0, 0], ourselves.address.port()));
    for own in [ourselves.address, everywhere] {
        let client = client_of(own, "127.0.0.1");
        for host in [NAME, "127.0.0.1", "localhost"] {
            let report = post(&client, &neighbour.named("http", host)).await;
            assert_eq!(status(&report), 200, "{own} {host}");
        }
    }
}
