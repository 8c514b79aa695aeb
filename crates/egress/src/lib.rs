//! The one door out: every request that posthaste sends leaves through [`Client::send`], but for those
//! that the person at the terminal makes to their own server, through [`operator`]. The operator's own
//! [`database`] and [`mail`] server are reached from here as well.
//!
//! A webhook sender calls whatever strangers tell it to call, from inside its owner's network, and
//! waits for answers that strangers write. This crate promises its caller:
//!
//! - **Only where it may go.** A destination is judged again at every connection: its name is
//!   resolved, *one* forbidden address among the answers refuses it, only vetted addresses are
//!   dialled, and the peer is checked before a byte is sent. Literal addresses take the same way.
//!   TLS is spoken with the original name.
//! - **Only what it was given.** No redirects, no proxy from the environment, no cookies, no
//!   decompression. The body arrives byte for byte.
//! - **Always an end.** One time limit covers resolving, connecting, TLS, the request and the whole
//!   answer. Heads, bodies, framing, addresses, lookups and idle connections are bounded, each by a
//!   setting or a named constant. When a send ends, however it ends, so does everything it started.
//! - **Nothing shared.** A connection serves one [`PoolKey`] and one origin, never another tenant's.
//! - **Nothing twice.** A request is repeated on a fresh connection only if none of it was written.
//! - **Nothing told.** What went wrong is a type, [`Mishap`], whose words never contain an address.
//!
//! ```text
//!  client ─▶ pool: one idle? ──yes──────────────────────────▶ exchange ─▶ Report
//!              └─no─▶ connector: judge ▸ resolve ▸ vet ▸ dial ▸ peer ▸ TLS ──┘
//!                                                      └ or a tunnel ┘
//! ```

mod client;
mod connection;
mod connector;
pub mod database;
mod dial;
mod explain;
mod identity;
pub mod mail;
mod meter;
mod mishap;
pub mod operator;
mod own;
mod pool;
mod proxy;
mod report;
mod request;
mod resolve;
mod roots;
mod rota;
mod settings;
mod stream;
mod tls;
mod wire;

pub use client::Client;
pub use identity::{Identity, IdentityError, MAX_CHAIN};
pub use mishap::{Mishap, OwnFault, Phase, ProxyFault};
pub use own::refuse_own;
pub use proxy::{Proxy, ProxyError};
pub use report::Report;
pub use request::{Permit, PoolKey, Request};
pub use resolve::{Lookup, MAX_ADDRESSES, MAX_LOOKUPS, Resolve, ResolveError, SystemResolver};
pub use roots::{BundleError, Roots};
pub use settings::{ClientSettings, MAX_TIME_LIMIT, MIN_TIME_LIMIT};
