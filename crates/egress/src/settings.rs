//! Settings of the [`Client`](crate::Client) and their defaults.
//!
//! [`ClientSettings`] holds the rules for destinations, the trusted authorities, the proxy, the resolver, and the
//! limits of connections and responses. The default allows only public destinations and bounds everything. Nothing
//! is read from the environment.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::address::EgressRules;

use crate::proxy::Proxy;
use crate::resolve::{Resolve, SystemResolver};
use crate::roots::Roots;

/// Minimum time limit that an endpoint can be configured with. The client itself accepts a shorter one.
pub const MIN_TIME_LIMIT: Duration = Duration::from_secs(1);
/// Maximum time limit of a request. The client reduces a longer one to this.
pub const MAX_TIME_LIMIT: Duration = Duration::from_secs(60);

/// Minimum limit of a response head: the smallest read buffer that hyper accepts.
pub(crate) const MIN_RESPONSE_HEAD_BYTES: usize = 8 * 1_024;

/// Settings of a [`Client`](crate::Client).
#[derive(Clone)]
pub struct ClientSettings {
    /// The rules for permitted destinations.
    pub rules: EgressRules,
    /// The certificate authorities that are trusted.
    pub roots: Roots,
    /// The operator's proxy. If set, every connection goes through it. Proxies named in the environment are
    /// ignored.
    pub proxy: Option<Proxy>,
    /// Resolves host names to addresses.
    pub resolver: Arc<dyn Resolve>,
    /// Maximum number of idle connections per pool key.
    pub max_idle_per_key: usize,
    /// Maximum number of idle connections in total. Above it, the connection that has been idle longest is
    /// closed.
    pub max_idle_total: usize,
    /// Idle time after which a connection is closed. It is shorter than the timeout of most receivers, because
    /// a request on a connection that the receiver is closing fails. A shorter time that the receiver names
    /// (`Keep-Alive: timeout=5`) takes precedence.
    pub idle_timeout: Duration,
    /// Maximum age of a connection. Afterwards the name is resolved and vetted again.
    pub max_connection_age: Duration,
    /// Maximum number of concurrent requests on one HTTP/2 connection, if the receiver allows as many.
    pub max_streams_per_connection: usize,
    /// Maximum size of a response head; at least 8 KiB. hyper also limits a head to 100 headers.
    pub max_response_head_bytes: usize,
    /// Maximum number of body bytes that are read of a response. If the body is longer, the connection is
    /// closed; the response still counts.
    pub max_response_body_bytes: usize,
    /// Maximum number of body bytes that are kept for display.
    pub max_snippet_bytes: usize,
}

impl Default for ClientSettings {
    fn default() -> ClientSettings {
        ClientSettings {
            rules: EgressRules::default(),
            roots: Roots::mozilla(),
            proxy: None,
            resolver: Arc::new(SystemResolver::new()),
            max_idle_per_key: 10,
            max_idle_total: 4_096,
            idle_timeout: Duration::from_secs(20),
            max_connection_age: Duration::from_secs(120),
            max_streams_per_connection: 100,
            max_response_head_bytes: 16 * 1_024,
            max_response_body_bytes: 64 * 1_024,
            max_snippet_bytes: 1_024,
        }
    }
}
