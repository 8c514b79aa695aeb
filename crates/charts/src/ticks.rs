//! Round values for the labels of an axis.
//!
//! Times are multiples of round steps ([`time_ticks_ms`]), or round times on a logarithmic scale ([`log_ticks_ms`]).
//! Counts are multiples of 1, 2 or 5 times a power of ten ([`count_ticks`]). The number of ticks is bounded.

use super::scale::LogScale;

/// Round time steps, in seconds.
const STEPS_S: [u64; 24] = [
    1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_200, 1_800, 3_600, 7_200, 10_800, 21_600,
    43_200, 86_400, 172_800, 432_000, 864_000, 1_728_000,
];

/// Round times for the labels of a logarithmic scale, in milliseconds.
const ROUND_TIMES_MS: [u64; 14] = [
    1,
    10,
    100,
    1_000,
    10_000,
    60_000,
    600_000,
    3_600_000,
    21_600_000,
    86_400_000,
    259_200_000,
    864_000_000,
    2_592_000_000,
    7_776_000_000,
];

/// Returns the shortest round step that covers `end_ms` in at most `max_steps` steps.
///
/// # Panics
/// If `max_steps` is zero.
pub fn time_step_ms(end_ms: u64, max_steps: usize) -> u64 {
    assert!(max_steps > 0, "an axis has at least one step");
    let min_step_s = end_ms.div_ceil(1_000).div_ceil(max_steps as u64);
    let step_s = STEPS_S.into_iter().find(|step_s| *step_s >= min_step_s);
    step_s.unwrap_or(min_step_s) * 1_000
}

/// Returns round times from zero to `end_ms`, in at most `max_steps` steps.
pub fn time_ticks_ms(end_ms: u64, max_steps: usize) -> Vec<u64> {
    let step_ms = time_step_ms(end_ms, max_steps);
    (0..=end_ms / step_ms).map(|step| step * step_ms).collect()
}

/// Returns zero, and the round times that are at least `gap` apart on a logarithmic scale.
pub fn log_ticks_ms(scale: &LogScale, gap: f64) -> Vec<u64> {
    let mut ticks = vec![0];
    let mut last = 0.0;
    for ms in ROUND_TIMES_MS {
        let position = scale.position(ms);
        if ms <= scale.max_ms() && ms * 2 >= scale.linear_until_ms() && position - last >= gap {
            ticks.push(ms);
            last = position;
        }
    }
    ticks
}

/// Returns round counts from zero to `end`, in at most `max_steps` steps.
///
/// # Panics
/// If `max_steps` is zero.
pub fn count_ticks(end: u64, max_steps: u64) -> Vec<u64> {
    let step = count_step(end.div_ceil(max_steps));
    (0..=end / step).map(|number| number * step).collect()
}

/// Returns the smallest number of the form 1, 2 or 5 times a power of ten that is at least `min`.
pub fn count_step(min: u64) -> u64 {
    let mut power: u64 = 1;
    loop {
        for digit in [1, 2, 5] {
            if digit * power >= min {
                return digit * power;
            }
        }
        power = power.saturating_mul(10);
    }
}

/// Returns the end of an axis that contains `highest`: rounded up by at most about a tenth.
pub fn count_end(highest: u64) -> u64 {
    let step = count_step(highest.max(1).div_ceil(10));
    highest.max(1).div_ceil(step) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_steps_are_round_and_within_the_maximum() {
        assert_eq!(time_step_ms(2_400_000, 144), 20_000);
        assert_eq!(time_step_ms(2_400_000, 8), 300_000);
        assert_eq!(time_step_ms(0, 10), 1_000);
        assert_eq!(time_step_ms(1, 1), 1_000);
        for end_ms in (1..20_000_000_000).step_by(77_777_777) {
            for max_steps in [1, 7, 144, 300] {
                let step_ms = time_step_ms(end_ms, max_steps);
                assert!(step_ms * max_steps as u64 >= end_ms, "{end_ms} {max_steps}");
            }
        }
    }

    #[test]
    fn time_ticks_start_at_zero_and_stay_on_the_axis() {
        assert_eq!(
            time_ticks_ms(2_400_000, 5),
            [0, 600_000, 1_200_000, 1_800_000, 2_400_000]
        );
        assert!(time_ticks_ms(2_399_999, 5).len() == 4);
    }

    #[test]
    fn log_ticks_keep_the_minimum_distance() {
        let scale = LogScale::new(5_000, 259_200_000, 100.0);
        let ticks = log_ticks_ms(&scale, 8.0);
        assert_eq!(ticks.first(), Some(&0));
        assert!(ticks.contains(&10_000) && ticks.contains(&86_400_000));
        for pair in ticks.windows(2) {
            assert!(scale.position(pair[1]) - scale.position(pair[0]) >= 8.0);
        }
        assert!(ticks.iter().all(|ms| *ms <= 259_200_000));
        let fewer = log_ticks_ms(&scale, 20.0);
        assert!(fewer.len() < ticks.len() && fewer.len() > 3, "{fewer:?}");
        for pair in fewer.windows(2) {
            assert!(scale.position(pair[1]) - scale.position(pair[0]) >= 20.0);
        }
    }

    #[test]
    fn count_ticks_are_round_and_within_the_maximum() {
        assert_eq!(count_ticks(60, 4), [0, 20, 40, 60]);
        assert_eq!(count_ticks(12_500, 4), [0, 5_000, 10_000]);
        assert_eq!(count_ticks(0, 4), [0]);
        assert_eq!(count_ticks(1, 4), [0, 1]);
        for end in (0..200_000).step_by(37) {
            assert!(count_ticks(end, 4).len() <= 5, "{end}");
        }
    }

    #[test]
    fn a_count_axis_ends_slightly_above_the_highest_value() {
        assert_eq!(count_end(50), 50);
        assert_eq!(count_end(10_000), 10_000);
        assert_eq!(count_end(0), 1);
        assert_eq!(count_end(51), 60);
        for highest in 1..5_000 {
            let end = count_end(highest);
            assert!(
                end >= highest && end < highest + highest / 4 + 2,
                "{highest}"
            );
        }
    }
}
