//! At most so many at once.
//!
//! The window opens by one for each full window of successes, halves on each failure of the
//! destination, and starts again from one after the destination was away. It never opens beyond the
//! endpoint's own limit.

/// The most requests one endpoint may have in flight.
pub const MAX_IN_FLIGHT: u32 = 1_000;

/// Sizes are counted in thousandths, so that growth by a fraction of a request adds up.
const ONE: u32 = 1_000;

/// How many requests may be in flight, and how many are.
#[derive(Clone, Debug)]
pub struct Window {
    limit: u32,
    open_thousandths: u32,
    in_flight: u32,
}

impl Window {
    /// A window fully open.
    pub fn new(limit: u32) -> Window {
        let limit = limit.clamp(1, MAX_IN_FLIGHT);
        Window {
            limit,
            open_thousandths: limit * ONE,
            in_flight: 0,
        }
    }

    /// Changes the endpoint's limit. A window that stood fully open stays so.
    pub fn set_limit(&mut self, limit: u32) {
        let was_fully_open = self.is_fully_open();
        self.limit = limit.clamp(1, MAX_IN_FLIGHT);
        let most = self.limit * ONE;
        self.open_thousandths = if was_fully_open {
            most
        } else {
            self.open_thousandths.min(most)
        };
    }

    /// How many are in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// How many may be, at present.
    pub fn size(&self) -> u32 {
        (self.open_thousandths / ONE).max(1)
    }

    /// True while another may go.
    pub fn has_room(&self) -> bool {
        self.in_flight < self.size()
    }

    /// True while another may go by the endpoint's own limit, however far the window is open. That
    /// is enough for a probe.
    pub fn has_room_for_probe(&self) -> bool {
        self.in_flight < self.limit
    }

    /// True when nothing narrows the window.
    pub fn is_fully_open(&self) -> bool {
        self.open_thousandths == self.limit * ONE
    }

    /// One more is in flight.
    pub fn enter(&mut self) {
        self.in_flight += 1;
        assert!(
            self.in_flight <= self.limit,
            "more in flight than the endpoint allows"
        );
    }

    /// One is back.
    pub fn leave(&mut self) {
        let left = self.in_flight.checked_sub(1);
        self.in_flight = left.expect("one came back that never left");
    }

    /// Opens a little: by one for each full window of successes.
    pub fn widen(&mut self) {
        let step = ONE.div_ceil(self.size());
        self.open_thousandths = (self.open_thousandths + step).min(self.limit * ONE);
    }

    /// Closes by half.
    pub fn narrow(&mut self) {
        self.open_thousandths = (self.open_thousandths / 2).max(ONE);
    }

    /// Starts again from one.
    pub fn restart(&mut self) {
        self.open_thousandths = ONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn starts_slowly_and_opens_by_one_per_window() {
        let mut window = Window::new(10);
        assert_eq!(window.size(), 10);
        window.restart();
        assert_eq!(window.size(), 1);
        window.widen();
        assert_eq!(window.size(), 2);
        window.widen();
        assert_eq!(window.size(), 2);
        window.widen();
        assert_eq!(window.size(), 3);
        for _ in 0..60 {
            window.widen();
        }
        assert_eq!(window.size(), 10);
        assert!(window.is_fully_open());
    }

    #[test]
    fn halves_on_failure_and_never_shuts() {
        let mut window = Window::new(10);
        let sizes: Vec<u32> = (0..5)
            .map(|_| {
                window.narrow();
                window.size()
            })
            .collect();
        assert_eq!(sizes, [5, 2, 1, 1, 1]);
    }

    proptest! {
        #[test]
        fn never_more_than_the_limit(limit in 1u32..50, steps in prop::collection::vec(0u8..5, 0..400)) {
            let mut window = Window::new(limit);
            for step in steps {
                match step {
                    0 if window.has_room() => window.enter(),
                    1 if window.in_flight() > 0 => window.leave(),
                    2 => window.widen(),
                    3 => window.narrow(),
                    0 | 1 | 4.. => window.restart(),
                }
                prop_assert!(window.size() >= 1 && window.size() <= limit);
                prop_assert!(window.in_flight() <= limit);
            }
        }
    }
}
