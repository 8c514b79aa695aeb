//! The clock of a process: the time that is stored, shown or decided about.
//!
//! [`Clock`] provides the wall-clock time and the monotonic time. A node's clock is corrected: [`Clock::corrected`] derives
//! the wall-clock time from the monotonic clock, and [`ClockCorrection`] sets it by the reference clock of the store. The
//! wall clock of the machine is only compared with it ([`Clock::offset_ms`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use posthaste_core::time::{CorrectedTime, Now, Span, Tick, Timestamp};

/// Provides the time. Clones share the same source.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    /// The clocks of this machine. Ticks count from this instant.
    System(Instant),
    Corrected(Arc<ClockCorrection>),
    Function(Arc<dyn Fn() -> Now + Send + Sync>),
}

/// A reading of both clocks, the wall clock in microseconds.
#[derive(Clone, Copy)]
struct Reading {
    wall_micros: u64,
    tick: Tick,
}

/// The correction of a clock. Readers take no lock.
#[derive(Debug)]
pub struct ClockCorrection {
    started_at: Instant,
    /// The corrected time at the first tick, in milliseconds.
    at_start_ms: AtomicU64,
    lead_ms: AtomicU64,
    is_synchronised: AtomicBool,
}

impl ClockCorrection {
    /// Returns the monotonic time.
    pub fn tick(&self) -> Tick {
        Tick(whole_millis(self.started_at.elapsed()))
    }

    /// Sets the corrected time.
    pub fn set(&self, time: CorrectedTime) {
        self.at_start_ms.store(time.at_start.0, Ordering::Relaxed);
        self.lead_ms.store(time.lead.as_millis(), Ordering::Relaxed);
        self.is_synchronised.store(true, Ordering::Release);
    }

    fn read(&self) -> Reading {
        let elapsed = self.started_at.elapsed();
        let at_start_ms = self.at_start_ms.load(Ordering::Relaxed);
        let elapsed_micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        Reading {
            wall_micros: at_start_ms
                .saturating_mul(1_000)
                .saturating_add(elapsed_micros),
            tick: Tick(elapsed_micros / 1_000),
        }
    }
}

impl Clock {
    /// Returns the clock of this machine. Ticks count from this call.
    pub fn system() -> Clock {
        Clock(Source::System(Instant::now()))
    }

    /// Returns a clock that starts with the time of this machine, and what corrects it. The wall clock of the machine may be
    /// changed later without any effect on it.
    pub fn corrected() -> (Clock, Arc<ClockCorrection>) {
        let correction = Arc::new(ClockCorrection {
            started_at: Instant::now(),
            at_start_ms: AtomicU64::new(system_micros() / 1_000),
            lead_ms: AtomicU64::new(0),
            is_synchronised: AtomicBool::new(false),
        });
        (Clock(Source::Corrected(correction.clone())), correction)
    }

    /// Returns a clock that calls `say` for the time, for tests.
    pub fn from_fn(say: impl Fn() -> Now + Send + Sync + 'static) -> Clock {
        Clock(Source::Function(Arc::new(say)))
    }

    /// Returns the wall-clock time and the monotonic time.
    pub fn now(&self) -> Now {
        let Reading { wall_micros, tick } = self.read();
        Now {
            wall: Timestamp(wall_micros / 1_000),
            tick,
        }
    }

    /// Returns the time since `then`, in microseconds. `then` is truncated to milliseconds, so the result is up to 1 ms
    /// too large, and never too small.
    pub fn since(&self, then: Timestamp) -> Duration {
        let then_micros = then.0.saturating_mul(1_000);
        Duration::from_micros(self.read().wall_micros.saturating_sub(then_micros))
    }

    /// Returns the wall-clock time.
    pub fn wall(&self) -> Timestamp {
        self.now().wall
    }

    /// Returns the time for signatures, which others compare with their own clocks: the wall-clock time without the lead
    /// that it has after the reference clock was set back.
    pub fn signing_time(&self) -> Timestamp {
        Timestamp(self.wall().0.saturating_sub(self.lead().as_millis()))
    }

    /// Returns the duration by which the wall-clock time is ahead of the reference clock, because that was set back.
    pub fn lead(&self) -> Span {
        match &self.0 {
            Source::System(_) | Source::Function(_) => Span::ZERO,
            Source::Corrected(it) => Span::from_millis(it.lead_ms.load(Ordering::Relaxed)),
        }
    }

    /// Returns the milliseconds by which the machine's own wall clock is ahead of the reference clock; negative if it is
    /// behind. `None` if there is no reference clock, or before its first reading.
    pub fn offset_ms(&self) -> Option<i64> {
        match &self.0 {
            Source::System(_) | Source::Function(_) => None,
            Source::Corrected(it) if !it.is_synchronised.load(Ordering::Acquire) => None,
            Source::Corrected(_) => {
                let own_ms = i64::try_from(system_micros() / 1_000).unwrap_or(i64::MAX);
                let reference_ms = i64::try_from(self.signing_time().0).unwrap_or(i64::MAX);
                Some(own_ms.saturating_sub(reference_ms))
            }
        }
    }

    fn read(&self) -> Reading {
        match &self.0 {
            Source::System(started_at) => Reading {
                wall_micros: system_micros(),
                tick: Tick(whole_millis(started_at.elapsed())),
            },
            Source::Corrected(correction) => correction.read(),
            Source::Function(say) => {
                let Now { wall, tick } = say();
                Reading {
                    wall_micros: wall.0.saturating_mul(1_000),
                    tick,
                }
            }
        }
    }
}

fn system_micros() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(wall.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corrected_clock_follows_its_reference_and_reports_the_offset() {
        let (clock, correction) = Clock::corrected();
        assert_eq!(clock.offset_ms(), None);
        let own = Clock::system().wall();
        assert!(clock.wall().0.abs_diff(own.0) < 10_000);
        let hour = Span::from_hours(1);
        let lead = Span::from_mins(5);
        let reference = own.after(hour);
        correction.set(CorrectedTime {
            at_start: Timestamp(reference.after(lead).0 - correction.tick().0),
            lead,
        });
        let now = clock.now();
        assert!(now.wall.since(reference.after(lead)) < Span::from_secs(10));
        assert!(clock.signing_time().since(reference) < Span::from_secs(10));
        let offset_ms = clock.offset_ms().expect("it is synchronised");
        assert!((offset_ms + 3_600_000).abs() < 10_000, "{offset_ms}");
        let later = clock.now();
        assert_eq!(later.wall.since(now.wall), later.tick.since(now.tick));
    }
}
