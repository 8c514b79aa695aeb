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
//! [`shelf`] makes the decisions, [`grant`] builds the request, [`answer`] parses the response.

mod grant;
mod response;
mod token_state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::classify::Fault;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Tick;
use posthaste_egress::Client;
use rustc_hash::FxHashMap;
use tokio::sync::watch;
use tokio::time::timeout;

pub(super) use grant::Grant;
pub(super) use token_state::Token;

use crate::credentials::CredentialsFingerprint;
use posthaste_system::clock::Clock;
use token_state::{Decision, FetchOutcome, TokenState};

/// Maximum number of endpoints with cached tokens. An evicted token is fetched again.
pub(super) const MAX_CACHED_TOKENS: usize = 4_096;

/// Key of a cached token: the endpoint, and the credentials that it was fetched with.
pub(super) type TokenKey = (EndpointId, CredentialsFingerprint);

/// Reason why there is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoToken {
    /// The token server gave none, or could not be reached.
    Theirs(TokenFailure),
    /// An internal error of posthaste. The delivery is not counted as attempted.
    Ours(String),
}

/// A token that the token server did not provide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenFailure {
    /// Fault for the classification of the attempt.
    pub(super) fault: Fault,
    /// Error text for the tenant and the operator.
    pub(super) detail: String,
}

impl TokenFailure {
    fn new(fault: Fault, why: &str) -> TokenFailure {
        TokenFailure {
            fault,
            detail: format!("no access token: {why}"),
        }
    }
}

/// Result of a fetch, for the deliveries that wait for it.
type FetchResult = Result<Token, NoToken>;

/// Cache of access tokens.
pub(super) struct TokenCache {
    client: Client,
    clock: Clock,
    places: Mutex<FxHashMap<TokenKey, Entry>>,
}

#[derive(Default)]
struct Entry {
    shelf: TokenState,
    /// Channel that receives the result of the fetch in progress.
    news: Option<watch::Receiver<Option<FetchResult>>>,
}

impl TokenCache {
    pub(super) fn new(client: Client, clock: Clock) -> TokenCache {
        TokenCache {
            client,
            clock,
            places: Mutex::default(),
        }
    }

    /// Returns a token for the endpoint. Fails at the latest when the time limit has passed.
    pub(super) async fn lend(
        self: &Arc<TokenCache>,
        grant: &Arc<Grant>,
        time_limit: Duration,
    ) -> Result<Token, NoToken> {
        let now = self.clock.now().tick;
        let mut news = {
            let mut places = self.places();
            make_room(&mut places, grant.key);
            let place = places.entry(grant.key).or_default();
            match place.shelf.decide(now) {
                Decision::Use(lent) => return Ok(lent),
                Decision::Fail(missing) => return Err(NoToken::Theirs(missing)),
                Decision::Renew(lent) => {
                    place.news = Some(self.begin(grant, now, time_limit));
                    return Ok(lent);
                }
                Decision::Fetch => {
                    let news = self.begin(grant, now, time_limit);
                    place.news = Some(news.clone());
                    news
                }
                Decision::Wait => place.news.clone().expect("a fetch is under way"),
            }
        };
        match timeout(time_limit, news.wait_for(Option::is_some)).await {
            Ok(Ok(told)) => told.clone().expect("it was waited for"),
            Ok(Err(_)) => Err(fell_over()),
            Err(_) => {
                let why = "the time limit passed before the token server answered";
                Err(NoToken::Theirs(TokenFailure::new(Fault::Timeout, why)))
            }
        }
    }

    /// Reports that a receiver rejected this token: the next caller gets another one.
    pub(super) fn rejected(&self, key: TokenKey, lent: &Token) {
        let now = self.clock.now().tick;
        if let Some(place) = self.places().get_mut(&key) {
            place.shelf.rejected(now, lent.serial);
        }
    }

    /// Drops the endpoint's token, because the endpoint was changed or deleted.
    pub(super) fn forget(&self, key: TokenKey) {
        self.places().remove(&key);
    }

    /// Fetches a token in a separate task, so that the fetch completes even if its callers stop waiting.
    fn begin(
        self: &Arc<TokenCache>,
        grant: &Arc<Grant>,
        asked_at: Tick,
        time_limit: Duration,
    ) -> watch::Receiver<Option<FetchResult>> {
        let (tell, news) = watch::channel(None);
        let (tokens, grant) = (self.clone(), grant.clone());
        tokio::spawn(async move {
            let mut fetching = FetchGuard {
                tokens: tokens.clone(),
                key: grant.key,
                asked_at,
                tell,
                ended: None,
            };
            let report = tokens.client.send(grant.request(time_limit)).await;
            fetching.ended = Some(match report {
                Ok(report) => response::understand(&report),
                Err(fault) => FetchOutcome::Ours(fault.to_string()),
            });
        });
        news
    }

    fn places(&self) -> MutexGuard<'_, FxHashMap<TokenKey, Entry>> {
        // A panic leaves no half-done change behind, so a poisoned lock is safe to use.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fell_over() -> NoToken {
    NoToken::Ours("the fetch of an access token fell over".to_owned())
}

fn make_room(places: &mut FxHashMap<TokenKey, Entry>, wanted: TokenKey) {
    if places.len() >= MAX_CACHED_TOKENS && !places.contains_key(&wanted) {
        // Evicts the first idle entry: the order of the map is as good as random.
        let mut idle = places
            .iter()
            .filter(|(_, place)| !place.shelf.is_fetching());
        let victim = idle.next().map(|(key, _)| *key);
        if let Some(victim) = victim {
            places.remove(&victim);
        }
    }
}

/// Drop guard of a fetch in progress. However the fetch ends, the waiting deliveries get a result and the next fetch
/// may start.
struct FetchGuard {
    tokens: Arc<TokenCache>,
    key: TokenKey,
    asked_at: Tick,
    tell: watch::Sender<Option<FetchResult>>,
    ended: Option<FetchOutcome>,
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        let now = self.tokens.clock.now().tick;
        let mut places = self.tokens.places();
        // If the endpoint was changed meanwhile, its entry was dropped, and a new entry may already have another fetch
        // in progress. Only the entry that waits for this fetch is updated; the deliveries waiting for it are answered
        // in any case.
        let awaited = |place: &&mut Entry| {
            let news = place.news.as_ref();
            news.is_some_and(|news| news.same_channel(&self.tell.subscribe()))
        };
        let place = places.get_mut(&self.key).filter(awaited);
        let mut cleared = TokenState::default();
        let shelf = place.map_or(&mut cleared, |place| &mut place.shelf);
        let news = match self.ended.take() {
            Some(ended) => shelf.fetched(self.asked_at, now, ended),
            None => {
                shelf.fell_over();
                Err(fell_over())
            }
        };
        self.tell.send_replace(Some(news));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credentials;

    #[test]
    fn no_more_are_kept_than_may_be_and_none_that_is_awaited_goes() {
        let mark = Credentials::default().mark();
        let mut places = FxHashMap::default();
        let awaited = (EndpointId(0), mark);
        let mut place = Entry::default();
        assert_eq!(place.shelf.decide(Tick(0)), Decision::Fetch);
        places.insert(awaited, place);
        for number in 1..2 * MAX_CACHED_TOKENS as u128 {
            let key = (EndpointId(number), mark);
            make_room(&mut places, key);
            places.insert(key, Entry::default());
            assert!(places.len() <= MAX_CACHED_TOKENS);
            assert!(places.contains_key(&key) && places.contains_key(&awaited));
        }
        // A key that is already present evicts nothing.
        let before = places.len();
        make_room(&mut places, awaited);
        assert_eq!(places.len(), before);
    }
}
