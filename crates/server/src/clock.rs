//! The one place that reads the clocks.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use posthaste_core::time::{Now, Tick, Timestamp};

/// Tells the time. Clones tell the same.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Now + Send + Sync>);

impl Clock {
    /// The clocks of this machine. Ticks count from this call.
    pub fn system() -> Clock {
        let started_at = Instant::now();
        Clock(Arc::new(move || {
            let wall = SystemTime::now().duration_since(UNIX_EPOCH);
            Now {
                wall: Timestamp(whole_millis(wall.unwrap_or_default())),
                tick: Tick(whole_millis(started_at.elapsed())),
            }
        }))
    }

    /// A clock that says what it is told to say.
    pub fn told(say: impl Fn() -> Now + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(say))
    }

    /// What the clocks say.
    pub fn now(&self) -> Now {
        (self.0)()
    }

    /// What the wall clock says.
    pub fn wall(&self) -> Timestamp {
        self.now().wall
    }
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
