//! When a token is used, renewed, waited for, or not even asked for. Decided purely: time is an argument.

use http::HeaderValue;
use posthaste_core::time::{Span, Tick};

use super::{Absent, Missing, News};

/// How long a token is used whose server does not say how long it holds.
pub(super) const DEFAULT_LIFETIME: Span = Span::from_secs(5 * 60);
/// The longest a token is used, whatever its server says.
pub(super) const MAX_LIFETIME: Span = Span::from_hours(24);
/// The longest before its end that a token is renewed. A tenth of its life is enough for a short one.
pub(super) const MAX_MARGIN: Span = Span::from_secs(60);
/// How long the second failure in a row is remembered; each further one doubles it. The first is not: it may
/// have been a hiccup, and whoever is told of a failure has spent an attempt without asking anybody.
pub(super) const FIRST_PAUSE: Span = Span::from_secs(1);
/// The longest a failure is remembered, whatever the server asks for.
pub(super) const MAX_PAUSE: Span = Span::from_secs(60);

/// How many tokens in a row may be rejected before the next has to last.
pub(super) const FREE_REJECTIONS: u32 = 3;
/// The longest a token is used although receivers do not take it.
pub(super) const MAX_REJECTED: Span = Span::from_secs(10);

/// A token, for one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Lent {
    /// The whole `Authorization` header.
    pub(in crate::engine) header: HeaderValue,
    /// Whether it was fetched while this attempt waited for it.
    pub(in crate::engine) fresh: bool,
    /// Which of the tokens fetched it is.
    pub(super) serial: u64,
}

/// How a fetch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With a token.
    Got {
        /// The whole `Authorization` header.
        header: HeaderValue,
        /// How long it holds, if that was said.
        lifetime: Option<Span>,
    },
    /// Without one.
    Failed {
        /// Why.
        missing: Missing,
        /// How long the server wants to be left alone, if it said so.
        wait: Option<Span>,
    },
    /// By a fault of ours, which says nothing about the server.
    Ours(String),
}

/// What to do for whoever needs a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// Use this one.
    Use(Lent),
    /// Use this one, and fetch its successor beside.
    Renew(Lent),
    /// Fetch one.
    Fetch,
    /// Wait for the one that is being fetched.
    Wait,
    /// There is none, and it is too early to ask again.
    Fail(Missing),
}

/// What is known of one endpoint's token.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    held: Option<Held>,
    fetching: bool,
    trouble: Option<Trouble>,
    serial: u64,
    /// How many tokens in a row were soon rejected.
    rejections: u32,
}

#[derive(Debug)]
struct Held {
    lent: Lent,
    since: Tick,
    renew_at: Tick,
    ends_at: Tick,
}

/// The server gave no token, the last so many times.
#[derive(Debug)]
struct Trouble {
    count: u32,
    until: Tick,
    missing: Missing,
}

impl Shelf {
    /// Says what to do. Whoever is told to fetch must do so: nobody else is told until it has ended.
    pub(super) fn advise(&mut self, now: Tick) -> Advice {
        self.held.take_if(|held| held.ends_at <= now);
        let trouble = self.trouble.as_ref();
        let trouble = trouble.filter(|trouble| now < trouble.until);
        match (&self.held, trouble) {
            (Some(held), trouble) => {
                let lent = held.lent.clone();
                if now < held.renew_at || self.fetching || trouble.is_some() {
                    return Advice::Use(lent);
                }
                self.fetching = true;
                Advice::Renew(lent)
            }
            (None, _) if self.fetching => Advice::Wait,
            (None, Some(trouble)) => Advice::Fail(trouble.missing.clone()),
            (None, None) => {
                self.fetching = true;
                Advice::Fetch
            }
        }
    }

    /// Takes in how the fetch ended that was begun at `asked_at`. A token's life is counted from there,
    /// as nobody knows when on the way it began.
    pub(super) fn fetched(&mut self, asked_at: Tick, now: Tick, ended: Ended) -> News {
        self.fetching = false;
        match ended {
            Ended::Got { header, lifetime } => {
                self.trouble = None;
                self.serial += 1;
                let lent = Lent {
                    header,
                    fresh: false,
                    serial: self.serial,
                };
                let lifetime = lifetime.unwrap_or(DEFAULT_LIFETIME).min(MAX_LIFETIME);
                let margin = Span::from_millis(lifetime.as_millis() / 10).min(MAX_MARGIN);
                let until_renewal = lifetime.as_millis() - margin.as_millis();
                self.held = Some(Held {
                    lent: lent.clone(),
                    since: now,
                    renew_at: asked_at.after(Span::from_millis(until_renewal)),
                    ends_at: asked_at.after(lifetime),
                });
                Ok(Lent {
                    fresh: true,
                    ..lent
                })
            }
            Ended::Failed { missing, wait } => {
                let before = self.trouble.as_ref().map_or(0, |trouble| trouble.count);
                let pause = before.checked_sub(1).map_or(Span::ZERO, pause);
                let pause = pause.max(wait.unwrap_or_default()).min(MAX_PAUSE);
                self.trouble = Some(Trouble {
                    count: before.saturating_add(1),
                    until: now.after(pause),
                    missing: missing.clone(),
                });
                Err(Absent::Theirs(missing))
            }
            Ended::Ours(why) => Err(Absent::Ours(why)),
        }
    }

    /// The fetch came to no end at all.
    pub(super) fn fell_over(&mut self) {
        self.fetching = false;
    }

    /// A receiver did not take this token. Its successor, if there is one by now, stays. Where one after
    /// the other is rejected, another would hardly fare better: then each has to last longer than the one
    /// before, until one is taken for a while.
    pub(super) fn rejected(&mut self, now: Tick, serial: u64) {
        let Some(held) = self.held.as_ref().filter(|held| held.lent.serial == serial) else {
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

    /// Whether somebody is fetching.
    pub(super) fn is_fetching(&self) -> bool {
        self.fetching
    }
}

/// The first pause, doubled so often.
fn pause(doublings: u32) -> Span {
    let doublings = doublings.min(16);
    let pause = Span::from_millis(FIRST_PAUSE.as_millis() << doublings);
    pause.min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::classify::Fault;
    use proptest::prelude::*;

    fn got(token: &'static str, seconds: Option<u64>) -> Ended {
        Ended::Got {
            header: HeaderValue::from_static(token),
            lifetime: seconds.map(Span::from_secs),
        }
    }

    fn failed(wait: Option<u64>) -> Ended {
        Ended::Failed {
            missing: Missing::new(Fault::NoToken, "because"),
            wait: wait.map(Span::from_secs),
        }
    }

    /// A shelf that holds a token, fetched at the beginning of time.
    fn holding(seconds: Option<u64>) -> Shelf {
        let mut shelf = Shelf::default();
        assert_eq!(shelf.advise(Tick(0)), Advice::Fetch);
        let news = shelf.fetched(Tick(0), Tick(5_000), got("one", seconds));
        assert!(news.is_ok_and(|lent| lent.fresh));
        shelf
    }

    fn uses(shelf: &mut Shelf, now: u64) -> bool {
        matches!(shelf.advise(Tick(now)), Advice::Use(lent) if !lent.fresh)
    }

    #[test]
    fn one_fetches_and_the_others_wait() {
        let mut shelf = Shelf::default();
        assert_eq!(shelf.advise(Tick(0)), Advice::Fetch);
        assert_eq!(shelf.advise(Tick(1)), Advice::Wait);
        assert_eq!(shelf.advise(Tick(900_000)), Advice::Wait);
        let _ = shelf.fetched(Tick(0), Tick(900_000), got("one", Some(3_600)));
        assert!(uses(&mut shelf, 900_001));
    }

    #[test]
    fn a_token_is_renewed_while_it_still_works_and_never_used_past_its_end() {
        let mut shelf = holding(Some(3_600));
        assert!(uses(&mut shelf, 3_539_999));
        // A minute before its end one is told to renew it, and one only.
        assert!(matches!(shelf.advise(Tick(3_540_000)), Advice::Renew(_)));
        assert!(uses(&mut shelf, 3_540_000));
        assert!(uses(&mut shelf, 3_599_999));
        assert_eq!(shelf.advise(Tick(3_600_000)), Advice::Wait);
        let news = shelf.fetched(Tick(3_540_000), Tick(3_600_500), got("two", Some(3_600)));
        assert!(news.is_ok_and(|lent| lent.header == "two"));
        // Its life is counted from when it was asked for.
        assert!(uses(&mut shelf, 3_540_000 + 3_539_999));
        assert!(matches!(
            shelf.advise(Tick(3_540_000 + 3_540_000)),
            Advice::Renew(_)
        ));
    }

    #[test]
    fn a_short_life_has_a_short_margin_and_an_unknown_one_a_default() {
        let mut shelf = holding(Some(100));
        assert!(uses(&mut shelf, 89_999));
        assert!(matches!(shelf.advise(Tick(90_000)), Advice::Renew(_)));
        let mut shelf = holding(None);
        let end = DEFAULT_LIFETIME.as_millis();
        assert!(uses(&mut shelf, end * 9 / 10 - 1));
        assert!(matches!(shelf.advise(Tick(end - 1)), Advice::Renew(_)));
        let mut shelf = holding(Some(u64::MAX / 1_000));
        let end = MAX_LIFETIME.as_millis();
        assert!(uses(&mut shelf, end - MAX_MARGIN.as_millis() - 1));
        assert_eq!(shelf.advise(Tick(end)), Advice::Fetch);
        // One that is over at once serves those who waited for it, and nobody else.
        let mut shelf = holding(Some(0));
        assert_eq!(shelf.advise(Tick(5_000)), Advice::Fetch);
    }

    #[test]
    fn a_renewal_that_fails_leaves_the_old_one_in_use() {
        let mut shelf = holding(Some(3_600));
        assert!(matches!(shelf.advise(Tick(3_540_000)), Advice::Renew(_)));
        let _ = shelf.fetched(Tick(3_540_000), Tick(3_540_100), failed(None));
        assert!(matches!(shelf.advise(Tick(3_540_100)), Advice::Renew(_)));
        let _ = shelf.fetched(Tick(3_540_100), Tick(3_540_200), failed(None));
        assert!(uses(&mut shelf, 3_541_199));
        assert!(matches!(shelf.advise(Tick(3_541_200)), Advice::Renew(_)));
        let _ = shelf.fetched(Tick(3_541_200), Tick(3_598_500), failed(None));
        assert!(matches!(shelf.advise(Tick(3_600_000)), Advice::Fail(_)));
    }

    #[test]
    fn failures_are_remembered_for_a_growing_and_bounded_time() {
        let mut shelf = Shelf::default();
        let mut now = Tick(0);
        // The first may have been a hiccup.
        assert_eq!(shelf.advise(now), Advice::Fetch);
        let _ = shelf.fetched(now, now, failed(None));
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            assert_eq!(shelf.advise(now), Advice::Fetch, "{seconds}");
            let _ = shelf.fetched(now, now, failed(None));
            let last = Tick(now.0 + seconds * 1_000 - 1);
            assert!(matches!(shelf.advise(last), Advice::Fail(_)), "{seconds}");
            now = Tick(last.0 + 1);
        }
        assert_eq!(shelf.advise(now), Advice::Fetch);
        let _ = shelf.fetched(now, now, got("one", Some(1)));
        // Once it has worked, the next failure is a first one.
        let now = Tick(now.0 + 1_000);
        assert_eq!(shelf.advise(now), Advice::Fetch);
        let _ = shelf.fetched(now, now, failed(None));
        assert_eq!(shelf.advise(now), Advice::Fetch);
    }

    #[test]
    fn a_server_that_asks_for_time_gets_it_within_bounds() {
        for (asked, given) in [(1, 1), (30, 30), (3_600, 60)] {
            let mut shelf = Shelf::default();
            assert_eq!(shelf.advise(Tick(0)), Advice::Fetch);
            let _ = shelf.fetched(Tick(0), Tick(0), failed(Some(asked)));
            let last = Tick(given * 1_000 - 1);
            assert!(matches!(shelf.advise(last), Advice::Fail(_)), "{asked}");
            assert_eq!(shelf.advise(Tick(last.0 + 1)), Advice::Fetch, "{asked}");
        }
    }

    #[test]
    fn a_fault_of_ours_is_not_held_against_the_server() {
        let mut shelf = Shelf::default();
        assert_eq!(shelf.advise(Tick(0)), Advice::Fetch);
        let news = shelf.fetched(Tick(0), Tick(0), Ended::Ours("no room".to_owned()));
        assert_eq!(news, Err(Absent::Ours("no room".to_owned())));
        assert_eq!(shelf.advise(Tick(0)), Advice::Fetch);
        shelf.fell_over();
        assert_eq!(shelf.advise(Tick(0)), Advice::Fetch);
    }

    #[test]
    fn only_the_token_that_was_rejected_is_dropped() {
        let mut shelf = holding(Some(3_600));
        let Advice::Use(old) = shelf.advise(Tick(6_000)) else {
            panic!("there is one");
        };
        shelf.rejected(Tick(6_000), old.serial);
        assert_eq!(shelf.advise(Tick(6_000)), Advice::Fetch);
        let _ = shelf.fetched(Tick(6_000), Tick(6_000), got("two", Some(3_600)));
        // Another delivery went out with the old one too, and hears only now.
        shelf.rejected(Tick(6_000), old.serial);
        assert!(uses(&mut shelf, 6_001));
    }

    #[test]
    fn a_receiver_that_takes_no_token_does_not_wear_the_server_out() {
        let mut shelf = holding(Some(3_600));
        let mut fetches = 0;
        // A thousand seconds, and ten rejections in each of them.
        for now in (5_000..1_005_000).step_by(100).map(Tick) {
            match shelf.advise(now) {
                Advice::Use(lent) => shelf.rejected(now, lent.serial),
                Advice::Fetch => {
                    fetches += 1;
                    let _ = shelf.fetched(now, now, got("another", Some(3_600)));
                }
                other @ (Advice::Renew(_) | Advice::Wait | Advice::Fail(_)) => {
                    panic!("{other:?}")
                }
            }
        }
        // Three at once, then after 1, 2, 4, 8 and from there on every 10 seconds.
        assert!((100..=110).contains(&fetches), "{fetches}");
        // One that was taken for a while and is not any more is replaced at once.
        let mut now = Tick(2_000_000);
        while let Advice::Use(lent) = shelf.advise(now) {
            shelf.rejected(now, lent.serial);
        }
        let _ = shelf.fetched(now, now, got("good", Some(3_600)));
        now = now.after(MAX_PAUSE);
        let Advice::Use(lent) = shelf.advise(now) else {
            panic!("there is one");
        };
        shelf.rejected(now, lent.serial);
        assert_eq!(shelf.advise(now), Advice::Fetch);
    }

    proptest! {
        /// Whatever happens in whichever order: never two fetches, never a token past its end.
        #[test]
        fn it_holds_whatever_happens(steps in prop::collection::vec((0_u64..120_000, 0_u8..6), 1..200)) {
            let mut shelf = Shelf::default();
            let (mut now, mut begun, mut end) = (Tick(0), None, Tick(0));
            for (passed, step) in steps {
                now = Tick(now.0 + passed);
                match (step, begun) {
                    (0..=2, _) => match shelf.advise(now) {
                        Advice::Fetch => prop_assert!(begun.replace(now).is_none()),
                        Advice::Renew(_) => {
                            prop_assert!(begun.replace(now).is_none());
                            prop_assert!(now < end);
                        }
                        Advice::Use(_) => prop_assert!(now < end),
                        Advice::Wait => prop_assert!(begun.is_some()),
                        Advice::Fail(_) => {}
                    },
                    (3, Some(at)) => {
                        let _ = shelf.fetched(at, now, got("one", Some(90)));
                        (begun, end) = (None, at.after(Span::from_secs(90)));
                    }
                    (4, Some(at)) => {
                        let _ = shelf.fetched(at, now, failed(None));
                        begun = None;
                    }
                    _ => shelf.rejected(now, shelf.serial),
                }
            }
        }
    }
}
