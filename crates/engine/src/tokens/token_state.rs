//! Decides when a token is used, renewed, waited for, or not even requested.
//!
//! [`TokenState`] is the state of one endpoint's token. It is pure: time is a parameter, and the caller makes the
//! requests.

use std::time::Duration;

use http::HeaderValue;
use posthaste_core::classify::TransportError;
use posthaste_core::time::{Span, Tick};
use posthaste_system::backoff::Backoff;

/// Lifetime of a token whose server states none.
pub(super) const DEFAULT_LIFETIME: Span = Span::from_secs(5 * 60);
/// Longest time for which a token is used, even if its server allows more.
pub(super) const MAX_LIFETIME: Span = Span::from_hours(24);
/// Longest time before expiry at which a token is renewed. The margin is a tenth of the lifetime if that is shorter.
pub(super) const MAX_MARGIN: Span = Span::from_secs(60);
/// Time for which consecutive failures are cached, from the second one on. The first failure is not cached, unless the
/// server sends `Retry-After`: it may be transient, and each cached failure costs a delivery an attempt without asking
/// the server.
const FAILURE_BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_millis(MAX_PAUSE.as_millis()),
};
/// Longest time for which a failure is cached, even if the server asks for more.
pub(super) const MAX_PAUSE: Span = Span::from_secs(60);

/// Number of consecutive rejected tokens that are replaced at once. After that, a minimum use time applies.
pub(super) const FREE_REJECTIONS: u32 = 3;
/// Longest time for which a rejected token stays in use.
pub(super) const MAX_REJECTED: Span = Span::from_secs(10);

/// Reason why there is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoToken {
    /// The token server gave none, or could not be reached.
    TokenServer(TokenFailure),
    /// An internal error of posthaste. The delivery is not counted as attempted.
    Internal(String),
}

/// A token that the token server did not provide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenFailure {
    /// Fault for the classification of the attempt.
    pub(crate) fault: TransportError,
    /// Error text for the tenant and the operator.
    pub(crate) detail: String,
}

impl TokenFailure {
    pub(super) fn new(fault: TransportError, why: &str) -> TokenFailure {
        TokenFailure {
            fault,
            detail: format!("no access token: {why}"),
        }
    }
}

/// Result of a fetch, for the deliveries that wait for it.
pub(super) type FetchResult = Result<Token, NoToken>;

/// A token for one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The complete `Authorization` header value.
    pub(crate) header: HeaderValue,
    /// True if the token was fetched while this attempt waited for it.
    pub(crate) fresh: bool,
    /// Serial number of the token.
    pub(super) serial: u64,
}

/// Outcome of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    /// The server issued a token.
    Got {
        /// The complete `Authorization` header value.
        header: HeaderValue,
        /// Lifetime, if the server stated one.
        lifetime: Option<Span>,
    },
    /// The server issued no token.
    Failed {
        /// Reason.
        failure: TokenFailure,
        /// The server's `Retry-After`, if it sent one.
        wait: Option<Span>,
    },
    /// An internal error of posthaste, which says nothing about the server.
    Ours(String),
}

/// The decision for a delivery that needs a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenDecision {
    /// Use this token.
    Use(Token),
    /// Use this token, and fetch its successor in the background.
    Renew(Token),
    /// Fetch a token.
    Fetch,
    /// Wait for the fetch in progress.
    Wait,
    /// There is no token, and it is too early for another request.
    Fail(TokenFailure),
}

/// State of one endpoint's token.
#[derive(Debug, Default)]
pub(super) struct TokenState {
    held: Option<Held>,
    fetching: bool,
    failures: Option<Failures>,
    serial: u64,
    /// Number of consecutive tokens that were rejected soon after they were issued.
    rejections: u32,
}

#[derive(Debug)]
struct Held {
    token: Token,
    since: Tick,
    renew_at: Tick,
    ends_at: Tick,
}

/// Consecutive failures of the server to issue a token.
#[derive(Debug)]
struct Failures {
    count: u32,
    until: Tick,
    failure: TokenFailure,
}

impl TokenState {
    /// Returns the decision. A caller that gets `Fetch` or `Renew` must fetch: no other caller gets either until the
    /// fetch has ended.
    pub(super) fn decide(&mut self, now: Tick) -> TokenDecision {
        self.held.take_if(|held| held.ends_at <= now);
        let failures = self.failures.as_ref();
        let failures = failures.filter(|failures| now < failures.until);
        match (&self.held, failures) {
            (Some(held), failures) => {
                let token = held.token.clone();
                if now < held.renew_at || self.fetching || failures.is_some() {
                    return TokenDecision::Use(token);
                }
                self.fetching = true;
                TokenDecision::Renew(token)
            }
            (None, _) if self.fetching => TokenDecision::Wait,
            (None, Some(failures)) => TokenDecision::Fail(failures.failure.clone()),
            (None, None) => {
                self.fetching = true;
                TokenDecision::Fetch
            }
        }
    }

    /// Applies the outcome of the fetch that started at `asked_at`. The token's lifetime counts from there, because it
    /// is unknown when between request and response it began.
    pub(super) fn fetched(
        &mut self,
        asked_at: Tick,
        now: Tick,
        ended: FetchOutcome,
    ) -> FetchResult {
        self.fetching = false;
        match ended {
            FetchOutcome::Got { header, lifetime } => {
                self.failures = None;
                self.serial += 1;
                let token = Token {
                    header,
                    fresh: false,
                    serial: self.serial,
                };
                let lifetime = lifetime.unwrap_or(DEFAULT_LIFETIME).min(MAX_LIFETIME);
                let margin = Span::from_millis(lifetime.as_millis() / 10).min(MAX_MARGIN);
                let until_renewal = lifetime.as_millis() - margin.as_millis();
                self.held = Some(Held {
                    token: token.clone(),
                    since: now,
                    renew_at: asked_at.after(Span::from_millis(until_renewal)),
                    ends_at: asked_at.after(lifetime),
                });
                Ok(Token {
                    fresh: true,
                    ..token
                })
            }
            FetchOutcome::Failed { failure, wait } => {
                let before = self.failures.as_ref().map_or(0, |failures| failures.count);
                let pause = before.checked_sub(1).map_or(Span::ZERO, pause);
                let pause = pause.max(wait.unwrap_or_default()).min(MAX_PAUSE);
                self.failures = Some(Failures {
                    count: before.saturating_add(1),
                    until: now.after(pause),
                    failure: failure.clone(),
                });
                Err(NoToken::TokenServer(failure))
            }
            FetchOutcome::Ours(why) => Err(NoToken::Internal(why)),
        }
    }

    /// Ends a fetch that had no outcome.
    pub(super) fn fetch_aborted(&mut self) {
        self.fetching = false;
    }

    /// Handles a token that a receiver rejected. A newer token stays in use. If several tokens in a row are rejected,
    /// another one would hardly be accepted. Then each must be used for longer than the one before, until a token is
    /// accepted for a while.
    pub(super) fn rejected(&mut self, now: Tick, serial: u64) {
        let Some(held) = self
            .held
            .as_ref()
            .filter(|held| held.token.serial == serial)
        else {
            return;
        };
        let age = now.since(held.since);
        if age >= MAX_PAUSE {
            self.rejections = 0;
        }
        let least = match self.rejections.checked_sub(FREE_REJECTIONS) {
            None => Span::ZERO,
            Some(before) => pause(before).min(MAX_REJECTED),
        };
        if age >= least {
            self.rejections = self.rejections.saturating_add(1);
            self.held = None;
        }
    }

    /// Returns true while a fetch is in progress.
    pub(super) fn is_fetching(&self) -> bool {
        self.fetching
    }
}

/// Returns the backoff after this number of earlier failures.
fn pause(earlier_failures: u32) -> Span {
    Span::from_millis(FAILURE_BACKOFF.pause(earlier_failures).as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn got(token: &'static str, seconds: Option<u64>) -> FetchOutcome {
        FetchOutcome::Got {
            header: HeaderValue::from_static(token),
            lifetime: seconds.map(Span::from_secs),
        }
    }

    fn failed(wait: Option<u64>) -> FetchOutcome {
        FetchOutcome::Failed {
            failure: TokenFailure::new(TransportError::NoToken, "because"),
            wait: wait.map(Span::from_secs),
        }
    }

    /// Returns a state that holds a token requested at tick 0.
    fn holding(seconds: Option<u64>) -> TokenState {
        let mut state = TokenState::default();
        assert_eq!(state.decide(Tick(0)), TokenDecision::Fetch);
        let result = state.fetched(Tick(0), Tick(5_000), got("one", seconds));
        assert!(result.is_ok_and(|token| token.fresh));
        state
    }

    fn uses(state: &mut TokenState, now: u64) -> bool {
        matches!(state.decide(Tick(now)), TokenDecision::Use(token) if !token.fresh)
    }

    #[test]
    fn one_fetches_and_the_others_wait() {
        let mut state = TokenState::default();
        assert_eq!(state.decide(Tick(0)), TokenDecision::Fetch);
        assert_eq!(state.decide(Tick(1)), TokenDecision::Wait);
        assert_eq!(state.decide(Tick(900_000)), TokenDecision::Wait);
        let _ = state.fetched(Tick(0), Tick(900_000), got("one", Some(3_600)));
        assert!(uses(&mut state, 900_001));
    }

    #[test]
    fn a_token_is_renewed_while_it_still_works_and_never_used_past_its_end() {
        let mut state = holding(Some(3_600));
        assert!(uses(&mut state, 3_539_999));
        // One minute before expiry exactly one caller gets the decision to renew it.
        assert!(matches!(
            state.decide(Tick(3_540_000)),
            TokenDecision::Renew(_)
        ));
        assert!(uses(&mut state, 3_540_000));
        assert!(uses(&mut state, 3_599_999));
        assert_eq!(state.decide(Tick(3_600_000)), TokenDecision::Wait);
        let result = state.fetched(Tick(3_540_000), Tick(3_600_500), got("two", Some(3_600)));
        assert!(result.is_ok_and(|token| token.header == "two"));
        // The lifetime counts from the request.
        assert!(uses(&mut state, 3_540_000 + 3_539_999));
        assert!(matches!(
            state.decide(Tick(3_540_000 + 3_540_000)),
            TokenDecision::Renew(_)
        ));
    }

    #[test]
    fn a_short_life_has_a_short_margin_and_an_unknown_one_a_default() {
        let mut state = holding(Some(100));
        assert!(uses(&mut state, 89_999));
        assert!(matches!(
            state.decide(Tick(90_000)),
            TokenDecision::Renew(_)
        ));
        let mut state = holding(None);
        let end = DEFAULT_LIFETIME.as_millis();
        assert!(uses(&mut state, end * 9 / 10 - 1));
        assert!(matches!(
            state.decide(Tick(end - 1)),
            TokenDecision::Renew(_)
        ));
        let mut state = holding(Some(u64::MAX / 1_000));
        let end = MAX_LIFETIME.as_millis();
        assert!(uses(&mut state, end - MAX_MARGIN.as_millis() - 1));
        assert_eq!(state.decide(Tick(end)), TokenDecision::Fetch);
        // A token that expires at once serves the deliveries that waited for it, and no others.
        let mut state = holding(Some(0));
        assert_eq!(state.decide(Tick(5_000)), TokenDecision::Fetch);
    }

    #[test]
    fn a_renewal_that_fails_leaves_the_old_one_in_use() {
        let mut state = holding(Some(3_600));
        assert!(matches!(
            state.decide(Tick(3_540_000)),
            TokenDecision::Renew(_)
        ));
        let _ = state.fetched(Tick(3_540_000), Tick(3_540_100), failed(None));
        assert!(matches!(
            state.decide(Tick(3_540_100)),
            TokenDecision::Renew(_)
        ));
        let _ = state.fetched(Tick(3_540_100), Tick(3_540_200), failed(None));
        assert!(uses(&mut state, 3_541_199));
        assert!(matches!(
            state.decide(Tick(3_541_200)),
            TokenDecision::Renew(_)
        ));
        let _ = state.fetched(Tick(3_541_200), Tick(3_598_500), failed(None));
        assert!(matches!(
            state.decide(Tick(3_600_000)),
            TokenDecision::Fail(_)
        ));
    }

    #[test]
    fn failures_are_remembered_for_a_growing_and_bounded_time() {
        let mut state = TokenState::default();
        let mut now = Tick(0);
        // The first failure may be transient and is not cached.
        assert_eq!(state.decide(now), TokenDecision::Fetch);
        let _ = state.fetched(now, now, failed(None));
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            assert_eq!(state.decide(now), TokenDecision::Fetch, "{seconds}");
            let _ = state.fetched(now, now, failed(None));
            let last = Tick(now.0 + seconds * 1_000 - 1);
            assert!(
                matches!(state.decide(last), TokenDecision::Fail(_)),
                "{seconds}"
            );
            now = Tick(last.0 + 1);
        }
        assert_eq!(state.decide(now), TokenDecision::Fetch);
        let _ = state.fetched(now, now, got("one", Some(1)));
        // After a success, the next failure is a first one again.
        let now = Tick(now.0 + 1_000);
        assert_eq!(state.decide(now), TokenDecision::Fetch);
        let _ = state.fetched(now, now, failed(None));
        assert_eq!(state.decide(now), TokenDecision::Fetch);
    }

    #[test]
    fn a_server_that_asks_for_time_gets_it_within_bounds() {
        for (requested, given) in [(1, 1), (30, 30), (3_600, 60)] {
            let mut state = TokenState::default();
            assert_eq!(state.decide(Tick(0)), TokenDecision::Fetch);
            let _ = state.fetched(Tick(0), Tick(0), failed(Some(requested)));
            let last = Tick(given * 1_000 - 1);
            assert!(
                matches!(state.decide(last), TokenDecision::Fail(_)),
                "{requested}"
            );
            assert_eq!(
                state.decide(Tick(last.0 + 1)),
                TokenDecision::Fetch,
                "{requested}"
            );
        }
    }

    #[test]
    fn a_fault_of_ours_is_not_held_against_the_server() {
        let mut state = TokenState::default();
        assert_eq!(state.decide(Tick(0)), TokenDecision::Fetch);
        let result = state.fetched(Tick(0), Tick(0), FetchOutcome::Ours("no room".to_owned()));
        assert_eq!(result, Err(NoToken::Internal("no room".to_owned())));
        assert_eq!(state.decide(Tick(0)), TokenDecision::Fetch);
        state.fetch_aborted();
        assert_eq!(state.decide(Tick(0)), TokenDecision::Fetch);
    }

    #[test]
    fn only_the_token_that_was_rejected_is_dropped() {
        let mut state = holding(Some(3_600));
        let TokenDecision::Use(old) = state.decide(Tick(6_000)) else {
            panic!("there is one");
        };
        state.rejected(Tick(6_000), old.serial);
        assert_eq!(state.decide(Tick(6_000)), TokenDecision::Fetch);
        let _ = state.fetched(Tick(6_000), Tick(6_000), got("two", Some(3_600)));
        // Another delivery was sent with the old token too, and its rejection arrives only now.
        state.rejected(Tick(6_000), old.serial);
        assert!(uses(&mut state, 6_001));
    }

    #[test]
    fn a_receiver_that_takes_no_token_does_not_wear_the_server_out() {
        let mut state = holding(Some(3_600));
        let mut fetches = 0;
        // 1,000 seconds with ten rejections per second.
        for now in (5_000..1_005_000).step_by(100).map(Tick) {
            match state.decide(now) {
                TokenDecision::Use(token) => state.rejected(now, token.serial),
                TokenDecision::Fetch => {
                    fetches += 1;
                    let _ = state.fetched(now, now, got("another", Some(3_600)));
                }
                other
                @ (TokenDecision::Renew(_) | TokenDecision::Wait | TokenDecision::Fail(_)) => {
                    panic!("{other:?}")
                }
            }
        }
        // Three at once, then after 1, 2, 4 and 8 seconds, and from there on every 10 seconds.
        assert!((100..=110).contains(&fetches), "{fetches}");
        // A token that was accepted for a while and is then rejected is replaced at once.
        let mut now = Tick(2_000_000);
        while let TokenDecision::Use(token) = state.decide(now) {
            state.rejected(now, token.serial);
        }
        let _ = state.fetched(now, now, got("good", Some(3_600)));
        now = now.after(MAX_PAUSE);
        let TokenDecision::Use(token) = state.decide(now) else {
            panic!("there is one");
        };
        state.rejected(now, token.serial);
        assert_eq!(state.decide(now), TokenDecision::Fetch);
    }

    proptest! {
        /// For any sequence of steps: never two fetches at once, never a token past its expiry.
        #[test]
        fn no_sequence_of_events_breaks_the_rules(steps in prop::collection::vec((0_u64..120_000, 0_u8..6), 1..200)) {
            let mut state = TokenState::default();
            let (mut now, mut begun, mut end) = (Tick(0), None, Tick(0));
            for (passed, step) in steps {
                now = Tick(now.0 + passed);
                match (step, begun) {
                    (0..=2, _) => match state.decide(now) {
                        TokenDecision::Fetch => prop_assert!(begun.replace(now).is_none()),
                        TokenDecision::Renew(_) => {
                            prop_assert!(begun.replace(now).is_none());
                            prop_assert!(now < end);
                        }
                        TokenDecision::Use(_) => prop_assert!(now < end),
                        TokenDecision::Wait => prop_assert!(begun.is_some()),
                        TokenDecision::Fail(_) => {}
                    },
                    (3, Some(at)) => {
                        let _ = state.fetched(at, now, got("one", Some(90)));
                        (begun, end) = (None, at.after(Span::from_secs(90)));
                    }
                    (4, Some(at)) => {
                        let _ = state.fetched(at, now, failed(None));
                        begun = None;
                    }
                    _ => state.rejected(now, state.serial),
                }
            }
        }
    }
}
