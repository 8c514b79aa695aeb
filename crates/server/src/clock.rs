//! The one place that reads the clocks.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use posthaste_core::time::{Now, Tick, Timestamp};

/// Tells the time. Clones tell the same.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Reading + Send + Sync>);

/// What the clocks show, the wall clock by the microsecond.
#[derive(Clone, Copy)]
struct Reading {
    wall_micros: u64,
    tick: Tick,
}

impl Clock {
    /// The clocks of this machine. Ticks count from this call.
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

    /// A clock that says what it is told to say.
    pub fn told(say: impl Fn() -> Now + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(move || {
            let Now { wall, tick } = say();
            Reading {
                wall_micros: wall.0.saturating_mul(1_000),
                tick,
            }
        }))
    }

    /// What the clocks say.
    pub fn now(&self) -> Now {
        let Reading { wall_micros, tick } = (self.0)();
        Now {
            wall: Timestamp(wall_micros / 1_000),
            tick,
        }
    }

    /// How long ago `then` was, to the microsecond. A time of whole milliseconds counts from its
    /// beginning, so this says up to a millisecond too much, and never too little.
    pub fn since(&self, then: Timestamp) -> Duration {
        let then_micros = then.0.saturating_mul(1_000);
        Duration::from_micros((self.0)().wall_micros.saturating_sub(then_micros))
    }

    /// What the wall clock says.
    pub fn wall(&self) -> Timestamp {
        self.now().wall
    }
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
