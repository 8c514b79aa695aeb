//! The inbox in memory.
//!
//! [`MemoryInbox`] holds a bounded number of ids. A processed id expires after the retention period; when the inbox is full,
//! the id that was processed first is forgotten. Ids in progress are never forgotten: their [`Claim`] ends them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use thiserror::Error;

use super::Begin;

/// Remembers webhooks in the memory of one process. A clone shares the ids.
///
/// It knows nothing after a restart, and nothing of other processes: use a database where processing twice does harm.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use posthaste_receiver::{Begin, MemoryInbox};
///
/// let inbox = MemoryInbox::new(100_000, Duration::from_secs(7 * 24 * 3600));
/// let now = SystemTime::now();
/// let Begin::New(claim) = inbox.begin("dlv_1", now)? else { panic!("it is new") };
/// assert!(matches!(inbox.begin("dlv_1", now)?, Begin::InProgress));
/// claim.complete(now);
/// assert!(matches!(inbox.begin("dlv_1", now)?, Begin::Duplicate));
/// # Ok::<(), posthaste_receiver::InboxFull>(())
/// ```
#[derive(Debug, Clone)]
pub struct MemoryInbox {
    ids: Arc<Mutex<Ids>>,
    capacity: usize,
    retention: Duration,
}

#[derive(Debug, Default)]
struct Ids {
    states: HashMap<Arc<str>, State>,
    /// The processed ids in the order in which they were completed, with the time of it.
    processed: VecDeque<(Arc<str>, SystemTime)>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    InProgress,
    Processed,
}

/// Every id that the inbox has room for is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the inbox is full of webhooks in progress")]
pub struct InboxFull;

impl MemoryInbox {
    /// Creates an inbox for at most `capacity` ids, each kept for the retention period after it was processed. Keep ids for
    /// longer than the sender retries and replays: seven days cover every retry policy that posthaste has by name.
    pub fn new(capacity: usize, retention: Duration) -> MemoryInbox {
        MemoryInbox {
            ids: Arc::default(),
            capacity,
            retention,
        }
    }

    /// Asks for a webhook. If it is new, it is in progress until the claim is completed or dropped.
    pub fn begin(&self, id: &str, now: SystemTime) -> Result<Begin<Claim>, InboxFull> {
        let mut ids = self.lock();
        ids.forget_expired(now, self.retention);
        match ids.states.get(id) {
            Some(State::InProgress) => return Ok(Begin::InProgress),
            Some(State::Processed) => return Ok(Begin::Duplicate),
            None => {}
        }
        if ids.states.len() >= self.capacity && !ids.forget_oldest() {
            return Err(InboxFull);
        }
        let id: Arc<str> = id.into();
        ids.states.insert(id.clone(), State::InProgress);
        drop(ids);
        Ok(Begin::New(Claim {
            inbox: self.clone(),
            id: Some(id),
        }))
    }

    /// Returns the number of ids in the inbox, those in progress included.
    pub fn len(&self) -> usize {
        self.lock().states.len()
    }

    /// Returns whether the inbox has no ids.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Ids> {
        // No code that can panic runs under the lock.
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ids {
    fn forget_expired(&mut self, now: SystemTime, retention: Duration) {
        while let Some((_, at)) = self.processed.front()
            && now.duration_since(*at).is_ok_and(|age| age >= retention)
        {
            self.forget_oldest();
        }
    }

    /// Forgets the id that was processed first. Returns false if there is none.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.processed.pop_front();
        oldest.is_some_and(|(id, _)| self.states.remove(&id).is_some())
    }
}

/// The right to process a webhook. Dropping it without [`Claim::complete`] releases the webhook, so that the next attempt can
/// process it: also if the handler fails, panics or is cancelled.
#[derive(Debug)]
#[must_use = "dropping the claim releases the webhook"]
pub struct Claim {
    inbox: MemoryInbox,
    /// `None` once the claim has been completed.
    id: Option<Arc<str>>,
}

impl Claim {
    /// Marks the webhook as processed.
    pub fn complete(mut self, now: SystemTime) {
        if let Some(id) = self.id.take() {
            let mut ids = self.inbox.lock();
            ids.states.insert(id.clone(), State::Processed);
            ids.processed.push_back((id, now));
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.inbox.lock().states.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETENTION: Duration = Duration::from_secs(100);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn claim(inbox: &MemoryInbox, id: &str, now: SystemTime) -> Claim {
        match inbox.begin(id, now) {
            Ok(Begin::New(claim)) => claim,
            other => panic!("{id}: {other:?}"),
        }
    }

    fn is_duplicate(inbox: &MemoryInbox, id: &str, now: SystemTime) -> bool {
        matches!(inbox.begin(id, now), Ok(Begin::Duplicate))
    }

    #[test]
    fn a_dropped_claim_releases_the_webhook() {
        let inbox = MemoryInbox::new(10, RETENTION);
        let first = claim(&inbox, "a", at(0));
        assert!(matches!(inbox.begin("a", at(0)), Ok(Begin::InProgress)));
        drop(first);
        assert!(inbox.is_empty());
        claim(&inbox, "a", at(0)).complete(at(0));
        assert!(is_duplicate(&inbox, "a", at(0)));
    }

    #[test]
    fn a_panic_releases_the_webhook() {
        let inbox = MemoryInbox::new(10, RETENTION);
        let other = inbox.clone();
        let panicked = std::thread::spawn(move || {
            let _claim = claim(&other, "a", at(0));
            panic!("the handler fails");
        });
        assert!(panicked.join().is_err());
        claim(&inbox, "a", at(0)).complete(at(0));
    }

    #[test]
    fn processed_ids_expire() {
        let inbox = MemoryInbox::new(10, RETENTION);
        claim(&inbox, "a", at(0)).complete(at(5));
        claim(&inbox, "b", at(0)).complete(at(50));
        assert!(is_duplicate(&inbox, "a", at(104)));
        claim(&inbox, "a", at(105)).complete(at(105));
        assert!(is_duplicate(&inbox, "b", at(105)));
        assert_eq!(inbox.len(), 2);
        // A clock that was set back forgets nothing.
        assert!(is_duplicate(&inbox, "b", at(1)));
    }

    #[test]
    fn a_full_inbox_forgets_the_oldest_and_never_one_in_progress() {
        let inbox = MemoryInbox::new(2, RETENTION);
        claim(&inbox, "a", at(0)).complete(at(0));
        claim(&inbox, "b", at(0)).complete(at(0));
        let c = claim(&inbox, "c", at(0));
        assert!(is_duplicate(&inbox, "b", at(0)));
        let a = claim(&inbox, "a", at(0));
        assert_eq!(inbox.len(), 2);
        assert_eq!(
            inbox.begin("b", at(0)).err(),
            Some(InboxFull),
            "c and a are in progress"
        );
        c.complete(at(1));
        claim(&inbox, "b", at(1)).complete(at(1));
        drop(a);
        assert_eq!(inbox.len(), 1);
    }
}
