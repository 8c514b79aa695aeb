//! From names to addresses.
//!
//! A resolver only answers; whether the addresses may be called is judged elsewhere, and nothing is
//! cached here, so that every new connection is judged by what the name means at that moment.
//!
//! The system's resolver (`getaddrinfo`) is used, because it is what the operator configured: name
//! servers, DNS over TLS, `nsswitch`. A library (hickory) would be a second reader of that
//! configuration, and 29 more dependencies. Two of its habits are tamed. It would append the search
//! domains of the machine's network to a name that does not exist, so it is asked for the name with
//! the dot of the root, which is final; glibc then does not look into `/etc/hosts` either. And it
//! blocks a thread until it is done, long after the request that asked has given up, so at most
//! [`MAX_LOOKUPS`] run at once.

use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::Semaphore;

/// How many lookups the system's resolver runs at once. More wait, within their time limits.
pub const MAX_LOOKUPS: usize = 64;

/// Why a name has no addresses.
#[derive(Debug, Error)]
pub enum ResolveError {
    /// The name does not exist, or its servers do not answer.
    #[error("the name does not resolve")]
    Failed,
    /// The name exists and has no address.
    #[error("the name has no address")]
    NoAddress,
    /// This machine could not even ask; no fault of the name's.
    #[error("the resolver could not be asked")]
    Unable(#[source] io::Error),
}

/// A lookup under way.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send + 'a>>;

/// Turns names into addresses.
pub trait Resolve: Send + Sync {
    /// Every address of `name`, the preferred first. The name is fully qualified, lower case, ASCII,
    /// and has no dot at its end; no search domain may be applied to it.
    ///
    /// Nothing may be left out: a forbidden address that is not reported is one that is not refused.
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl SystemResolver {
    /// A resolver that runs at most [`MAX_LOOKUPS`] at once.
    pub fn new() -> SystemResolver {
        SystemResolver {
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where names are resolved; whoever asked vets the answer"
    )]
    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let permit = Arc::clone(&self.lookups).acquire_owned().await;
        let permit = permit.map_err(|closed| ResolveError::Unable(io::Error::other(closed)))?;
        let absolute = absolute(name);
        let found = tokio::task::spawn_blocking(move || {
            // The thread cannot be cancelled, so the permit stays with it and not with the request.
            let _permit = permit;
            let addresses = (absolute.as_str(), 0).to_socket_addrs()?;
            Ok(addresses.map(|address| address.ip()).collect())
        })
        .await;
        let found = found.map_err(|lost| ResolveError::Unable(io::Error::other(lost)))?;
        found.map_err(|error: io::Error| {
            // What the resolver says about the name has no error number; what the system says
            // about itself (no more files, no more memory) has one.
            match error.raw_os_error() {
                Some(_) => ResolveError::Unable(error),
                None => ResolveError::Failed,
            }
        })
    }
}

impl Default for SystemResolver {
    fn default() -> SystemResolver {
        SystemResolver::new()
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a> {
        Box::pin(self.look_up(name))
    }
}

/// The name with the dot of the root, after which no search domain is tried.
fn absolute(name: &str) -> String {
    format!("{name}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_asked_for_as_it_stands() {
        assert_eq!(absolute("hooks.customer.com"), "hooks.customer.com.");
    }

    #[tokio::test]
    async fn a_name_that_cannot_exist_does_not_resolve() {
        let resolver = SystemResolver::new();
        let found = resolver.resolve("posthaste.invalid").await;
        assert!(matches!(found, Err(ResolveError::Failed)), "{found:?}");
        assert_eq!(resolver.lookups.available_permits(), MAX_LOOKUPS);
    }
}
