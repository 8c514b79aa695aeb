//! Tokens to call endpoints with, fetched from their authorization servers (RFC 6749, section 4.4).
//!
//! It promises:
//!
//! - **One fetch at a time.** However many deliveries need a token, one asks for it, and the others wait
//!   for that answer, each no longer than its own time limit.
//! - **Renewed before it ends.** While a token still works, its successor is fetched beside the
//!   deliveries, and none of them waits.
//! - **A dead server is left in peace.** From the second failure in a row on, each is remembered for a
//!   growing time, and whoever asks meanwhile is told of it. So is a server whose tokens no receiver takes:
//!   each is used for a growing time before another is asked for.
//! - **Through the one door.** Fetches leave by the client that deliveries leave by, with the same rules
//!   and a time limit.
//! - **Nothing told.** Of what a server answers, only the status and the error codes of the standard are
//!   repeated.
//!
//! [`shelf`] decides, [`grant`] writes the request, [`answer`] understands what comes back.

mod answer;
mod grant;
mod shelf;

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
pub(super) use shelf::Lent;

use crate::clock::Clock;
use crate::credentials::Mark;
use shelf::{Advice, Ended, Shelf};

/// For how many endpoints tokens are kept. What is missed is fetched again.
pub(super) const MAX_SHELVES: usize = 4_096;

/// Whose token it is: an endpoint's, got with these credentials.
pub(super) type TokenKey = (EndpointId, Mark);

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// The token server, or the way to it.
    Theirs(Missing),
    /// Something here. It counts as no attempt.
    Ours(String),
}

/// A token that the token server did not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// What classification works with.
    pub(super) fault: Fault,
    /// The words for people on both ends.
    pub(super) detail: String,
}

impl Missing {
    fn new(fault: Fault, why: &str) -> Missing {
        Missing {
            fault,
            detail: format!("no access token: {why}"),
        }
    }
}

/// What a fetch brought, for those who wait for it.
type News = Result<Lent, Absent>;

/// The tokens at hand.
pub(super) struct Tokens {
    client: Client,
    clock: Clock,
    places: Mutex<FxHashMap<TokenKey, Place>>,
}

#[derive(Default)]
struct Place {
    shelf: Shelf,
    /// Where the fetch under way will tell what it brought.
    news: Option<watch::Receiver<Option<News>>>,
}

impl Tokens {
    pub(super) fn new(client: Client, clock: Clock) -> Tokens {
        Tokens {
            client,
            clock,
            places: Mutex::default(),
        }
    }

    /// A token to call the endpoint with, at the latest when the time limit has passed.
    pub(super) async fn lend(
        self: &Arc<Tokens>,
        grant: &Arc<Grant>,
        time_limit: Duration,
    ) -> Result<Lent, Absent> {
        let now = self.clock.now().tick;
        let mut news = {
            let mut places = self.places();
            make_room(&mut places, grant.key);
            let place = places.entry(grant.key).or_default();
            match place.shelf.advise(now) {
                Advice::Use(lent) => return Ok(lent),
                Advice::Fail(missing) => return Err(Absent::Theirs(missing)),
                Advice::Renew(lent) => {
                    place.news = Some(self.begin(grant, now, time_limit));
                    return Ok(lent);
                }
                Advice::Fetch => {
                    let news = self.begin(grant, now, time_limit);
                    place.news = Some(news.clone());
                    news
                }
                Advice::Wait => place.news.clone().expect("a fetch is under way"),
            }
        };
        match timeout(time_limit, news.wait_for(Option::is_some)).await {
            Ok(Ok(told)) => told.clone().expect("it was waited for"),
            Ok(Err(_)) => Err(fell_over()),
            Err(_) => {
                let why = "the time limit passed before the token server answered";
                Err(Absent::Theirs(Missing::new(Fault::Timeout, why)))
            }
        }
    }

    /// The receiver did not take this token: the next one who asks gets another.
    pub(super) fn rejected(&self, key: TokenKey, lent: &Lent) {
        let now = self.clock.now().tick;
        if let Some(place) = self.places().get_mut(&key) {
            place.shelf.rejected(now, lent.serial);
        }
    }

    /// Drops what was fetched: the endpoint was changed or deleted.
    pub(super) fn forget(&self, key: TokenKey) {
        self.places().remove(&key);
    }

    /// Fetches a token in a task of its own, so that it comes to its end whoever stops waiting.
    fn begin(
        self: &Arc<Tokens>,
        grant: &Arc<Grant>,
        asked_at: Tick,
        time_limit: Duration,
    ) -> watch::Receiver<Option<News>> {
        let (tell, news) = watch::channel(None);
        let (tokens, grant) = (self.clone(), grant.clone());
        tokio::spawn(async move {
            let mut fetching = Fetching {
                tokens: tokens.clone(),
                key: grant.key,
                asked_at,
                tell,
                ended: None,
            };
            let report = tokens.client.send(grant.request(time_limit)).await;
            fetching.ended = Some(match report {
                Ok(report) => answer::understand(&report),
                Err(fault) => Ended::Ours(fault.to_string()),
            });
        });
        news
    }

    fn places(&self) -> MutexGuard<'_, FxHashMap<TokenKey, Place>> {
        // Nothing is left half done by whoever fell over with it.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fell_over() -> Absent {
    Absent::Ours("the fetch of an access token fell over".to_owned())
}

fn make_room(places: &mut FxHashMap<TokenKey, Place>, wanted: TokenKey) {
    if places.len() >= MAX_SHELVES && !places.contains_key(&wanted) {
        // Whichever comes first: the map's order is as good as chance.
        let mut idle = places
            .iter()
            .filter(|(_, place)| !place.shelf.is_fetching());
        let victim = idle.next().map(|(key, _)| *key);
        if let Some(victim) = victim {
            places.remove(&victim);
        }
    }
}

/// A fetch under way. However it ends, those who wait are told, and the next may begin.
struct Fetching {
    tokens: Arc<Tokens>,
    key: TokenKey,
    asked_at: Tick,
    tell: watch::Sender<Option<News>>,
    ended: Option<Ended>,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        let now = self.tokens.clock.now().tick;
        let mut places = self.tokens.places();
        // Who changed the endpoint meanwhile has cleared the shelf, and on a new one another fetch may be
        // under way already. Those who wait for this one are served all the same.
        let awaited = |place: &&mut Place| {
            let news = place.news.as_ref();
            news.is_some_and(|news| news.same_channel(&self.tell.subscribe()))
        };
        let place = places.get_mut(&self.key).filter(awaited);
        let mut cleared = Shelf::default();
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
        let mut place = Place::default();
        assert_eq!(place.shelf.advise(Tick(0)), Advice::Fetch);
        places.insert(awaited, place);
        for number in 1..2 * MAX_SHELVES as u128 {
            let key = (EndpointId(number), mark);
            make_room(&mut places, key);
            places.insert(key, Place::default());
            assert!(places.len() <= MAX_SHELVES);
            assert!(places.contains_key(&key) && places.contains_key(&awaited));
        }
        // What is there already needs no room.
        let before = places.len();
        make_room(&mut places, awaited);
        assert_eq!(places.len(), before);
    }
}
