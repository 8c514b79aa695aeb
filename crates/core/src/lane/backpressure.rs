//! Backpressure: adapts an endpoint's limits to what its receiver accepts.
//!
//! [`Backpressure`] counts results per interval and decides from shares, never from a single result:
//!
//! - **In flight.** While at least half of the requests succeed, the whole in-flight limit may be used. Below that, twice
//!   the share that succeeds.
//! - **Rate.** If more than a tenth of the requests is refused with 429 or 503, the rate is lowered to just above what the
//!   receiver accepts, as a trial. If fewer are refused then, the receiver was overloaded: the lower rate stays and is
//!   raised step by step. If as many are refused as before, the refusals do not depend on the rate: it is restored, and
//!   that share of refusals is tolerated from then on.
//!
//! So an endpoint that fails a fifth of its requests is served at full speed, and one that is overloaded settles just
//! below its capacity.

use crate::time::Tick;

/// Minimum duration of an interval, in milliseconds.
const INTERVAL_MS: u64 = 1_000;
/// Minimum number of results of an interval.
const MIN_RESULTS: u32 = 50;
/// Minimum number of results of an interval if at least half of them are refusals.
const MIN_RESULTS_IF_MOST_ARE_REFUSED: u32 = 20;
/// Minimum number of results of an interval without refusals.
const MIN_RESULTS_IF_NONE_IS_REFUSED: u32 = 10;
/// Duration after which an interval ends with few results, in milliseconds.
const LONGEST_INTERVAL_MS: u64 = 10_000;
/// Minimum number of results of the longest interval.
const MIN_RESULTS_OF_LONGEST: u32 = 5;
/// Maximum time between two results that counts as busy, in milliseconds. Longer gaps are idle time, in which the
/// receiver accepted little because little was sent.
const LONGEST_GAP_MS: u64 = 1_000;
/// Time after a change of the rate in which results are ignored, in milliseconds: they belong to the old rate.
const SETTLING_MS: u64 = 1_000;

/// Share of refusals above the tolerated one that starts a trial.
const EXCESS_SHARE: f64 = 0.10;
/// Share of refusals above the tolerated one up to which the rate is raised.
const RAISING_SHARE: f64 = 0.03;
/// Share of the maximum rate that must be used for the maximum to be raised: what is not used shows nothing.
const USED_SHARE: f64 = 0.8;
/// A trial has helped if this part of the excess remains at most.
const REMAINING_EXCESS: f64 = 0.6;
/// The rate in a trial, as a multiple of what the receiver accepts.
const ABOVE_ACCEPTED: f64 = 1.05;
/// Maximum reduction of the rate by one trial.
const MAX_REDUCTION: f64 = 10.0;
/// The first step up after a reduction. The next ones are twice as large each, up to [`LARGEST_STEP`].
const FIRST_STEP: f64 = 0.05;
/// The largest step up: doubles the rate.
const LARGEST_STEP: f64 = 1.0;
/// The part of the tolerated share that remains after an interval. It decays, so that the next trial can show that the
/// refusals have become a matter of load.
const TOLERATED_REMAINS: f64 = 0.99;
/// Minimum share of the in-flight limit that may be used, relative to the share before.
const MIN_IN_FLIGHT_CHANGE: f64 = 0.5;
/// Multiple of the successful share up to which the in-flight limit may be used.
const IN_FLIGHT_PER_SUCCESS: f64 = 2.0;
/// Minimum number of refusals in a row, after some successes, that show the receiver's capacity when the breaker trips.
const REFUSALS_AT_CAPACITY: u32 = 10;
/// Minimum number of results after which refusals alone end the burst.
const MIN_RESULTS_TO_END_BURST: u32 = 10;

/// The result of one request, as far as the receiver's load is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadResult {
    /// The receiver processed the request.
    Processed,
    /// The request failed, but not for overload.
    Failed,
    /// The receiver reported overload: 429 or 503.
    Overloaded,
}

/// A change of the limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Adjustment {
    /// Nothing changes.
    None,
    /// The burst is used up; the rate stays.
    EndBurst,
    /// The rate was lowered, and the burst is used up.
    Slower,
    /// The rate was raised or restored.
    Faster,
}

#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    busy_ms: u64,
    last_result: Option<Tick>,
    processed: u32,
    failed: u32,
    overloaded: u32,
    overloaded_in_a_row: u32,
    burst_ended: bool,
}

impl Interval {
    fn add(&mut self, now: Tick, result: LoadResult) {
        if let Some(last) = self.last_result {
            self.busy_ms += now.0.saturating_sub(last.0).min(LONGEST_GAP_MS);
        }
        self.last_result = Some(now);
        match result {
            LoadResult::Processed => self.processed += 1,
            LoadResult::Failed => self.failed += 1,
            LoadResult::Overloaded => self.overloaded += 1,
        }
        self.overloaded_in_a_row = match result {
            LoadResult::Overloaded => self.overloaded_in_a_row + 1,
            LoadResult::Processed | LoadResult::Failed => 0,
        };
    }

    fn results(&self) -> u32 {
        self.processed + self.failed + self.overloaded
    }

    fn is_complete(&self) -> bool {
        let results = self.results();
        if self.busy_ms >= LONGEST_INTERVAL_MS && results >= MIN_RESULTS_OF_LONGEST {
            return true;
        }
        let wanted = if self.overloaded == 0 {
            MIN_RESULTS_IF_NONE_IS_REFUSED
        } else if 2 * self.overloaded >= results {
            MIN_RESULTS_IF_MOST_ARE_REFUSED
        } else {
            MIN_RESULTS
        };
        self.busy_ms >= INTERVAL_MS && results >= wanted
    }

    fn overloaded_share(&self) -> f64 {
        share(self.overloaded, self.results())
    }

    fn processed_share(&self) -> f64 {
        share(self.processed, self.results())
    }

    /// Returns the requests per second that were not refused for overload.
    fn accepted_per_second(&self) -> f64 {
        f64::from(self.results() - self.overloaded) * 1_000.0 / self.busy_ms.max(1) as f64
    }

    fn per_second(&self) -> f64 {
        f64::from(self.results()) * 1_000.0 / self.busy_ms.max(1) as f64
    }
}

fn share(part: u32, whole: u32) -> f64 {
    f64::from(part) / f64::from(whole.max(1))
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Steady,
    /// The rate was lowered; this interval shows whether that helps.
    Trial {
        share_before: f64,
        rate_before: Option<f64>,
    },
}

/// The adaptive limits of one endpoint.
#[derive(Clone, Debug)]
pub struct Backpressure {
    interval: Interval,
    /// Results before this time are ignored.
    counts_from: Tick,
    phase: Phase,
    /// Share of refusals that does not depend on the rate.
    tolerated_share: f64,
    /// Maximum rate, in requests per second; `None` if only the endpoint's own limit applies.
    max_per_second: Option<f64>,
    /// The next step up, as a part of the rate.
    step: f64,
    in_flight_share: f64,
}

impl Default for Backpressure {
    fn default() -> Backpressure {
        Backpressure {
            interval: Interval::default(),
            counts_from: Tick::START,
            phase: Phase::Steady,
            tolerated_share: 0.0,
            max_per_second: None,
            step: FIRST_STEP,
            in_flight_share: 1.0,
        }
    }
}

impl Backpressure {
    /// Returns the maximum rate, in requests per second, if it is below the endpoint's own limit.
    pub fn max_per_second(&self) -> Option<f64> {
        self.max_per_second
    }

    /// Returns the share of the in-flight limit that may be used.
    pub fn in_flight_share(&self) -> f64 {
        self.in_flight_share
    }

    /// Discards the results of the current interval, because attempts are interrupted until `until`.
    pub fn interrupt(&mut self, until: Tick) {
        self.restart_interval(until);
    }

    /// Ends the current interval, because the breaker has tripped. If the receiver accepted some requests and then refused
    /// one after the other for overload, what it accepted in the interval is its capacity.
    pub fn tripped(&mut self) {
        let interval = &mut self.interval;
        if interval.overloaded_in_a_row >= REFUSALS_AT_CAPACITY
            && interval.processed >= MIN_RESULTS_OF_LONGEST
        {
            interval.busy_ms = interval.busy_ms.max(INTERVAL_MS);
            self.max_per_second = Some(interval.accepted_per_second() * ABOVE_ACCEPTED);
            self.phase = Phase::Steady;
            self.step = FIRST_STEP;
        }
        self.interval = Interval::default();
    }

    /// Adds a result. `limit_per_second` is the endpoint's own rate limit.
    pub fn result(&mut self, now: Tick, result: LoadResult, limit_per_second: f64) -> Adjustment {
        if now < self.counts_from {
            return Adjustment::None;
        }
        self.interval.add(now, result);
        if self.interval.is_complete() {
            return self.end_interval(now, limit_per_second);
        }
        let interval = &mut self.interval;
        let most_refused = 2 * interval.overloaded > interval.results();
        if most_refused && !interval.burst_ended && interval.results() >= MIN_RESULTS_TO_END_BURST {
            interval.burst_ended = true;
            return Adjustment::EndBurst;
        }
        Adjustment::None
    }

    fn end_interval(&mut self, now: Tick, limit_per_second: f64) -> Adjustment {
        let interval = self.interval;
        self.restart_interval(now);
        let wanted = (IN_FLIGHT_PER_SUCCESS * interval.processed_share()).min(1.0);
        self.in_flight_share = wanted.max(self.in_flight_share * MIN_IN_FLIGHT_CHANGE);

        let share = interval.overloaded_share();
        match self.phase {
            Phase::Steady => {}
            Phase::Trial {
                share_before,
                rate_before,
            } => {
                self.phase = Phase::Steady;
                let excess = share_before - self.tolerated_share;
                if share > self.tolerated_share + REMAINING_EXCESS * excess {
                    self.tolerated_share = (share + share_before) / 2.0;
                    self.max_per_second = rate_before;
                    return Adjustment::Faster;
                }
                self.step = FIRST_STEP;
            }
        }
        if share > self.tolerated_share + EXCESS_SHARE {
            return self.slow_down(now, &interval);
        }
        let may_raise = share <= self.tolerated_share + RAISING_SHARE;
        self.tolerated_share = (self.tolerated_share * TOLERATED_REMAINS).min(
            // A smaller share than the tolerated one is believed slowly, because it may be chance.
            (3.0 * self.tolerated_share + share) / 4.0,
        );
        if may_raise {
            self.speed_up(&interval, limit_per_second)
        } else {
            self.step = FIRST_STEP;
            Adjustment::None
        }
    }

    fn slow_down(&mut self, now: Tick, interval: &Interval) -> Adjustment {
        let accepted = interval.accepted_per_second() / (1.0 - self.tolerated_share).max(0.01);
        let lowest = interval.per_second() / MAX_REDUCTION;
        self.phase = Phase::Trial {
            share_before: interval.overloaded_share(),
            rate_before: self.max_per_second,
        };
        self.max_per_second = Some((accepted * ABOVE_ACCEPTED).max(lowest));
        self.restart_interval(Tick(now.0.saturating_add(SETTLING_MS)));
        Adjustment::Slower
    }

    fn speed_up(&mut self, interval: &Interval, limit_per_second: f64) -> Adjustment {
        let Some(rate) = self.max_per_second else {
            return Adjustment::None;
        };
        if interval.per_second() < USED_SHARE * rate {
            return Adjustment::None;
        }
        let faster = rate * (1.0 + self.step);
        self.step = (2.0 * self.step).min(LARGEST_STEP);
        self.max_per_second = (faster < limit_per_second).then_some(faster);
        Adjustment::Faster
    }

    fn restart_interval(&mut self, from: Tick) {
        self.interval = Interval::default();
        self.counts_from = from;
    }
}

#[cfg(test)]
mod tests;
