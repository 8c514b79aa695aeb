//! The four backoff shapes: how the delay grows from retry to retry.
//!
//! [`Backoff::nominal`] returns the delay before a retry, to which [jitter](super::Jitter) is then applied. A delay
//! never shrinks from retry to retry, except in an explicit schedule, never exceeds the cap of the shape, and never
//! overflows.

use serde::Serialize;

use crate::time::Span;

/// Minimum delay that a policy may set.
pub const MIN_DELAY: Span = Span::from_millis(1);
/// Maximum delay that a policy may set.
pub const MAX_DELAY: Span = Span::from_days(30);
/// Default cap of a shape that sets none.
pub const DEFAULT_CAP: Span = Span::from_hours(24);

/// The growth of the nominal delay, before jitter, from retry to retry.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Backoff {
    /// The same delay for every retry.
    Fixed {
        /// The delay.
        interval: Span,
    },
    /// One step more for every retry, up to the cap.
    Linear {
        /// The increase per retry.
        step: Span,
        /// Maximum delay.
        cap: Span,
    },
    /// Multiplied by `factor` for every retry, up to the cap.
    Exponential {
        /// The first delay.
        base: Span,
        /// The multiplier per retry; at least one.
        factor: f64,
        /// Maximum delay.
        cap: Span,
    },
    /// Exactly these delays; the last one repeats.
    Schedule {
        /// The delays; never empty.
        delays: Vec<Span>,
    },
}

impl Backoff {
    /// Returns the nominal delay before retry number `retry`; the first is 1.
    pub fn nominal(&self, retry: u32) -> Span {
        assert!(retry >= 1, "retries are numbered from 1");
        match self {
            Backoff::Fixed { interval } => *interval,
            Backoff::Linear { step, cap } => step.times(u64::from(retry)).min(*cap),
            Backoff::Exponential { base, factor, cap } => {
                let exponent = i32::try_from(retry - 1).unwrap_or(i32::MAX);
                let ms = base.as_millis() as f64 * factor.powi(exponent);
                // Beyond the cap the power may be infinite; comparing first makes that harmless.
                if ms >= cap.as_millis() as f64 {
                    *cap
                } else {
                    Span::from_millis(ms.round() as u64)
                }
            }
            Backoff::Schedule { delays } => {
                let last = delays
                    .len()
                    .checked_sub(1)
                    .expect("a schedule has at least one delay");
                delays[last.min(retry as usize - 1)]
            }
        }
    }

    /// Returns the maximum delay of this shape: its cap if it has one, otherwise the longer of one day and its
    /// longest delay.
    pub fn cap(&self) -> Span {
        match self {
            Backoff::Fixed { interval } => DEFAULT_CAP.max(*interval),
            Backoff::Linear { cap, .. } | Backoff::Exponential { cap, .. } => *cap,
            Backoff::Schedule { delays } => delays
                .iter()
                .fold(DEFAULT_CAP, |longest, delay| longest.max(*delay)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(backoff: &Backoff, retries: u32) -> Vec<u64> {
        (1..=retries)
            .map(|retry| backoff.nominal(retry).as_millis() / 1_000)
            .collect()
    }

    #[test]
    fn each_shape_grows_as_documented() {
        let s = Span::from_secs;
        let fixed = Backoff::Fixed { interval: s(60) };
        assert_eq!(seconds(&fixed, 3), [60, 60, 60]);
        let linear = Backoff::Linear {
            step: s(30),
            cap: s(100),
        };
        assert_eq!(seconds(&linear, 5), [30, 60, 90, 100, 100]);
        let exponential = Backoff::Exponential {
            base: s(1),
            factor: 6.0,
            cap: Span::from_hours(24),
        };
        assert_eq!(
            seconds(&exponential, 9),
            [1, 6, 36, 216, 1_296, 7_776, 46_656, 86_400, 86_400]
        );
        let schedule = Backoff::Schedule {
            delays: vec![s(10), s(30), s(120)],
        };
        assert_eq!(seconds(&schedule, 5), [10, 30, 120, 120, 120]);
    }

    fn shapes() -> impl Strategy<Value = Backoff> {
        let span = || (1..=MAX_DELAY.as_millis()).prop_map(Span::from_millis);
        prop_oneof![
            span().prop_map(|interval| Backoff::Fixed { interval }),
            (span(), span()).prop_map(|(step, cap)| Backoff::Linear { step, cap }),
            (span(), 1.0..1e300, span()).prop_map(|(base, factor, cap)| Backoff::Exponential {
                base,
                factor,
                cap
            }),
        ]
    }

    proptest! {
        #[test]
        fn delays_never_overflow_shrink_or_exceed_the_cap(
            shape in shapes(),
            retry in 1..u32::MAX,
        ) {
            let here = shape.nominal(retry);
            let next = shape.nominal(retry + 1);
            prop_assert!(here <= next, "the delay shrinks from {here} to {next}");
            prop_assert!(next <= shape.cap());
            prop_assert!(shape.nominal(u32::MAX) <= shape.cap());
        }
    }
}
