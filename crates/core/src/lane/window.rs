//! The in-flight window: limits the number of concurrent attempts of one endpoint.
//!
//! [`InFlightWindow`] restarts at one after the destination was down, and grows by one for each full window of
//! successes. Single failures do not change it: each attempt that fails occupies its place for as long as one that
//! succeeds, so the limit already protects the receiver. It never exceeds the endpoint's own limit.

/// Maximum in-flight limit that an endpoint can have.
pub const MAX_IN_FLIGHT: u32 = 1_000;

/// Sizes are counted in thousandths, so that growth by fractions adds up.
const ONE: u32 = 1_000;

/// The current window and the number of attempts in flight.
#[derive(Clone, Debug)]
pub struct InFlightWindow {
    limit: u32,
    open_thousandths: u32,
    in_flight: u32,
}

impl InFlightWindow {
    /// Creates a fully open window.
    pub fn new(limit: u32) -> InFlightWindow {
        let limit = limit.clamp(1, MAX_IN_FLIGHT);
        InFlightWindow {
            limit,
            open_thousandths: limit * ONE,
            in_flight: 0,
        }
    }

    /// Changes the endpoint's limit. A fully open window stays fully open.
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

    /// Returns the number of attempts in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the current size of the window.
    pub fn size(&self) -> u32 {
        (self.open_thousandths / ONE).max(1)
    }

    /// Returns true if another attempt may start.
    pub fn has_room(&self) -> bool {
        self.in_flight < self.size()
    }

    /// Returns true if another attempt may start by the endpoint's own limit, ignoring the size of the window. This
    /// is sufficient for a probe.
    pub fn has_room_for_probe(&self) -> bool {
        self.in_flight < self.limit
    }

    /// Returns true if the window has the size of the limit.
    pub fn is_fully_open(&self) -> bool {
        self.open_thousandths == self.limit * ONE
    }

    /// Counts one more attempt in flight.
    pub fn enter(&mut self) {
        self.in_flight += 1;
        assert!(
            self.in_flight <= self.limit,
            "an attempt was started above the in-flight limit"
        );
    }

    /// Counts one attempt fewer in flight.
    pub fn leave(&mut self) {
        let left = self.in_flight.checked_sub(1);
        self.in_flight = left.expect("an attempt ended that is not in flight");
    }

    /// Enlarges the window a little: by one for each full window of successes.
    pub fn widen(&mut self) {
        let step = ONE.div_ceil(self.size());
        self.open_thousandths = (self.open_thousandths + step).min(self.limit * ONE);
    }

    /// Resets the window to one.
    pub fn restart(&mut self) {
        self.open_thousandths = ONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn starts_small_and_grows_by_one_per_window() {
        let mut window = InFlightWindow::new(10);
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

    proptest! {
        #[test]
        fn never_more_than_the_limit(limit in 1u32..50, steps in prop::collection::vec(0u8..4, 0..400)) {
            let mut window = InFlightWindow::new(limit);
            for step in steps {
                match step {
                    0 if window.has_room() => window.enter(),
                    1 if window.in_flight() > 0 => window.leave(),
                    2 => window.widen(),
                    0 | 1 | 3.. => window.restart(),
                }
                prop_assert!(window.size() >= 1 && window.size() <= limit);
                prop_assert!(window.in_flight() <= limit);
            }
        }
    }
}
