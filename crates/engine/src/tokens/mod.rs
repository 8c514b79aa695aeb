//! OAuth access tokens for endpoints, fetched from their authorization servers (RFC 6749, section 4.4).
//!
//! [`TokenCache`] is the cache. It guarantees:
//!
//! - **One fetch at a time.** However many deliveries need a token, one request is made. The others wait for its
//!   result, each at most for its own time limit.
//! - **Renewal before expiry.** While a token is still valid, its successor is fetched in the background, and no
//!   delivery waits for it.
//! - **Backoff.** From the second consecutive failure on, or if the server sends `Retry-After`, a failure is cached for
//!   a growing time and returned to every caller meanwhile. A server whose tokens receivers reject is protected too:
//!   each token is used for a growing time before another is requested.
//! - **Same egress rules.** Token requests use the same client as deliveries, with the same rules and a time limit.
//! - **No leaks.** Errors repeat only the HTTP status and standard error codes of a token server's response.
//!
//! [`token_state`] makes the decisions, [`grant`] builds the request, [`response`] parses the response.

mod grant;
mod response;
mod token_state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::classify::TransportError;
use posthaste_core::time::Tick;
use posthaste_egress::Client;
use rustc_hash::FxHashMap;
use tokio::sync::watch;
use tokio::time::timeout;

pub(super) use grant::{Grant, TokenKey};
pub(super) use token_state::{NoToken, Token, TokenFailure};

use posthaste_system::clock::Clock;
use token_state::{FetchOutcome, FetchResult, TokenDecision, TokenState};

/// Maximum number of endpoints with cached tokens. An evicted token is fetched again.
pub(super) const MAX_CACHED_TOKENS: usize = 4_096;

/// Cache of access tokens.
pub(super) struct TokenCache {
    client: Client,
    clock: Clock,
    entries: Mutex<FxHashMap<TokenKey, Entry>>,
}

#[derive(Default)]
struct Entry {
    state: TokenState,
    /// Channel that receives the result of the fetch in progress.
    result: Option<watch::Receiver<Option<FetchResult>>>,
}

impl TokenCache {
    pub(super) fn new(client: Client, clock: Clock) -> TokenCache {
        TokenCache {
            client,
            clock,
            entries: Mutex::default(),
        }
    }

    /// Returns a token for the endpoint. Fails at the latest when the time limit has passed.
    pub(super) async fn get(
        self: &Arc<TokenCache>,
        grant: &Arc<Grant>,
        time_limit: Duration,
    ) -> Result<Token, NoToken> {
        let now = self.clock.now().tick;
        let mut result = {
            let mut entries = self.entries();
            evict(&mut entries, grant.key);
            let entry = entries.entry(grant.key).or_default();
            match entry.state.decide(now) {
                TokenDecision::Use(token) => return Ok(token),
                TokenDecision::Fail(failure) => return Err(NoToken::TokenServer(failure)),
                TokenDecision::Renew(token) => {
                    entry.result = Some(self.begin(grant, now, time_limit));
                    return Ok(token);
                }
                TokenDecision::Fetch => {
                    let result = self.begin(grant, now, time_limit);
                    entry.result = Some(result.clone());
                    result
                }
                TokenDecision::Wait => entry.result.clone().expect("a fetch is in progress"),
            }
        };
        match timeout(time_limit, result.wait_for(Option::is_some)).await {
            Ok(Ok(result)) => result
                .clone()
                .expect("the wait ends when there is a result"),
            Ok(Err(_)) => Err(fetch_aborted()),
            Err(_) => {
                let why = "timeout while waiting for the token server";
                Err(NoToken::TokenServer(TokenFailure::new(
                    TransportError::Timeout,
                    why,
                )))
            }
        }
    }

    /// Reports that a receiver rejected this token: the next caller gets another one.
    pub(super) fn rejected(&self, key: TokenKey, token: &Token) {
        let now = self.clock.now().tick;
        if let Some(entry) = self.entries().get_mut(&key) {
            entry.state.rejected(now, token.serial);
        }
    }

    /// Drops the endpoint's token, because the endpoint was changed or deleted.
    pub(super) fn forget(&self, key: TokenKey) {
        self.entries().remove(&key);
    }

    /// Fetches a token in a separate task, so that the fetch completes even if its callers stop waiting.
    fn begin(
        self: &Arc<TokenCache>,
        grant: &Arc<Grant>,
        asked_at: Tick,
        time_limit: Duration,
    ) -> watch::Receiver<Option<FetchResult>> {
        let (sender, result) = watch::channel(None);
        let (tokens, grant) = (self.clone(), grant.clone());
        tokio::spawn(async move {
            let mut fetching = FetchGuard {
                tokens: tokens.clone(),
                key: grant.key,
                asked_at,
                sender,
                ended: None,
            };
            let report = tokens.client.send(grant.request(time_limit)).await;
            fetching.ended = Some(match report {
                Ok(report) => response::parse(&report),
                Err(fault) => FetchOutcome::Ours(fault.to_string()),
            });
        });
        result
    }

    fn entries(&self) -> MutexGuard<'_, FxHashMap<TokenKey, Entry>> {
        // A panic leaves no half-done change behind, so a poisoned lock is safe to use.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fetch_aborted() -> NoToken {
    NoToken::Internal("the fetch of an access token panicked".to_owned())
}

fn evict(entries: &mut FxHashMap<TokenKey, Entry>, wanted: TokenKey) {
    if entries.len() >= MAX_CACHED_TOKENS && !entries.contains_key(&wanted) {
        // Evicts the first idle entry: the order of the map is as good as random.
        let mut idle = entries
            .iter()
            .filter(|(_, entry)| !entry.state.is_fetching());
        let victim = idle.next().map(|(key, _)| *key);
        if let Some(victim) = victim {
            entries.remove(&victim);
        }
    }
}

/// Drop guard of a fetch in progress. However the fetch ends, the waiting deliveries get a result and the next fetch
/// may start.
struct FetchGuard {
    tokens: Arc<TokenCache>,
    key: TokenKey,
    asked_at: Tick,
    sender: watch::Sender<Option<FetchResult>>,
    ended: Option<FetchOutcome>,
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        let now = self.tokens.clock.now().tick;
        let mut entries = self.tokens.entries();
        // If the endpoint was changed meanwhile, its entry was dropped, and a new entry may already have another fetch
        // in progress. Only the entry that waits for this fetch is updated; the deliveries waiting for it are answered
        // in any case.
        let is_awaited = |entry: &&mut Entry| {
            let result = entry.result.as_ref();
            result.is_some_and(|result| result.same_channel(&self.sender.subscribe()))
        };
        let entry = entries.get_mut(&self.key).filter(is_awaited);
        let mut cleared = TokenState::default();
        let state = entry.map_or(&mut cleared, |entry| &mut entry.state);
        let result = match self.ended.take() {
            Some(ended) => state.fetched(self.asked_at, now, ended),
            None => {
                state.fetch_aborted();
                Err(fetch_aborted())
            }
        };
        self.sender.send_replace(Some(result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credentials;
    use posthaste_core::id::EndpointId;

    #[test]
    fn the_cache_is_bounded_and_never_evicts_a_fetch_in_progress() {
        let mark = Credentials::default().fingerprint();
        let mut entries = FxHashMap::default();
        let fetching = (EndpointId(0), mark);
        let mut entry = Entry::default();
        assert_eq!(entry.state.decide(Tick(0)), TokenDecision::Fetch);
        entries.insert(fetching, entry);
        for number in 1..2 * MAX_CACHED_TOKENS as u128 {
            let key = (EndpointId(number), mark);
            evict(&mut entries, key);
            entries.insert(key, Entry::default());
            assert!(entries.len() <= MAX_CACHED_TOKENS);
            assert!(entries.contains_key(&key) && entries.contains_key(&fetching));
        }
        // A key that is already present evicts nothing.
        let before = entries.len();
        evict(&mut entries, fetching);
        assert_eq!(entries.len(), before);
    }
}
