//! Where a request comes from, and which way.

use std::net::IpAddr;

use http::header::{HOST, USER_AGENT};
use http::{Extensions, HeaderMap};
use posthaste_store::Via;

/// The other end of a connection, which the server notes with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// Where a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Which way it came.
    pub via: Via,
    /// The address it came from.
    pub from: Option<IpAddr>,
    /// What this server was called: scheme, host and port. Nothing if the request itself says so.
    pub called: Option<String>,
}

impl Origin {
    /// Of a request that came over the API.
    pub fn of(headers: &HeaderMap, extensions: &Extensions) -> Origin {
        // The program itself says so, when it is used from a terminal.
        let is_cli = headers
            .get(USER_AGENT)
            .is_some_and(|agent| agent.as_bytes().starts_with(b"posthaste/"));
        Origin {
            via: if is_cli { Via::Cli } else { Via::Api },
            from: peer(extensions),
            called: None,
        }
    }

    /// Of a request that a page makes for its visitor.
    pub fn of_page(via: Via, headers: &HeaderMap, extensions: &Extensions) -> Origin {
        Origin {
            via,
            from: peer(extensions),
            called: called(headers),
        }
    }
}

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let peer = extensions.get::<Peer>();
    peer.map(|Peer(address)| address.to_canonical())
}

/// What this server is called in a request: scheme, host and port.
pub fn called(headers: &HeaderMap) -> Option<String> {
    let host = headers.get(HOST)?.to_str().ok()?;
    let scheme = if is_secure(headers) { "https" } else { "http" };
    Some(format!("{scheme}://{host}"))
}

/// Whether somebody before us says that the caller speaks TLS.
pub fn is_secure(headers: &HeaderMap) -> bool {
    let told = headers
        .get("x-forwarded-proto")
        .map(|value| value.as_bytes());
    // Of several on the way, the first speaks with the caller.
    let first = told.and_then(|told| told.split(|byte| *byte == b',').next());
    first.is_some_and(|scheme| scheme.trim_ascii().eq_ignore_ascii_case(b"https"))
}
