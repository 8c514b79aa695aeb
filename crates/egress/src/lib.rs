//! The only crate of posthaste that opens outbound connections.
//!
//! Every request to a URL that a tenant chose (webhooks, access tokens) leaves through [`Client::send`]. Three
//! modules connect to servers that the operator named: [`trusted_client`] (the command line's own server, collectors),
//! [`database`] (PostgreSQL) and [`mail`] (SMTP).
//!
//! A webhook sender requests URLs that untrusted tenants chose, from inside the operator's network, and reads
//! responses that untrusted servers wrote. This crate guarantees to its caller:
//!
//! - **Only permitted destinations.** The destination is checked again for every connection. Its name is
//!   resolved, *one* forbidden address among the results refuses the destination, only vetted addresses are
//!   dialled, and the peer address is checked before a byte is sent. Literal addresses go through the same
//!   checks. TLS verifies the original host name.
//! - **The request as given.** No redirects, no proxy from the environment, no cookies, no decompression. The
//!   body is sent byte for byte.
//! - **Bounded time and size.** One time limit covers resolving, connecting, TLS, the request and the whole
//!   response. Heads, bodies, framing, addresses, lookups and idle connections are bounded, each by a setting
//!   or a named constant. When a send ends, for any reason, everything that it started ends too.
//! - **No sharing between tenants.** A connection serves one [`PoolKey`], one destination and one client
//!   certificate, never another tenant's.
//! - **No duplicate requests.** A request is repeated on a new connection only if none of it was written.
//! - **No leaked addresses.** A send error is a type, [`SendError`], whose message never contains a resolved
//!   address.
//!
//! ```text
//!  client ─▶ pool: one idle? ──yes──────────────────────────────────────────▶ exchange ─▶ SendReport
//!              └─no─▶ connector: check URL ▸ resolve ▸ vet ▸ dial ▸ peer ▸ TLS ──┘
//!                                                            └ or a tunnel ┘
//! ```

mod allowance;
mod client;
mod client_identity;
mod connection;
mod connector;
pub mod database;
mod dial;
mod error_mapping;
mod lookup_failure;
mod lookup_scheduler;
pub mod mail;
mod pool;
mod proxy;
mod report;
mod request;
mod resolve;
mod roots;
mod self_call;
mod send_error;
mod settings;
mod stream;
mod tls;
pub mod trusted_client;
mod wire;

pub use client::Client;
pub use client_identity::{ClientIdentity, IdentityError, MAX_CHAIN};
pub use lookup_failure::ResolveError;
pub use proxy::{Proxy, ProxyError};
pub use report::SendReport;
pub use request::{PoolKey, Request, SendPermit};
pub use resolve::{Lookup, MAX_ADDRESSES, MAX_LOOKUPS, Resolve, SystemResolver};
pub use roots::{BundleError, Roots};
pub use self_call::refuse_self_call;
pub use send_error::{LocalFault, ProxyFault, RequestPhase, SendError};
pub use settings::{ClientSettings, MAX_TIME_LIMIT, MIN_TIME_LIMIT};
