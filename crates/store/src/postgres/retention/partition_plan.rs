//! Partition plans: decides what a retention run does with each large day, and when.
//!
//! A large day is surveyed first: which tenants have rows there, and for how long each keeps them. The survey
//! determines when the day can be dropped as a whole, and which tenants have rows that expire before that. Those rows
//! are searched tenant by tenant if the tenants are few, otherwise by a scan of the whole day. While nothing can
//! expire, the day is skipped and costs nothing.
//!
//! A change of retention settings invalidates all skip times, keeps a day that a tenant now keeps longer, and causes
//! a new survey in the next run. Rows are judged by the settings of their tenant at that time, and a day is surveyed
//! again before it is dropped. So nothing is deleted too early. [`PartitionPlans`] itself reads and deletes nothing: it
//! returns the next [`Task`], and the caller reports the result.

use std::collections::BTreeMap;

use posthaste_core::time::{Span, Timestamp};

use crate::RetentionPeriods;
use crate::postgres::schema::columns::Id;
use crate::postgres::schema::partitions::Day;
use crate::retention::has_expired;
use crate::skip_ranges::SkipRanges;

/// Maximum number of tenants with early rows that are searched tenant by tenant.
const FEW_TENANTS: usize = 50;
/// Validity of a survey that started when new tenants could still appear in the day. Later surveys are valid until
/// retention settings change.
const EARLY_SURVEY_VALID_FOR: Span = Span::from_hours(1);
/// Wait before dropping a day or its attempts is tried again, if something prevented it.
const DROP_RETRY_AFTER: Span = Span::from_mins(10);
/// Time for which waiting or late deliveries may delay dropping a day, before its expired rows are deleted row by
/// row.
const MAX_DROP_DELAY: Span = Span::from_days(1);
/// Clocks of other nodes may be behind by this much. Younger ranges do not become skip ranges, because rows can still
/// be inserted there.
pub(super) const MAX_CLOCK_LAG: Span = Span::from_mins(10);
/// Maximum number of skip ranges over all days. Above it, only those of the present day are kept.
const MAX_SKIP_RANGES: usize = 100_000;
/// Retention period of data that is deleted with its day, not before.
const UNTIL_DAY_IS_DROPPED: Span = Span::from_millis(u64::MAX);

/// The next action for a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::postgres) enum Task {
    /// Read the tenants that have rows there, starting above this number.
    Survey { above: i64 },
    /// Drop the day. No tenant keeps rows of it longer than `longest`.
    Drop { longest: RetentionPeriods },
    /// Drop the attempts of the day.
    DropAttempts { longest: RetentionPeriods },
    /// Delete some rows that expire before the day is dropped.
    ScanStep(ScanStep),
    /// Do nothing for now.
    Idle,
}

/// One step of a scan through a day's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanStep {
    pub(in crate::postgres) scope: ScanScope,
    pub(in crate::postgres) above: Id,
    /// The retention periods after which the day is dropped as a whole; `None` if all of it is deleted row by row.
    pub(in crate::postgres) whole: Option<RetentionPeriods>,
}

/// The tenants whose events are scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ScanScope {
    AllTenants,
    Tenant(i64),
}

/// The result of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanResult {
    /// The last event that was read; `None` if there was none.
    pub(in crate::postgres) last: Option<Id>,
    /// The last event before which no other can be inserted any more.
    pub(super) settled: Option<Id>,
    /// Set if there may be more events behind it.
    pub(in crate::postgres) more: bool,
    /// The earliest time at which a part of the remaining rows can expire; `None` if none remain.
    pub(in crate::postgres) until: Option<Timestamp>,
}

/// The partition plans of all large days.
#[derive(Debug, Default)]
pub(super) struct PartitionPlans {
    plans: BTreeMap<Day, PartitionPlan>,
}

/// The partition plan of one day.
#[derive(Debug, Default)]
struct PartitionPlan {
    survey: Option<Survey>,
    scans: BTreeMap<ScanScope, Scan>,
    round: Round,
    idle_until: Option<Timestamp>,
}

/// The tenants that have rows in a day.
#[derive(Debug)]
struct Survey {
    began: Timestamp,
    /// The tenant number after which to continue; `None` when the survey is complete.
    above: Option<i64>,
    /// The retention periods of each tenant. Cleared when the survey is complete.
    tenants: Vec<(i64, RetentionPeriods)>,
    longest: RetentionPeriods,
    /// The tenants with rows that expire before the day is dropped.
    early: Vec<ScanScope>,
    /// The shortest retention period of such rows, and the shortest of all rows if nothing is dropped as a whole.
    soonest: Span,
    soonest_of_all: Span,
    /// Set when retention settings have changed since.
    outdated: bool,
}

/// The actions for a day in the present run.
#[derive(Debug, Default)]
struct Round {
    begun: bool,
    tried: bool,
    tried_attempts: bool,
    /// The last tenant whose scan is complete.
    done: Option<ScanScope>,
}

/// The scan of the events of one tenant, or of all, in one day.
#[derive(Debug)]
struct Scan {
    whole: Option<RetentionPeriods>,
    above: Id,
    skip_ranges: SkipRanges<Id>,
    /// The earliest time at which a row that was read or skipped in this scan can expire.
    soonest: Option<Timestamp>,
    /// Nothing in this scan can expire before this time.
    idle_until: Option<Timestamp>,
}

impl PartitionPlans {
    /// Drops the plans of all other days.
    pub(super) fn keep_only(&mut self, days: &[Day]) {
        self.plans.retain(|day, _| days.contains(day));
    }

    /// Drops all plans.
    pub(in crate::postgres) fn forget(&mut self) {
        self.plans.clear();
    }

    /// Drops the plan of a day that was dropped.
    pub(super) fn forget_day(&mut self, day: Day) {
        self.plans.remove(&day);
    }

    /// Updates the plans after some tenants' retention periods have changed to these.
    pub(super) fn policies_changed(&mut self, to: &[RetentionPeriods]) {
        for plan in self.plans.values_mut() {
            plan.policies_changed(to);
        }
    }

    /// Returns whether nothing of a day can expire yet.
    pub(super) fn can_skip(&self, day: Day, now: Timestamp) -> bool {
        let plan = self.plans.get(&day);
        plan.and_then(|plan| plan.idle_until)
            .is_some_and(|until| until > now)
    }

    /// Returns the next action for a day. [`Task::Idle`] ends its turn in this run.
    pub(in crate::postgres) fn next(&mut self, day: Day, now: Timestamp) -> Task {
        self.plans.entry(day).or_default().next(day, now)
    }

    /// Makes dropping a day be tried again in this run, because rows that prevented it are being deleted.
    pub(super) fn try_again(&mut self, day: Day) {
        if let Some(plan) = self.plans.get_mut(&day) {
            plan.round.tried = false;
        }
    }

    /// Reports tenants that have rows in a day, and the number after which there may be more.
    pub(super) fn surveyed(
        &mut self,
        day: Day,
        found: Vec<(i64, RetentionPeriods)>,
        above: Option<i64>,
    ) {
        if let Some(plan) = self.plans.get_mut(&day) {
            plan.surveyed(found, above);
        }
    }

    /// Reports a step.
    pub(super) fn scanned(
        &mut self,
        day: Day,
        now: Timestamp,
        scan_step: ScanStep,
        scanned: ScanResult,
    ) {
        if let Some(plan) = self.plans.get_mut(&day) {
            plan.scanned(day, now, scan_step, scanned);
        }
        if self.skip_range_count() > MAX_SKIP_RANGES {
            for (other, plan) in &mut self.plans {
                if *other != day {
                    plan.scans.clear();
                    plan.idle_until = None;
                }
            }
        }
    }

    fn skip_range_count(&self) -> usize {
        let scans = self.plans.values().flat_map(|plan| plan.scans.values());
        scans.map(|scan| 1 + scan.skip_ranges.len()).sum()
    }
}

impl Survey {
    fn begin(now: Timestamp) -> Survey {
        Survey {
            began: now,
            above: Some(0),
            tenants: Vec::new(),
            longest: NOTHING,
            early: Vec::new(),
            soonest: UNTIL_DAY_IS_DROPPED,
            soonest_of_all: UNTIL_DAY_IS_DROPPED,
            outdated: false,
        }
    }

    fn holds_until(&self, day: Day) -> Timestamp {
        if self.began < day.next().begins().after(MAX_CLOCK_LAG) {
            self.began.after(EARLY_SURVEY_VALID_FOR)
        } else {
            Timestamp(u64::MAX)
        }
    }

    /// Returns the time at which all rows of the day have expired.
    fn drop_at(&self, day: Day) -> Timestamp {
        day.next().begins().after(self.longest.deliveries)
    }

    /// Evaluates a complete survey.
    fn close(&mut self) {
        let whole = Some(self.longest);
        let tenants = std::mem::take(&mut self.tenants);
        let spans = || {
            tenants
                .iter()
                .map(|(_, kept)| early(*kept, whole).shortest())
        };
        self.soonest = spans().min().unwrap_or(UNTIL_DAY_IS_DROPPED);
        let all = tenants.iter().map(|(_, kept)| kept.shortest());
        self.soonest_of_all = all.min().unwrap_or(UNTIL_DAY_IS_DROPPED);
        let early = tenants.iter().zip(spans());
        let early = early.filter(|(_, shortest)| *shortest < UNTIL_DAY_IS_DROPPED);
        self.early = early.map(|((no, _), _)| ScanScope::Tenant(*no)).collect();
        if self.early.len() > FEW_TENANTS || 2 * self.early.len() > tenants.len() {
            self.early = vec![ScanScope::AllTenants];
        }
    }
}

impl PartitionPlan {
    fn policies_changed(&mut self, to: &[RetentionPeriods]) {
        if let Some(survey) = &mut self.survey {
            survey.outdated = true;
            survey.longest = to.iter().fold(survey.longest, longest);
        }
        for scan in self.scans.values_mut() {
            scan.skip_ranges.forget();
            scan.soonest = Some(Timestamp(0));
            scan.idle_until = None;
        }
        self.idle_until = None;
    }

    fn next(&mut self, day: Day, now: Timestamp) -> Task {
        if !std::mem::replace(&mut self.round.begun, true) {
            let holds = |survey: &Survey| !survey.outdated && survey.holds_until(day) > now;
            // An incomplete survey continues.
            let incomplete = |survey: &Survey| survey.above.is_some();
            self.survey = self.survey.take().filter(|it| incomplete(it) || holds(it));
        }
        let survey = self.survey.get_or_insert_with(|| Survey::begin(now));
        let drop_at = survey.drop_at(day);
        if survey.above.is_none() && survey.began < drop_at && drop_at <= now {
            *survey = Survey::begin(now);
        }
        if let Some(above) = survey.above {
            return Task::Survey { above };
        }
        let longest = survey.longest;
        let drop_at = survey.drop_at(day);
        if drop_at <= now && !std::mem::replace(&mut self.round.tried, true) {
            return Task::Drop { longest };
        }
        let attempts_at = day.next().begins().after(longest.attempts);
        let attempts_go = longest.attempts < longest.deliveries;
        if attempts_go
            && attempts_at <= now
            && !std::mem::replace(&mut self.round.tried_attempts, true)
        {
            return Task::DropAttempts { longest };
        }
        let whole = (!has_expired(drop_at, MAX_DROP_DELAY, now)).then_some(longest);
        let mut until = survey.holds_until(day);
        for at in [Some(drop_at), attempts_go.then_some(attempts_at)] {
            let at = at.map(|at| {
                if at > now {
                    at
                } else {
                    now.after(DROP_RETRY_AFTER)
                }
            });
            until = at.map_or(until, |at| at.min(until));
        }
        match self.next_scan_step(day, now, whole) {
            Ok(scan_step) => Task::ScanStep(scan_step),
            Err(scans_until) => {
                self.round = Round::default();
                let holds = self.survey.as_ref().is_some_and(|it| !it.outdated);
                self.idle_until = holds.then_some(until.min(scans_until));
                Task::Idle
            }
        }
    }

    /// Returns the next step, or the time at which something can expire if nothing can now.
    fn next_scan_step(
        &mut self,
        day: Day,
        now: Timestamp,
        whole: Option<RetentionPeriods>,
    ) -> Result<ScanStep, Timestamp> {
        let survey = self.survey.as_ref().expect("it was surveyed");
        let soonest = match whole {
            Some(_) => survey.soonest,
            None => survey.soonest_of_all,
        };
        let first_expiry = day.begins().after(soonest);
        if first_expiry > now {
            return Err(first_expiry);
        }
        let all_tenants = [ScanScope::AllTenants];
        let early = whole.map_or(all_tenants.as_slice(), |_| &survey.early);
        self.scans.retain(|scope, _| early.contains(scope));
        for scope in early.iter().filter(|scope| Some(**scope) > self.round.done) {
            let scan = self.scans.entry(*scope);
            let scan = scan.or_insert_with(|| Scan::begin(day, whole));
            if scan.whole != whole {
                *scan = Scan::begin(day, whole);
            }
            if scan.idle_until.is_none_or(|until| until <= now) {
                return Ok(ScanStep {
                    scope: *scope,
                    above: scan.on(now),
                    whole,
                });
            }
        }
        let rest = self.scans.values().filter_map(|scan| scan.idle_until);
        Err(rest.min().unwrap_or(Timestamp(u64::MAX)))
    }

    fn surveyed(&mut self, found: Vec<(i64, RetentionPeriods)>, above: Option<i64>) {
        let Some(survey) = &mut self.survey else {
            return;
        };
        survey.longest = found
            .iter()
            .map(|(_, kept)| kept)
            .fold(survey.longest, longest);
        survey.tenants.extend(found);
        survey.above = above;
        if above.is_none() {
            survey.close();
        }
    }

    fn scanned(&mut self, day: Day, now: Timestamp, scan_step: ScanStep, scanned: ScanResult) {
        let (Some(scan), Some(survey)) = (self.scans.get_mut(&scan_step.scope), &self.survey)
        else {
            return;
        };
        if let Some(settled) = scanned.settled {
            scan.skip_ranges
                .examined(scan_step.above, settled, scanned.until);
        }
        scan.note(scanned.until);
        match scanned.last.filter(|_| scanned.more) {
            Some(last) => scan.above = last,
            None => {
                // Rows that are inserted after this step expire no earlier than this.
                let soonest = scan_step
                    .whole
                    .map_or(survey.soonest_of_all, |_| survey.soonest);
                scan.note(Some(now.after(soonest)));
                scan.idle_until = scan.soonest.take();
                scan.above = before(day);
                self.round.done = Some(scan_step.scope);
            }
        }
    }
}

impl Scan {
    fn begin(day: Day, whole: Option<RetentionPeriods>) -> Scan {
        Scan {
            whole,
            above: before(day),
            skip_ranges: SkipRanges::default(),
            soonest: None,
            idle_until: None,
        }
    }

    /// Returns the id after which to continue.
    fn on(&mut self, now: Timestamp) -> Id {
        let (above, soonest) = self.skip_ranges.passed(self.above, now);
        self.note(soonest);
        self.above = above;
        above
    }

    fn note(&mut self, at: Option<Timestamp>) {
        let Some(at) = at else {
            return;
        };
        self.soonest = Some(self.soonest.map_or(at, |soonest| soonest.min(at)));
    }
}

/// Retention periods of zero.
const NOTHING: RetentionPeriods = RetentionPeriods {
    deliveries: Span::ZERO,
    payloads: Span::ZERO,
    attempts: Span::ZERO,
};

/// Returns the longer of each of two tenants' retention periods.
fn longest(one: RetentionPeriods, other: &RetentionPeriods) -> RetentionPeriods {
    RetentionPeriods {
        deliveries: one.deliveries.max(other.deliveries),
        payloads: one.payloads.max(other.payloads),
        attempts: one.attempts.max(other.attempts),
    }
}

fn before(day: Day) -> Id {
    Id(day.first_id().saturating_sub(1))
}

/// Returns the retention periods of a tenant that are shorter than those of the whole day.
pub(super) fn early(kept: RetentionPeriods, whole: Option<RetentionPeriods>) -> RetentionPeriods {
    let Some(whole) = whole else {
        return kept;
    };
    let than = |own: Span, whole: Span| {
        if own < whole {
            own
        } else {
            UNTIL_DAY_IS_DROPPED
        }
    };
    RetentionPeriods {
        deliveries: than(kept.deliveries, whole.deliveries),
        // A payload is in the row of its event, and is deleted alone.
        payloads: than(kept.payloads, whole.deliveries),
        attempts: than(kept.attempts, whole.attempts),
    }
}

#[cfg(test)]
mod tests;
