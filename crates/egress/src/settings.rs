//! What the operator can choose, and what is chosen where nobody did.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::address::EgressRules;

use crate::proxy::Proxy;
use crate::resolve::{Resolve, SystemResolver};
use crate::roots::Roots;

/// The shortest time limit an endpoint may ask for. The client itself keeps any shorter one too.
pub const MIN_TIME_LIMIT: Duration = Duration::from_secs(1);
/// The longest time a request may take, whatever its caller asks for.
pub const MAX_TIME_LIMIT: Duration = Duration::from_secs(60);

/// The smallest read buffer that hyper works with, and so the smallest limit for a response head.
pub(crate) const MIN_RESPONSE_HEAD_BYTES: usize = 8 * 1_024;

/// How a [`Client`](crate::Client) behaves.
#[derive(Clone)]
pub struct ClientSettings {
    /// Where requests may go.
    pub rules: EgressRules,
    /// Whose certificates are believed.
    pub roots: Roots,
    /// The operator's proxy, through which every connection goes if there is one. Only what is set here
    /// counts, never the environment.
    pub proxy: Option<Proxy>,
    /// Who turns names into addresses.
    pub resolver: Arc<dyn Resolve>,
    /// How many idle connections are kept for one pool key.
    pub max_idle_per_key: usize,
    /// How many idle connections are kept in all. Beyond it the longest idle is closed.
    pub max_idle_total: usize,
    /// How long an idle connection is kept. Shorter than most receivers keep theirs, since a request
    /// that meets a closing connection is a failed attempt. A receiver that names a shorter time
    /// (`Keep-Alive: timeout=5`) is believed.
    pub idle_timeout: Duration,
    /// How long a connection may be used. Afterwards its name is resolved, and judged, anew.
    pub max_connection_age: Duration,
    /// How many requests share one HTTP/2 connection, if the receiver allows as many.
    pub max_streams_per_connection: usize,
    /// How long the head of an answer may be; at least 8 KiB. It may also hold no more than 100
    /// headers, which is hyper's own limit.
    pub max_response_head_bytes: usize,
    /// How much of an answer's body is read. If there is more, the connection is closed; the answer
    /// counts all the same.
    pub max_response_body_bytes: usize,
    /// How much of an answer's body is kept for people to look at.
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
