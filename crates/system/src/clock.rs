//! The clock. The only module that reads the system's clocks.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use posthaste_core::time::{Now, Tick, Timestamp};

/// Provides the time. Clones share the same source.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Reading + Send + Sync>);

/// A reading of both clocks, the wall clock in microseconds.
#[derive(Clone, Copy)]
struct Reading {
    wall_micros: u64,
    tick: Tick,
}

impl Clock {
    /// Returns the clock of this machine. Ticks count from this call.
    pub fn system() -> Clock {
        let started_at = Instant::now();
        Clock(Arc::new(move || {
            let wall = SystemTime::now().duration_since(UNIX_EPOCH);
            let wall_micros = wall.unwrap_or_default().as_micros();
            Reading {
                wall_micros: u64::try_from(wall_micros).unwrap_or(u64::MAX),
                tick: Tick(whole_millis(started_at.elapsed())),
            }
        }))
    }

    /// Returns a clock that calls `say` for the time, for tests.
    pub fn from_fn(say: impl Fn() -> Now + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(move || {
            let Now { wall, tick } = say();
            Reading {
                wall_micros: wall.0.saturating_mul(1_000),
                tick,
            }
        }))
    }

    /// Returns the wall-clock time and the monotonic time.
    pub fn now(&self) -> Now {
        let Reading { wall_micros, tick } = (self.0)();
        Now {
            wall: Timestamp(wall_micros / 1_000),
            tick,
        }
    }

    /// Returns the time since `then`, in microseconds. `then` is truncated to milliseconds, so the result is up to 1 ms
    /// too large, and never too small.
    pub fn since(&self, then: Timestamp) -> Duration {
        let then_micros = then.0.saturating_mul(1_000);
        Duration::from_micros((self.0)().wall_micros.saturating_sub(then_micros))
    }

    /// Returns the wall-clock time.
    pub fn wall(&self) -> Timestamp {
        self.now().wall
    }
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
