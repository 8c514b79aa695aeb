//! From a destination to an open connection: judge ▸ resolve ▸ vet ▸ dial ▸ check the peer ▸ TLS.
//!
//! There is no other way to a connection, and none of the steps can be left out. Every one runs for
//! literal addresses too; only the resolving is then a formality.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use posthaste_core::address::{Destination, Host, Scheme};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::connection::{Connection, Protocol};
use crate::dial;
use crate::explain;
use crate::identity::Identity;
use crate::mishap::{Mishap, OwnFault, Phase, Setback};
use crate::own;
use crate::resolve::ResolveError;
use crate::settings::ClientSettings;
use crate::stream::Stream;

/// The name of the machine itself (RFC 6761), which no resolver is asked about.
const LOOPBACK_NAME: &str = "localhost";
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Opens connections.
pub(crate) struct Connector {
    settings: Arc<ClientSettings>,
    tls: Arc<ClientConfig>,
}

impl Connector {
    pub(crate) fn new(settings: Arc<ClientSettings>) -> Connector {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring provides what TLS 1.2 and 1.3 need")
            .with_root_certificates(Arc::clone(&settings.roots.0))
            .with_no_client_auth();
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        // rustls keeps sessions by host name alone, across pool keys. A session taken up again would
        // carry one tenant's standing with the receiver over to another's.
        config.resumption = Resumption::disabled();
        Connector {
            settings,
            tls: Arc::new(config),
        }
    }

    /// A fresh connection. `phase` follows how far it has come.
    pub(crate) async fn connect(
        &self,
        to: &Destination,
        identity: Option<&Identity>,
        phase: &mut Phase,
    ) -> Result<Connection, Setback> {
        let rules = &self.settings.rules;
        // It was judged when it was registered, perhaps under other rules.
        Destination::parse(to.as_str(), rules).map_err(Mishap::Unsafe)?;

        *phase = Phase::Resolving;
        let addresses = self.resolve(to.host()).await?;
        dial::vet(rules, &addresses)?;
        own::vet(rules, &addresses, to.port())?;

        *phase = Phase::Connecting;
        let socket = dial::dial(rules, &addresses, to.port()).await?;

        let (stream, protocol) = match to.scheme() {
            Scheme::Http => (Stream::plain(socket), Protocol::Http1),
            Scheme::Https => {
                *phase = Phase::Securing;
                self.secure(socket, to.host(), identity).await?
            }
        };

        *phase = Phase::Awaiting;
        let opened = Connection::open(stream, protocol, &self.settings).await;
        Ok(opened.map_err(|error| explain::awaiting(&error))?)
    }

    async fn resolve(&self, host: &Host) -> Result<Vec<IpAddr>, Setback> {
        let name = match host {
            Host::Ip(address) => return Ok(vec![*address]),
            Host::Name(name) if is_loopback(name) => return Ok(vec![Ipv4Addr::LOCALHOST.into()]),
            Host::Name(name) => name,
        };
        let found = self.settings.resolver.resolve(name).await;
        found.map_err(|error| match error {
            ResolveError::Failed => Mishap::Unresolved.into(),
            ResolveError::NoAddress => Mishap::NoAddress.into(),
            ResolveError::Unable(_) => OwnFault::Resolver.into(),
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the door: the socket leads where it was judged"
    )]
    async fn secure(
        &self,
        socket: TcpStream,
        host: &Host,
        identity: Option<&Identity>,
    ) -> Result<(Stream, Protocol), Mishap> {
        let name = match host {
            Host::Ip(address) => ServerName::from(*address),
            // DNS allows names that no certificate can be made out for.
            Host::Name(name) => {
                ServerName::try_from(name.clone()).map_err(|_| Mishap::CertificateWrongHost)?
            }
        };
        let config = match identity {
            Some(identity) => Arc::new(identity.shown_by(&self.tls)),
            None => Arc::clone(&self.tls),
        };
        let secured = TlsConnector::from(config).connect(name, socket).await;
        let secured = secured.map_err(|error| explain::handshaking(&error))?;
        let protocol = match secured.get_ref().1.alpn_protocol() {
            Some(HTTP2) => Protocol::Http2,
            Some(_) | None => Protocol::Http1,
        };
        Ok((Stream::tls(secured), protocol))
    }
}

fn is_loopback(name: &str) -> bool {
    match name.strip_suffix(LOOPBACK_NAME) {
        Some(rest) => rest.is_empty() || rest.ends_with('.'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_localhost_and_what_is_below_it_is_this_machine() {
        assert!(is_loopback("localhost"));
        assert!(is_loopback("api.localhost"));
        assert!(!is_loopback("notlocalhost"));
        assert!(!is_loopback("localhost.example.com"));
    }
}
