//! Backpressure: lowers the rate to a receiver that is overloaded, and only to such a receiver.
//!
//! [`Backpressure`] counts results per interval and decides from shares, never from a single result. It is in one of two
//! phases:
//!
//! - **Steady.** If too large a share of an interval failed, the rate is lowered to just below what the receiver accepted,
//!   as a trial. Otherwise a lowered rate is raised, in steps that grow, until the endpoint's own limit applies again.
//! - **Trial.** Requests sent at the lower rate show whether the rate matters. A sequential test ([`comparison`])
//!   compares the two explanations: the receiver was overloaded, so that much fewer fail now; or failures do not depend on
//!   the rate, so that as many fail as before. If it was overload, the lower rate stays. If not, the rate is restored, and
//!   the share is tolerated for a while. After a trial that cannot tell, the rate before it is restored only if fewer
//!   requests fail at it than without a limit; otherwise the limit ends.
//!
//! So a receiver that fails a fifth of its requests at random is served at full speed, and one that is overloaded settles
//! just below its capacity. An attempt counts for the interval that it was started in: results of requests that were sent at
//! another rate do not count, however slow the receiver is.

mod comparison;

use self::comparison::{Results, log_odds};
use crate::time::{Span, Tick};

/// Minimum duration of an interval: longer than the period of most limits at receivers.
const MIN_INTERVAL: Span = Span::from_secs(2);
/// Duration after which an interval without failures ends with few results.
const SHORT_INTERVAL: Span = Span::from_secs(3);
/// Duration after which an interval ends with few results, or is discarded without them.
const MAX_INTERVAL: Span = Span::from_secs(10);
/// Maximum time without a result or a new request within an interval.
const MAX_GAP: Span = Span::from_secs(2);
/// Minimum number of results of an interval.
const MIN_RESULTS: u32 = 20;
/// Minimum duration of an interval with failures while the rate is not lowered: a trial that starts from few results cannot
/// tell chance from overload.
const FIRST_INTERVAL: Span = Span::from_secs(4);
/// Number of results that are enough for a trial after [`MIN_INTERVAL`].
const ENOUGH_RESULTS: u32 = 200;
/// Minimum number of results of an interval without failures.
const MIN_RESULTS_WITHOUT_FAILURE: u32 = 10;
/// Minimum number of results of an interval that has lasted long.
const MIN_RESULTS_OF_LONG_INTERVAL: u32 = 3;
/// Time after a change of the rate in which the results of new requests do not count: a receiver with a limit per second
/// still refuses what exceeds it because of the old rate.
const SETTLING_TIME: Span = Span::from_secs(1);

/// Share of failures above the tolerated one that starts the first trial.
const EXCESS_SHARE: f64 = 0.10;
/// The same while the rate is lowered, because the receiver was found to be overloaded.
const EXCESS_SHARE_IF_LOWERED: f64 = 0.05;
/// Number of standard deviations by which failures must exceed that share before the first trial: a few failures too many
/// can be chance.
const SIGNIFICANT_DEVIATIONS: f64 = 2.0;
/// The same while the rate is lowered: then failures too many are probably overload.
const SIGNIFICANT_DEVIATIONS_IF_LOWERED: f64 = 1.0;
/// Number of overload responses in a row that starts a trial at once, if some requests were accepted before.
const OVERLOADED_IN_A_ROW: u32 = 10;
/// The rate in a trial, as a share of what the receiver accepted.
const TRIAL_RATE: f64 = 0.9;
/// The rate that a receiver is expected to accept after overload responses in a row, as a share of the endpoint's limit,
/// if no interval has shown it yet.
const FIRST_GUESS: f64 = 0.1;
/// Minimum rate, in requests per second. The breaker protects receivers that take less.
const MIN_RATE: f64 = 1.0;
/// Logarithm of the odds at which a trial is decided: 20 to 1.
const DECISIVE: f64 = 3.0;
/// Number of results after which a trial ends undecided. Overload shows within half as many.
const MAX_TRIAL_RESULTS: u32 = 80;
/// The first step up after a reduction. Each further step is twice as large, up to [`MAX_STEP`].
const FIRST_STEP: f64 = 0.05;
/// The largest step up: doubles the rate.
const MAX_STEP: f64 = 1.0;
/// Time for which a share of failures is tolerated after the first trial without effect. It doubles with each one.
const FIRST_TOLERANCE: Span = Span::from_secs(15);
/// Maximum time for which a share of failures is tolerated until the next trial.
const MAX_TOLERANCE: Span = Span::from_secs(60);
/// Maximum share of failures that is tolerated.
const MAX_TOLERATED_SHARE: f64 = 0.9;

/// The result of one request, as far as the receiver's load is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadResult {
    /// The receiver processed the request.
    Accepted,
    /// The request failed, but the receiver did not say that it is overloaded.
    Failed,
    /// The receiver reported overload: 429 or 503.
    Overloaded,
}

/// A decision about the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Adjustment {
    /// Nothing changes.
    None,
    /// The rate was lowered. The saved burst must not be used.
    Lowered,
    /// The rate was raised or restored.
    Raised,
    /// A lower rate does not help: this share of requests fails at any rate.
    NotLoad {
        /// The share of failures.
        share: f64,
        /// Number of results that it was measured with.
        results: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    /// Attempts started before this time do not belong to the interval.
    counts_from: Tick,
    first_result_at: Option<Tick>,
    last_result_at: Option<Tick>,
    results: Results,
    overloaded_in_a_row: u32,
}

impl Interval {
    fn new(counts_from: Tick) -> Interval {
        Interval {
            counts_from,
            first_result_at: None,
            last_result_at: None,
            results: Results::default(),
            overloaded_in_a_row: 0,
        }
    }

    fn add(&mut self, now: Tick, result: LoadResult) {
        self.first_result_at.get_or_insert(now);
        self.last_result_at = Some(now);
        self.results.add(result);
        match result {
            LoadResult::Accepted | LoadResult::Failed => self.overloaded_in_a_row = 0,
            LoadResult::Overloaded => self.overloaded_in_a_row += 1,
        }
    }

    /// Returns the time since the first result. Latency is not part of it.
    fn duration(&self, now: Tick) -> Span {
        self.first_result_at
            .map_or(Span::ZERO, |first| now.since(first))
    }

    /// Returns true if nothing was sent for a while before an attempt that was started at `started_at`. What the receiver
    /// accepted while little was sent says nothing about what it can accept.
    fn was_idle_before(&self, started_at: Tick) -> bool {
        self.last_result_at
            .is_some_and(|last| started_at.since(last) > MAX_GAP)
    }

    fn is_complete(&self, now: Tick, is_lowered: bool) -> bool {
        let (duration, results) = (self.duration(now), self.results.total());
        let (short, long, enough) = match (self.results.failed, is_lowered) {
            (0, _) => (MIN_INTERVAL, SHORT_INTERVAL, MIN_RESULTS_WITHOUT_FAILURE),
            (1.., false) if results < ENOUGH_RESULTS => (FIRST_INTERVAL, MAX_INTERVAL, MIN_RESULTS),
            (1.., _) => (MIN_INTERVAL, MAX_INTERVAL, MIN_RESULTS),
        };
        duration >= short && results >= enough
            || duration >= long && results >= MIN_RESULTS_OF_LONG_INTERVAL
    }

    /// Returns the requests per second that the receiver accepted. It may have a limit per second: what it accepts in a
    /// part of an interval shows nothing.
    fn accepted_per_second(&self, now: Tick) -> f64 {
        let duration = self.duration(now).max(MIN_INTERVAL);
        f64::from(self.results.accepted) / duration.as_secs_f64()
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Steady,
    Trial(Trial),
}

/// A lower rate, and whether it helps so far.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The results of the interval that started the trial.
    before: Results,
    rate_before: Option<f64>,
    /// True if the rate is a guess after overload responses in a row. If it does not help, it may still be too high.
    is_guess: bool,
}

/// A share of failures that does not depend on the rate.
#[derive(Clone, Copy, Debug)]
struct Tolerated {
    share: f64,
    until: Tick,
}

/// The adaptive rate limit of one endpoint.
#[derive(Clone, Debug)]
pub struct Backpressure {
    interval: Interval,
    phase: Phase,
    /// Maximum rate, in requests per second; `None` if only the endpoint's own limit applies.
    max_per_second: Option<f64>,
    /// The results of the interval before the rate was lowered for the first time.
    before_limit: Results,
    /// The rate that the receiver accepted in the last complete interval.
    last_accepted: Option<f64>,
    /// The rate that the receiver accepted when the rate was lowered last. Steps up are small above it.
    capacity: Option<f64>,
    /// The next step up, as a part of the rate.
    step: f64,
    tolerated: Option<Tolerated>,
    next_tolerance: Span,
}

impl Default for Backpressure {
    fn default() -> Backpressure {
        Backpressure {
            interval: Interval::new(Tick::START),
            phase: Phase::Steady,
            max_per_second: None,
            before_limit: Results::default(),
            last_accepted: None,
            capacity: None,
            step: FIRST_STEP,
            tolerated: None,
            next_tolerance: FIRST_TOLERANCE,
        }
    }
}

impl Backpressure {
    /// Returns the maximum rate, in requests per second, if it is below the endpoint's own limit.
    pub fn max_per_second(&self) -> Option<f64> {
        self.max_per_second
    }

    /// Counts the result of an attempt that was started at `started_at`. `limit_per_second` is the endpoint's own rate
    /// limit.
    pub fn finished(
        &mut self,
        now: Tick,
        started_at: Tick,
        result: LoadResult,
        limit_per_second: f64,
    ) -> Adjustment {
        if started_at < self.interval.counts_from {
            return Adjustment::None;
        }
        match self.phase {
            Phase::Steady if self.interval.was_idle_before(started_at) => {
                self.interval = Interval::new(started_at);
                self.interval.add(now, result);
                self.raise(limit_per_second)
            }
            Phase::Steady => {
                self.interval.add(now, result);
                self.adjust(now, limit_per_second)
            }
            Phase::Trial(trial) => {
                self.interval.add(now, result);
                self.judge(now, trial)
            }
        }
    }

    /// Ends the current interval without a decision, because the breaker has tripped. A trial that is not decided is
    /// undone: after the interruption the rate starts low anyway.
    pub fn interrupt(&mut self, now: Tick) {
        match self.phase {
            Phase::Steady => {}
            Phase::Trial(trial) => self.max_per_second = trial.rate_before,
        }
        self.phase = Phase::Steady;
        self.next_interval(now);
    }

    fn adjust(&mut self, now: Tick, limit_per_second: f64) -> Adjustment {
        let interval = self.interval;
        if interval.overloaded_in_a_row >= OVERLOADED_IN_A_ROW && interval.results.accepted > 0 {
            let measured = interval.accepted_per_second(now);
            let known = match (self.last_accepted, self.max_per_second) {
                (Some(accepted), _) => accepted,
                (None, Some(rate)) => rate,
                (None, None) => FIRST_GUESS * limit_per_second,
            };
            let guess = measured.max(TRIAL_RATE * known);
            return self.start_trial(now, guess, true);
        }
        let is_lowered = self.max_per_second.is_some();
        if !interval.is_complete(now, is_lowered) {
            if interval.duration(now) >= MAX_INTERVAL {
                // Too little traffic to learn from, and too little to overload the receiver.
                self.next_interval(now);
                if interval.results.failed == 0 {
                    return self.raise(limit_per_second);
                }
            }
            return Adjustment::None;
        }
        self.last_accepted = Some(interval.accepted_per_second(now));
        let results = f64::from(interval.results.total());
        let (excess_share, deviations) = match is_lowered {
            true => (EXCESS_SHARE_IF_LOWERED, SIGNIFICANT_DEVIATIONS_IF_LOWERED),
            false => (EXCESS_SHARE, SIGNIFICANT_DEVIATIONS),
        };
        let usual_share = self.tolerated_share(now) + excess_share;
        let deviation = (results * usual_share * (1.0 - usual_share)).sqrt();
        let excess = f64::from(interval.results.failed) - results * usual_share;
        if excess > deviations * deviation && interval.results.accepted > 0 {
            return self.lower(now);
        }
        self.next_interval(now);
        if excess > 0.0 {
            return Adjustment::None;
        }
        self.raise(limit_per_second)
    }

    fn tolerated_share(&self, now: Tick) -> f64 {
        self.tolerated
            .filter(|tolerated| now < tolerated.until)
            .map_or(0.0, |tolerated| tolerated.share)
    }

    /// Lowers the rate to just below what the receiver accepts, as a trial.
    fn lower(&mut self, now: Tick) -> Adjustment {
        // A tolerated failure uses up the receiver's capacity as an accepted request does.
        let accepted = self.interval.accepted_per_second(now);
        let capacity = accepted / (1.0 - self.tolerated_share(now));
        self.capacity = Some(capacity);
        self.start_trial(now, TRIAL_RATE * capacity, false)
    }

    fn start_trial(&mut self, now: Tick, rate: f64, is_guess: bool) -> Adjustment {
        self.phase = Phase::Trial(Trial {
            before: self.interval.results,
            rate_before: self.max_per_second,
            is_guess,
        });
        if self.max_per_second.is_none() {
            self.before_limit = self.interval.results;
        }
        let highest = TRIAL_RATE * self.max_per_second.unwrap_or(f64::MAX);
        self.max_per_second = Some(rate.min(highest).max(MIN_RATE));
        self.next_interval(now.after(SETTLING_TIME));
        Adjustment::Lowered
    }

    fn judge(&mut self, now: Tick, trial: Trial) -> Adjustment {
        let interval = self.interval;
        let (duration, results) = (interval.duration(now), interval.results.total());
        let odds = log_odds(trial.before, interval.results);
        let is_overload = odds >= DECISIVE;
        // A receiver with a limit per second or two may still refuse everything for a moment.
        let settled = match trial.is_guess && results >= MAX_TRIAL_RESULTS {
            true => SETTLING_TIME,
            false => MIN_INTERVAL,
        };
        let is_independent = odds <= -DECISIVE && duration >= settled;
        let has_enough = results >= MAX_TRIAL_RESULTS && duration >= MIN_INTERVAL;
        let is_long = duration >= MAX_INTERVAL && results >= MIN_RESULTS_OF_LONG_INTERVAL;
        if !(is_overload || is_independent || has_enough || is_long) {
            return Adjustment::None;
        }
        self.step = FIRST_STEP;
        if is_overload {
            // Failures that remain at the lower rate are not a matter of load.
            let tolerated = self.tolerated_share(now) / 2.0;
            self.tolerate(now, interval.results.failed_share().max(tolerated));
            self.next_tolerance = FIRST_TOLERANCE;
            self.phase = Phase::Steady;
            self.next_interval(now);
            return Adjustment::None;
        }
        if trial.is_guess && interval.results.accepted > 0 {
            return self.lower(now);
        }
        self.phase = Phase::Steady;
        self.next_interval(now);
        let all = trial.before.plus(interval.results);
        let share = all.failed_share();
        if !is_independent
            && trial.rate_before.is_some()
            && log_odds(self.before_limit, all) >= DECISIVE
        {
            // This trial cannot tell, but fewer requests fail than without any limit.
            self.max_per_second = trial.rate_before;
            self.tolerate(now, share);
            return Adjustment::Raised;
        }
        if share <= MAX_TOLERATED_SHARE {
            self.max_per_second = None;
            self.capacity = None;
            self.tolerate(now, share);
            self.next_tolerance = self.next_tolerance.times(2).min(MAX_TOLERANCE);
        }
        Adjustment::NotLoad {
            share,
            results: all.total(),
        }
    }

    fn tolerate(&mut self, now: Tick, share: f64) {
        self.tolerated = Some(Tolerated {
            share: share.min(MAX_TOLERATED_SHARE),
            until: now.after(self.next_tolerance),
        });
    }

    fn raise(&mut self, limit_per_second: f64) -> Adjustment {
        let Some(rate) = self.max_per_second else {
            return Adjustment::None;
        };
        let mut raised = rate * (1.0 + self.step);
        self.step = (2.0 * self.step).min(MAX_STEP);
        if let Some(capacity) = self.capacity
            && rate < capacity
            && capacity < raised
        {
            raised = capacity;
            self.step = FIRST_STEP;
        }
        self.max_per_second = (raised < limit_per_second).then_some(raised);
        Adjustment::Raised
    }

    /// Starts an interval of the attempts that are started after `time`.
    fn next_interval(&mut self, time: Tick) {
        self.interval = Interval::new(time.after(Span::from_millis(1)));
    }
}

#[cfg(test)]
mod tests;
