//! From a destination to an open connection: judge ▸ resolve ▸ vet ▸ dial ▸ check the peer ▸ TLS.
//!
//! There is no other way to a connection, and none of the steps can be left out. Every one runs for
//! literal addresses too; only the resolving is then a formality. Through the operator's proxy the
//! steps are the same, but that the proxy dials; see [`proxy`](crate::proxy).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use posthaste_core::address::{Destination, Host, Scheme};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::connection::{Connection, Protocol};
use crate::dial;
use crate::explain;
use crate::identity::Identity;
use crate::mishap::{Mishap, OwnFault, Phase, Setback, Step};
use crate::own;
use crate::proxy::Gateway;
use crate::resolve::ResolveError;
use crate::settings::ClientSettings;
use crate::stream::Stream;
use crate::tls;
use crate::wire::Wire;

/// The name of the machine itself (RFC 6761), which no resolver is asked about.
const LOOPBACK_NAME: &str = "localhost";
/// How many of a name's addresses a proxy is asked for, one after the other.
const MAX_TUNNELS_TRIED: usize = 3;
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Opens connections.
pub(crate) struct Connector {
    settings: Arc<ClientSettings>,
    tls: Arc<ClientConfig>,
    /// The operator's proxy, if everything goes through one.
    gateway: Option<Gateway>,
}

impl Connector {
    pub(crate) fn new(settings: Arc<ClientSettings>) -> Connector {
        let mut config = tls::config(&settings.roots);
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        // rustls keeps sessions by host name alone, across pool keys. A session taken up again would
        // carry one tenant's standing with the receiver over to another's.
        config.resumption = Resumption::disabled();
        let proxy = settings.proxy.clone();
        Connector {
            gateway: proxy.map(|proxy| Gateway::new(proxy, &settings.roots)),
            settings,
            tls: Arc::new(config),
        }
    }

    /// A fresh connection. `step` follows how far it has come.
    pub(crate) async fn connect(
        &self,
        to: &Destination,
        identity: Option<&Identity>,
        step: &mut Step,
    ) -> Result<Connection, Setback> {
        // It was judged when it was registered, perhaps under other rules.
        Destination::parse(to.as_str(), &self.settings.rules).map_err(Mishap::Unsafe)?;

        let wire = match &self.gateway {
            Some(gateway) => self.tunnel(gateway, to, step).await?,
            None => self.dial(to, step).await?,
        };
        let (stream, protocol) = match to.scheme() {
            Scheme::Http => (Stream::plain(wire), Protocol::Http1),
            Scheme::Https => {
                *step = Step::At(Phase::Securing);
                self.secure(wire, to.host(), identity).await?
            }
        };

        *step = Step::At(Phase::Awaiting);
        let opened = Connection::open(stream, protocol, &self.settings).await;
        Ok(opened.map_err(|error| explain::awaiting(&error))?)
    }

    /// The straight way.
    async fn dial(&self, to: &Destination, step: &mut Step) -> Result<Wire, Setback> {
        let addresses = self.vetted(to.host(), to.port(), step).await?;
        *step = Step::At(Phase::Connecting);
        let socket = dial::dial(&self.settings.rules, &addresses, to.port()).await?;
        Ok(Wire::metered(socket))
    }

    /// The way through the operator's proxy.
    async fn tunnel(
        &self,
        gateway: &Gateway,
        to: &Destination,
        step: &mut Step,
    ) -> Result<Wire, Setback> {
        let targets = match to.host() {
            Host::Name(name) if gateway.resolves() && !is_loopback(name) => {
                vec![format!("{name}:{}", to.port())]
            }
            host @ (Host::Name(_) | Host::Ip(_)) => {
                let addresses = self.vetted(host, to.port(), step).await?;
                let targets = dial::alternating(&addresses, to.port()).into_iter();
                let targets = targets.take(MAX_TUNNELS_TRIED);
                targets.map(|target| target.to_string()).collect()
            }
        };
        Ok(Wire::tunnelled(gateway.tunnel(&targets, step).await?))
    }

    /// Every address of a host, none of them forbidden.
    async fn vetted(
        &self,
        host: &Host,
        port: u16,
        step: &mut Step,
    ) -> Result<Vec<IpAddr>, Setback> {
        *step = Step::At(Phase::Resolving);
        let addresses = self.resolve(host).await?;
        dial::vet(&self.settings.rules, &addresses)?;
        own::vet(&self.settings.rules, &addresses, port)?;
        Ok(addresses)
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
        wire: Wire,
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
        let secured = TlsConnector::from(config).connect(name, wire).await;
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
