//! Opens connections: check the URL ▸ resolve ▸ vet ▸ dial ▸ check the peer ▸ TLS.
//!
//! [`Connector`] is the only way to a webhook connection, and no step can be skipped. Literal addresses go
//! through every step too; only resolving is trivial for them. With the operator's proxy the steps are the
//! same, except that the proxy dials; see [`proxy`](crate::proxy).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use posthaste_core::address::{Destination, Host, Scheme};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::client_identity::ClientIdentity;
use crate::connection::{Connection, Protocol};
use crate::dial;
use crate::error_mapping;
use crate::lookup_failure::ResolveError;
use crate::proxy::ProxyConnector;
use crate::self_call;
use crate::send_error::{AttemptFailure, AttemptStep, LocalFault, RequestPhase, SendError};
use crate::settings::ClientSettings;
use crate::stream::Stream;
use crate::tls;
use crate::wire::Wire;

/// The name of this machine (RFC 6761). It is never sent to a resolver.
const LOOPBACK_NAME: &str = "localhost";
/// Maximum number of addresses of a name for which a tunnel is requested from the proxy, one after the other.
const MAX_TUNNELS_TRIED: usize = 3;
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Opens connections.
pub(crate) struct Connector {
    settings: Arc<ClientSettings>,
    tls: Arc<ClientConfig>,
    /// The operator's proxy, if one is configured.
    gateway: Option<ProxyConnector>,
}

impl Connector {
    pub(crate) fn new(settings: Arc<ClientSettings>) -> Connector {
        let mut config = tls::config(&settings.roots);
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        // rustls stores sessions by host name, for all pool keys together. A resumed session would carry the
        // identity that the receiver associates with one tenant over to another tenant.
        config.resumption = Resumption::disabled();
        let proxy = settings.proxy.clone();
        Connector {
            gateway: proxy.map(|proxy| ProxyConnector::new(proxy, &settings.roots)),
            settings,
            tls: Arc::new(config),
        }
    }

    /// Opens a new connection. `step` is updated with the progress.
    pub(crate) async fn connect(
        &self,
        to: &Destination,
        identity: Option<&ClientIdentity>,
        step: &mut AttemptStep,
    ) -> Result<Connection, AttemptFailure> {
        // The URL was checked when the endpoint was created, perhaps under other rules.
        Destination::parse(to.as_str(), &self.settings.rules).map_err(SendError::Unsafe)?;

        let wire = match &self.gateway {
            Some(gateway) => self.tunnel(gateway, to, step).await?,
            None => self.dial(to, step).await?,
        };
        let (stream, protocol) = match to.scheme() {
            Scheme::Http => (Stream::plain(wire), Protocol::Http1),
            Scheme::Https => {
                *step = AttemptStep::At(RequestPhase::Securing);
                self.secure(wire, to.host(), identity).await?
            }
        };

        *step = AttemptStep::At(RequestPhase::Awaiting);
        let opened = Connection::open(stream, protocol, &self.settings).await;
        Ok(opened.map_err(|error| error_mapping::response_head_error(&error))?)
    }

    /// Connects directly.
    async fn dial(&self, to: &Destination, step: &mut AttemptStep) -> Result<Wire, AttemptFailure> {
        let addresses = self.vetted(to.host(), to.port(), step).await?;
        *step = AttemptStep::At(RequestPhase::Connecting);
        let socket = dial::dial(&self.settings.rules, &addresses, to.port()).await?;
        Ok(Wire::metered(socket))
    }

    /// Connects through the operator's proxy.
    async fn tunnel(
        &self,
        gateway: &ProxyConnector,
        to: &Destination,
        step: &mut AttemptStep,
    ) -> Result<Wire, AttemptFailure> {
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

    /// Resolves a host. Fails if any of its addresses is forbidden.
    async fn vetted(
        &self,
        host: &Host,
        port: u16,
        step: &mut AttemptStep,
    ) -> Result<Vec<IpAddr>, AttemptFailure> {
        *step = AttemptStep::At(RequestPhase::Resolving);
        let addresses = self.resolve(host).await?;
        dial::vet(&self.settings.rules, &addresses)?;
        self_call::vet(&self.settings.rules, &addresses, port)?;
        Ok(addresses)
    }

    async fn resolve(&self, host: &Host) -> Result<Vec<IpAddr>, AttemptFailure> {
        let name = match host {
            Host::Ip(address) => return Ok(vec![*address]),
            Host::Name(name) if is_loopback(name) => return Ok(vec![Ipv4Addr::LOCALHOST.into()]),
            Host::Name(name) => name,
        };
        let found = self.settings.resolver.resolve(name).await;
        found.map_err(|error| match error {
            ResolveError::Failed => SendError::Unresolved.into(),
            ResolveError::NoSuchName => SendError::NoSuchName.into(),
            ResolveError::Temporary => SendError::ResolverFailed.into(),
            ResolveError::NoAddress => SendError::NoAddress.into(),
            ResolveError::Unable(_) => LocalFault::Resolver.into(),
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the only TLS handshake: the socket leads to a vetted address"
    )]
    async fn secure(
        &self,
        wire: Wire,
        host: &Host,
        identity: Option<&ClientIdentity>,
    ) -> Result<(Stream, Protocol), SendError> {
        let name = match host {
            Host::Ip(address) => ServerName::from(*address),
            // DNS allows names for which no certificate can be issued.
            Host::Name(name) => {
                ServerName::try_from(name.clone()).map_err(|_| SendError::CertificateWrongHost)?
            }
        };
        let config = match identity {
            Some(identity) => Arc::new(identity.client_config(&self.tls)),
            None => Arc::clone(&self.tls),
        };
        let secured = TlsConnector::from(config).connect(name, wire).await;
        let secured = secured.map_err(|error| error_mapping::handshake_error(&error))?;
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
    fn only_localhost_and_its_subdomains_are_this_machine() {
        assert!(is_loopback("localhost"));
        assert!(is_loopback("api.localhost"));
        assert!(!is_loopback("notlocalhost"));
        assert!(!is_loopback("localhost.example.com"));
    }
}
