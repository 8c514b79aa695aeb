//! Limits failed authentications per client address, before a key is looked at.
//!
//! [`FailedAuthentications`] counts the wrong keys of each peer: of an IPv4 address, or of an IPv6 /64 network. A peer may
//! be wrong [`MAX_FAILURES`] times at once, and is forgiven one failure per [`RECOVERY`]. Keys that are being checked
//! count as if they were wrong until the result is known, so parallel guesses cannot exceed the limit. Requests with the
//! same key share one place, and a peer whose limit is used up by checks in progress waits for their results. So a caller
//! with a valid key is refused only if its own peer has sent too many wrong keys.
//!
//! A wrong key that is sent again is no new guess: it is refused without a look at the store, and not counted. So one
//! program with a revoked key does not use up the limit of its address. The table holds at most [`MAX_PEERS`].

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use posthaste_core::time::{Span, Tick};
use posthaste_store::KeyHash;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

/// Number of wrong keys that a peer may send at once.
pub(super) const MAX_FAILURES: u64 = 50;
/// Time after which one failure of a peer is forgiven.
pub(super) const RECOVERY: Span = Span::from_secs(1);
/// Maximum number of peers in the table. Beyond it, the peers with the fewest failures are forgotten.
const MAX_PEERS: usize = 10_000;
/// Number of wrong keys that are remembered per peer.
const MAX_WRONG_KEYS: usize = 16;
/// Number of bits of an IPv6 address that are left out: one customer usually has a whole /64 network.
const HOST_BITS: u32 = 64;

/// Failed authentications, by peer.
pub(super) struct FailedAuthentications {
    table: Mutex<FxHashMap<IpAddr, PeerFailures>>,
    /// Number of peers in the table.
    peers: AtomicUsize,
    /// Notified when a check ends.
    check_ended: Notify,
}

/// The failures of one peer.
#[derive(Debug, Default)]
struct PeerFailures {
    /// The time at which all failures are forgiven.
    forgiven_at_ms: u64,
    /// Keys that are being checked, with the number of requests for each.
    checking: FxHashMap<KeyHash, usize>,
    /// The last wrong keys, oldest first.
    wrong: VecDeque<KeyHash>,
}

/// The decision about a key that a peer sent.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// The key may be checked.
    Check,
    /// Checks in progress may use up the limit: wait for their results.
    Wait,
    /// The limit is used up. A retry may succeed after this time.
    Refuse(Span),
    /// The key was wrong a moment ago.
    KnownWrong,
}

/// The reason why a key is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// The peer's limit is used up. A retry may succeed after this time.
    TooMany(Span),
    /// The key was wrong a moment ago.
    KnownWrong,
}

/// A check of a key in progress. Counts as a failure if it is dropped before [`Check::succeeded`].
pub(super) struct Check<'a> {
    failures: &'a FailedAuthentications,
    peer: IpAddr,
    key: KeyHash,
    now: Tick,
    is_failure: bool,
}

impl FailedAuthentications {
    pub(super) fn new() -> FailedAuthentications {
        FailedAuthentications {
            table: Mutex::new(FxHashMap::default()),
            peers: AtomicUsize::new(0),
            check_ended: Notify::new(),
        }
    }

    /// Returns true if no peer has a failure or a check in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.peers.load(Ordering::Acquire) == 0
    }

    /// Begins the check of a key, unless the peer's limit is used up or the key was wrong a moment ago.
    pub(super) async fn begin(
        &self,
        now: Tick,
        peer: Option<IpAddr>,
        key: KeyHash,
    ) -> Result<Check<'_>, Denied> {
        let peer = network_of(peer);
        loop {
            let ended = self.check_ended.notified();
            tokio::pin!(ended);
            // Registers before the decision, so that no end is missed.
            ended.as_mut().enable();
            match self.decide(now, peer, key) {
                Decision::Check => {
                    return Ok(Check {
                        failures: self,
                        peer,
                        key,
                        now,
                        is_failure: true,
                    });
                }
                Decision::Refuse(wait) => return Err(Denied::TooMany(wait)),
                Decision::KnownWrong => return Err(Denied::KnownWrong),
                Decision::Wait => ended.await,
            }
        }
    }

    fn decide(&self, now: Tick, peer: IpAddr, key: KeyHash) -> Decision {
        let mut table = self.lock();
        if !table.contains_key(&peer) && table.len() >= MAX_PEERS {
            make_room(&mut table, now);
        }
        let decision = table.entry(peer).or_default().begin(now, key);
        self.peers.store(table.len(), Ordering::Release);
        decision
    }

    fn end(&self, now: Tick, peer: IpAddr, key: KeyHash, is_failure: bool) {
        let mut table = self.lock();
        // Peers are not forgotten during a check.
        if let Some(failures) = table.get_mut(&peer) {
            failures.end(now, key, is_failure);
            if failures.is_forgiven(now) {
                table.remove(&peer);
            }
        }
        self.peers.store(table.len(), Ordering::Release);
        drop(table);
        self.check_ended.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<IpAddr, PeerFailures>> {
        // No operation on the table panics before it is complete.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerFailures {
    fn begin(&mut self, now: Tick, key: KeyHash) -> Decision {
        let failures = self.failures(now);
        if failures >= MAX_FAILURES {
            let remaining_ms = self.forgiven_at_ms - now.0;
            let wait_ms = remaining_ms - (MAX_FAILURES - 1) * RECOVERY.as_millis();
            return Decision::Refuse(Span::from_millis(wait_ms));
        }
        if failures == 0 {
            self.wrong.clear();
        }
        if self.wrong.contains(&key) {
            return Decision::KnownWrong;
        }
        if let Some(requests) = self.checking.get_mut(&key) {
            *requests += 1;
            return Decision::Check;
        }
        if failures + self.checking.len() as u64 >= MAX_FAILURES {
            return Decision::Wait;
        }
        self.checking.insert(key, 1);
        Decision::Check
    }

    fn end(&mut self, now: Tick, key: KeyHash, is_failure: bool) {
        if let Some(requests) = self.checking.get_mut(&key) {
            *requests -= 1;
            if *requests == 0 {
                self.checking.remove(&key);
            }
        }
        // The same wrong key may have been checked for several requests.
        if is_failure && !self.wrong.contains(&key) {
            if self.wrong.len() >= MAX_WRONG_KEYS {
                self.wrong.pop_front();
            }
            self.wrong.push_back(key);
            let recovery_ms = RECOVERY.as_millis();
            let latest_ms = now.0 + MAX_FAILURES * recovery_ms;
            let forgiven_at_ms = self.forgiven_at_ms.max(now.0) + recovery_ms;
            self.forgiven_at_ms = forgiven_at_ms.min(latest_ms);
        }
    }

    /// Returns the number of failures that are not forgiven yet.
    fn failures(&self, now: Tick) -> u64 {
        let remaining_ms = self.forgiven_at_ms.saturating_sub(now.0);
        remaining_ms.div_ceil(RECOVERY.as_millis())
    }

    /// Returns true if nothing needs to be remembered.
    fn is_forgiven(&self, now: Tick) -> bool {
        self.checking.is_empty() && self.failures(now) == 0
    }
}

impl Check<'_> {
    /// Ends the check without a failure: the key is valid, or it could not be checked.
    pub(super) fn succeeded(mut self) {
        self.is_failure = false;
    }
}

impl Drop for Check<'_> {
    fn drop(&mut self) {
        let Check {
            peer,
            key,
            now,
            is_failure,
            ..
        } = *self;
        self.failures.end(now, peer, key, is_failure);
    }
}

/// Returns the address of a peer, or its network for IPv6. Requests without a peer count together.
fn network_of(peer: Option<IpAddr>) -> IpAddr {
    match peer.map(|peer| peer.to_canonical()) {
        None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Some(IpAddr::V4(address)) => IpAddr::V4(address),
        Some(IpAddr::V6(address)) => {
            let network = address.to_bits() >> HOST_BITS << HOST_BITS;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

/// Forgets peers without failures. If the table is still full, forgets the half with the fewest failures.
fn make_room(table: &mut FxHashMap<IpAddr, PeerFailures>, now: Tick) {
    table.retain(|_, failures| !failures.is_forgiven(now));
    if table.len() < MAX_PEERS {
        return;
    }
    let mut times: Vec<u64> = table.values().map(|it| it.forgiven_at_ms).collect();
    let middle = times.len() / 2;
    let (_, median, _) = times.select_nth_unstable(middle);
    let median = *median;
    let mut forgettable = middle;
    table.retain(|_, failures| {
        let is_kept =
            forgettable == 0 || !failures.checking.is_empty() || failures.forgiven_at_ms > median;
        forgettable -= usize::from(!is_kept);
        is_kept
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Tick = Tick(1_000_000);

    fn key(number: u64) -> KeyHash {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        KeyHash(bytes)
    }

    fn peer(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    fn after(ms: u64) -> Tick {
        Tick(START.0 + ms)
    }

    /// Uses up the allowance of a peer.
    async fn fail(failures: &FailedAuthentications, from: &str) {
        for number in 0..MAX_FAILURES {
            let check = failures.begin(START, peer(from), key(number)).await;
            drop(check.unwrap_or_else(|_| panic!("failure {number} is allowed")));
        }
    }

    #[tokio::test]
    async fn a_peer_with_too_many_wrong_keys_is_refused_and_forgiven_one_by_one() {
        let failures = FailedAuthentications::new();
        fail(&failures, "192.0.2.1").await;
        let refused = failures.begin(START, peer("192.0.2.1"), key(500)).await;
        assert_eq!(refused.err(), Some(Denied::TooMany(RECOVERY)));
        let refused = failures
            .begin(after(999), peer("192.0.2.1"), key(500))
            .await;
        assert_eq!(refused.err(), Some(Denied::TooMany(Span::from_millis(1))));
        let check = failures
            .begin(after(1_000), peer("192.0.2.1"), key(500))
            .await;
        drop(check.expect("one failure is forgiven"));
        let refused = failures
            .begin(after(1_000), peer("192.0.2.1"), key(501))
            .await;
        assert!(refused.is_err());
        let other = failures.begin(START, peer("192.0.2.2"), key(500)).await;
        assert!(other.is_ok(), "another peer is not affected");
    }

    #[tokio::test]
    async fn a_repeated_wrong_key_is_refused_and_not_counted() {
        let failures = FailedAuthentications::new();
        for number in 0..3 * MAX_FAILURES {
            let check = failures.begin(START, peer("192.0.2.1"), key(7)).await;
            assert_eq!(check.is_ok(), number == 0);
            assert!(number == 0 || check.err() == Some(Denied::KnownWrong));
        }
        // The same wrong key in parallel requests counts once, too.
        let mut checks = Vec::new();
        for _ in 0..3 * MAX_FAILURES {
            let check = failures.begin(START, peer("192.0.2.1"), key(8)).await;
            checks.push(check.expect("one place"));
        }
        drop(checks);
        let failed = failures.lock()[&network_of(peer("192.0.2.1"))].failures(START);
        assert_eq!(failed, 2);
        let later = after(2 * RECOVERY.as_millis());
        let again = failures.begin(later, peer("192.0.2.1"), key(7)).await;
        assert!(again.is_ok(), "it is checked again later");
    }

    #[tokio::test]
    async fn guesses_in_progress_count_as_failures() {
        let failures = FailedAuthentications::new();
        let mut guesses = Vec::new();
        for number in 0..MAX_FAILURES {
            let check = failures.begin(START, peer("192.0.2.1"), key(number)).await;
            guesses.push(check.expect("within the limit"));
        }
        let next = || failures.decide(START, network_of(peer("192.0.2.1")), key(999));
        assert_eq!(next(), Decision::Wait);
        // Requests with a key that is being checked already share its place.
        let same = failures.begin(START, peer("192.0.2.1"), key(0)).await;
        same.expect("the same key").succeeded();
        // The first results are failures, so that the limit is used up when all have ended.
        drop(guesses);
        assert!(matches!(next(), Decision::Refuse(_)));
    }

    #[tokio::test]
    async fn a_caller_waits_for_checks_in_progress_and_is_not_refused() {
        let failures = FailedAuthentications::new();
        let mut checks = Vec::new();
        for number in 0..MAX_FAILURES {
            let check = failures.begin(START, peer("192.0.2.1"), key(number)).await;
            checks.push(check.expect("within the limit"));
        }
        let next = failures.begin(START, peer("192.0.2.1"), key(999));
        tokio::pin!(next);
        assert!(futures_poll(next.as_mut()).await.is_none(), "it waits");
        checks.pop().expect("a check").succeeded();
        next.await.expect("there is a place").succeeded();
        for check in checks {
            check.succeeded();
        }
        assert!(failures.is_empty(), "valid keys leave no trace");
    }

    /// Polls a future once.
    async fn futures_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(match future.as_mut().poll(context) {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }

    #[tokio::test]
    async fn addresses_of_one_ipv6_network_count_together() {
        let failures = FailedAuthentications::new();
        fail(&failures, "2001:db8:0:1::1").await;
        let same = failures.begin(START, peer("2001:db8:0:1:ffff::9"), key(1));
        assert!(same.await.is_err());
        let other = failures.begin(START, peer("2001:db8:0:2::1"), key(1));
        assert!(other.await.is_ok());
        fail(&failures, "::ffff:192.0.2.1").await;
        let same = failures.begin(START, peer("192.0.2.1"), key(1));
        assert!(same.await.is_err(), "a mapped address is an IPv4 address");
    }

    #[tokio::test]
    async fn the_table_is_bounded_and_keeps_the_worst_peers() {
        let failures = FailedAuthentications::new();
        fail(&failures, "192.0.2.1").await;
        for number in 0..3 * MAX_PEERS as u32 {
            let other = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
            let check = failures.begin(START, Some(other), key(1)).await;
            drop(check);
            assert!(failures.lock().len() <= MAX_PEERS);
        }
        let worst = failures.begin(START, peer("192.0.2.1"), key(1)).await;
        assert!(worst.is_err());
        let later = after(MAX_FAILURES * RECOVERY.as_millis());
        make_room(&mut failures.lock(), later);
        assert!(failures.lock().is_empty());
    }
}
