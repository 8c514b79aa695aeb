//! Corrects a clock by a reference clock, so that all nodes agree on the time.
//!
//! The reference is the clock of the database, or that of the machine on a single node. [`ClockSync`] takes a
//! [`ClockReading`] of it from time to time and derives the wall-clock time from the monotonic clock, so the wall clock of
//! a node does not matter. The reading has bounds: the reference was read between the request and its answer. The time is
//! changed only if it is out of these bounds, so a slow link changes nothing.
//!
//! A reference that jumps forward is followed at once. A reference that is set back would delay everything that waits. So
//! the time goes on, ahead of the reference by a [lead](CorrectedTime::lead), which then shrinks by one twentieth of the
//! time that passes. The lead is stored ([`StoredClock`]), so nodes that start later agree. Signatures use the time without
//! the lead.
//!
//! Leases do not use this time: they count ticks.

use super::{Span, Tick, Timestamp};

/// Maximum lead. A reference that is set back by more is followed, because it was wrong before.
pub const MAX_CLOCK_LEAD: Span = Span::from_days(1);
/// Interval at which the time is stored. If the reference is set back while no node runs, what waits is delayed by at most
/// this, and by the time for which no node ran.
pub const CLOCK_SAVE_INTERVAL: Span = Span::from_mins(1);
/// Maximum difference that is drift, which is followed in both directions and not reported.
const MAX_DRIFT: Span = Span::from_millis(250);
/// The lead shrinks by one millisecond in this number of milliseconds.
const SHRINK_INTERVAL: u64 = 20;
/// Divisor of the time since the last reading: as much more is drift, because the lead shrinks and clocks differ in speed.
const DRIFT_PART: u64 = 10;

/// A reading of the reference clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Tick before the request.
    pub sent: Tick,
    /// Tick after the answer.
    pub received: Tick,
    /// The answer. The reference clock was read between both ticks.
    pub reference: Timestamp,
}

/// The stored part of the clock, which all nodes share. Zero until it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredClock {
    /// Time of the reference clock at which the lead ends.
    pub lead_until: Timestamp,
    /// A recent corrected time. The corrected time never goes back behind it.
    pub saved_at: Timestamp,
}

impl StoredClock {
    /// Returns the lead when the reference clock shows `reference`.
    fn lead_at(&self, reference: Timestamp) -> Span {
        let lead =
            Span::from_millis(self.lead_until.since(reference).as_millis() / SHRINK_INTERVAL);
        // A longer lead belongs to a reference that was wrong by years.
        match lead <= MAX_CLOCK_LEAD {
            true => lead,
            false => Span::ZERO,
        }
    }
}

/// The corrected time, as a function of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorrectedTime {
    /// The corrected time at the first tick.
    pub at_start: Timestamp,
    /// The duration by which the corrected time is ahead of the reference.
    pub lead: Span,
}

impl CorrectedTime {
    /// Returns the corrected time at a tick.
    pub fn at(&self, tick: Tick) -> Timestamp {
        Timestamp(self.at_start.0.saturating_add(tick.0))
    }
}

/// Returns the lead that is left of `lead` after a time.
fn lead_after(lead: Span, passed: Span) -> Span {
    let shrunk = passed.as_millis() / SHRINK_INTERVAL;
    Span::from_millis(lead.as_millis().saturating_sub(shrunk))
}

/// Returns the corrected time at which the reference clock will show `at`, if the corrected time is `now` with this lead.
pub fn corrected_time_of(at: Timestamp, now: Timestamp, lead: Span) -> Timestamp {
    let reference = Timestamp(now.0.saturating_sub(lead.as_millis()));
    at.after(lead_after(lead, at.since(reference)))
}

/// A jump of the reference clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockJump {
    /// It jumped forward, and the corrected time too.
    Forward(Span),
    /// It was set back. The corrected time went on, with a lead.
    Held(Span),
    /// It was set back by more than [`MAX_CLOCK_LEAD`], and the corrected time too.
    Back(Span),
}

/// The result of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockUpdate {
    /// The corrected time from now on.
    pub time: CorrectedTime,
    /// To be stored, if what is stored has not changed since the reading.
    pub store: Option<StoredClock>,
    /// A jump of the reference clock since the last reading.
    pub jump: Option<ClockJump>,
}

/// Derives the corrected time from readings of the reference clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockSync {
    last: Option<LastReading>,
}

#[derive(Clone, Copy, Debug)]
struct LastReading {
    at_start: Timestamp,
    received: Tick,
}

impl ClockSync {
    /// Takes a reading, together with what was stored at that time.
    pub fn handle(&mut self, reading: ClockReading, stored: StoredClock) -> ClockUpdate {
        let ClockReading {
            sent,
            received,
            reference,
        } = reading;
        let lead = stored.lead_at(reference);
        let bounds = Bounds {
            earliest: Timestamp(reference.after(lead).0.saturating_sub(received.0)),
            // The reference is truncated to milliseconds.
            latest: Timestamp((reference.after(lead).0 + 1).saturating_sub(sent.0)),
        };
        let (expected, drift) = match self.last {
            Some(last) => {
                let part = received.since(last.received).as_millis() / DRIFT_PART;
                (last.at_start, MAX_DRIFT.plus(Span::from_millis(part)))
            }
            None => {
                let saved = Timestamp(stored.saved_at.0.saturating_sub(received.0));
                (bounds.middle().max(saved), MAX_DRIFT)
            }
        };
        let (at_start, lead, jump) = if expected < bounds.earliest {
            let gap = bounds.earliest.since(expected);
            let jump = (gap > drift).then_some(ClockJump::Forward(gap));
            (bounds.earliest, lead, jump)
        } else {
            let least_gap = expected.since(bounds.latest);
            let gap = expected.since(bounds.middle());
            if least_gap == Span::ZERO {
                (expected, lead, None)
            } else if least_gap <= drift {
                (bounds.latest, lead, None)
            } else if lead.plus(gap) <= MAX_CLOCK_LEAD {
                (expected, lead.plus(gap), Some(ClockJump::Held(gap)))
            } else {
                (bounds.middle(), Span::ZERO, Some(ClockJump::Back(gap)))
            }
        };
        self.last = Some(LastReading { at_start, received });
        let time = CorrectedTime { at_start, lead };
        ClockUpdate {
            time,
            store: to_store(time.at(received), reference, jump, lead, stored),
            jump,
        }
    }
}

/// Bounds of the corrected time at the first tick, by one reading.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    earliest: Timestamp,
    latest: Timestamp,
}

impl Bounds {
    fn middle(self) -> Timestamp {
        let half = self.latest.since(self.earliest).as_millis() / 2;
        self.earliest.after(Span::from_millis(half))
    }
}

/// Returns what is to be stored: a new lead at once, the time at intervals.
fn to_store(
    now: Timestamp,
    reference: Timestamp,
    jump: Option<ClockJump>,
    lead: Span,
    stored: StoredClock,
) -> Option<StoredClock> {
    let lead_until = match jump {
        Some(ClockJump::Held(_)) => reference.after(lead.times(SHRINK_INTERVAL)),
        Some(ClockJump::Back(_)) => Timestamp(0),
        Some(ClockJump::Forward(_)) | None => {
            let is_recent = now.since(stored.saved_at) < CLOCK_SAVE_INTERVAL
                && stored.saved_at.since(now) < CLOCK_SAVE_INTERVAL;
            if is_recent {
                return None;
            }
            stored.lead_until
        }
    };
    Some(StoredClock {
        lead_until,
        saved_at: now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOON: u64 = 1_800_000_000_000;
    const HOUR: u64 = 3_600_000;

    /// A node, the clock of the database and what it stores. Time passes only by `read`.
    struct World {
        sync: ClockSync,
        stored: StoredClock,
        tick: u64,
        reference: u64,
    }

    impl World {
        fn new() -> World {
            World {
                sync: ClockSync::default(),
                stored: StoredClock::default(),
                tick: 0,
                reference: NOON,
            }
        }

        /// Lets time pass and reads the clock. The answer takes `there` and `back` milliseconds.
        fn read_slowly(&mut self, pass: u64, there: u64, back: u64) -> ClockUpdate {
            self.tick += pass + there;
            self.reference += pass + there;
            let reference = Timestamp(self.reference);
            let sent = Tick(self.tick - there);
            self.tick += back;
            self.reference += back;
            let received = Tick(self.tick);
            let reading = ClockReading {
                sent,
                received,
                reference,
            };
            let update = self.sync.handle(reading, self.stored);
            self.stored = update.store.unwrap_or(self.stored);
            update
        }

        fn read(&mut self, pass: u64) -> ClockUpdate {
            self.read_slowly(pass, 0, 0)
        }

        fn now(&self, update: &ClockUpdate) -> u64 {
            update.time.at(Tick(self.tick)).0
        }
    }

    #[test]
    fn slow_answers_do_not_move_the_time() {
        let mut world = World::new();
        let first = world.read_slowly(0, 1, 1);
        for (there, back) in [(400, 0), (0, 900), (1_500, 1_500), (3, 2)] {
            let update = world.read_slowly(1_000, there, back);
            assert_eq!(update.time, first.time, "{there} ms there, {back} ms back");
            assert_eq!(update.jump, None);
        }
    }

    #[test]
    fn a_jump_forward_is_followed_at_once() {
        let mut world = World::new();
        world.read(0);
        world.reference += HOUR;
        let update = world.read(1_000);
        assert_eq!(world.now(&update), world.reference);
        assert_eq!(update.time.lead, Span::ZERO);
        let jump = ClockJump::Forward(Span::from_hours(1));
        assert_eq!(update.jump, Some(jump));
    }

    #[test]
    fn a_clock_that_is_set_back_delays_nothing_and_is_met_again() {
        let mut world = World::new();
        world.read(0);
        world.reference -= HOUR;
        let update = world.read(1_000);
        assert_eq!(world.now(&update), NOON + 1_000);
        assert!(matches!(update.jump, Some(ClockJump::Held(_))));
        let mut last = world.now(&update);
        let mut passed: u64 = 0;
        while world.read(0).time.lead > Span::ZERO {
            let update = world.read(1_000);
            assert_eq!(update.jump, None, "after {passed} ms");
            let now = world.now(&update);
            // The time runs at 19 twentieths of its usual speed.
            assert!((940..=1_001).contains(&(now - last)), "{} ms", now - last);
            (last, passed) = (now, passed + 1_000);
        }
        assert!(passed.abs_diff(20 * HOUR) < HOUR, "{passed}");
        let update = world.read(1_000);
        assert!(world.now(&update).abs_diff(world.reference) <= 1);
    }

    #[test]
    fn a_node_that_starts_later_agrees_with_the_others() {
        let mut world = World::new();
        world.read(0);
        world.reference -= HOUR;
        let old = world.read(1_000);
        let mut later = World {
            sync: ClockSync::default(),
            tick: 0,
            ..world
        };
        let new = later.read(0);
        assert!(later.now(&new).abs_diff(world.now(&old)) <= 1);
        assert!(new.time.lead.as_millis().abs_diff(HOUR) <= 1);
        assert_eq!(new.jump, None);
    }

    #[test]
    fn a_clock_that_was_set_back_while_nothing_ran_goes_on_where_it_was() {
        let mut world = World::new();
        world.read(0);
        let before = world.read(CLOCK_SAVE_INTERVAL.as_millis());
        assert_eq!(world.stored.saved_at.0, world.now(&before));
        let mut restarted = World {
            sync: ClockSync::default(),
            tick: 0,
            reference: world.reference - HOUR,
            stored: world.stored,
        };
        let update = restarted.read(0);
        assert_eq!(restarted.now(&update), world.stored.saved_at.0);
        assert!(matches!(update.jump, Some(ClockJump::Held(_))));
    }

    #[test]
    fn a_clock_that_was_years_ahead_is_followed_back() {
        let mut world = World::new();
        world.reference += 9_000 * HOUR;
        world.read(0);
        world.reference -= 9_000 * HOUR;
        let update = world.read(1_000);
        assert_eq!(world.now(&update), world.reference);
        assert!(matches!(update.jump, Some(ClockJump::Back(_))));
        assert_eq!(world.stored.lead_until, Timestamp(0));
        let next = world.read(1_000);
        assert_eq!((next.jump, world.now(&next)), (None, world.reference));
        // Neither does a node that starts later believe the old time.
        let mut later = World {
            sync: ClockSync::default(),
            tick: 0,
            ..world
        };
        let update = later.read(0);
        assert_eq!(later.now(&update), later.reference);
    }

    #[test]
    fn a_time_of_the_reference_is_met_while_the_lead_shrinks() {
        let mut world = World::new();
        world.read(0);
        world.reference -= HOUR;
        let update = world.read(1_000);
        for wait in [0, 60_000, 10 * HOUR, 30 * HOUR] {
            let at = world.reference + wait;
            let now = Timestamp(world.now(&update));
            let due = corrected_time_of(Timestamp(at), now, update.time.lead);
            let reference_due = StoredClock {
                lead_until: Timestamp(world.reference).after(update.time.lead.times(20)),
                ..world.stored
            };
            let then = Timestamp(at).after(reference_due.lead_at(Timestamp(at)));
            assert!(due.0.abs_diff(then.0) <= 2, "{wait} ms: {due} {then}");
        }
    }

    #[test]
    fn the_time_is_saved_at_intervals() {
        let mut world = World::new();
        let saves = (0..180).filter(|_| world.read(1_000).store.is_some());
        assert_eq!(saves.count(), 3);
    }

    proptest! {
        /// Whatever the database's clock does by up to an hour: no reading makes the time go back by more than drift.
        #[test]
        fn the_time_hardly_ever_goes_back(
            steps in prop::collection::vec((1u64..5_000, 0u64..500, 0u64..500, -600_000i64..600_000), 1..60)
        ) {
            let mut world = World::new();
            let update = world.read(0);
            let mut last = (world.tick, world.now(&update));
            for (pass, there, back, jump) in steps {
                world.reference = world.reference.saturating_add_signed(jump);
                let update = world.read_slowly(pass, there, back);
                let now = world.now(&update);
                let passed = world.tick - last.0;
                let slowest = last.1 + passed - passed / DRIFT_PART - MAX_DRIFT.as_millis();
                prop_assert!(now >= slowest, "{} ms too slow", slowest - now);
                prop_assert!(update.time.lead <= MAX_CLOCK_LEAD);
                last = (world.tick, now);
            }
        }
    }
}
