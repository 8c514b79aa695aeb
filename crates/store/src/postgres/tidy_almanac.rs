//! What is known of large days, so that none is looked at more often than something of it can go.
//!
//! A large day is surveyed first: who has something there, and how long each keeps it. From that follows when it can go as
//! a whole, and whose things need not wait for that. Those are walked to tenant by tenant if they are of a few, else
//! through the whole day. Where nothing can go before some moment the day rests until then, and costs nothing.
//!
//! When somebody's mind changes nothing rests, no day goes that they want to keep, and the next round surveys again. What
//! is walked through is judged by what its tenant says then, and a day is surveyed once more before it goes. So nothing
//! here makes anything go too early. Nothing here reads or removes anything either: it says what to do next, and is told
//! what came of it.

use std::collections::BTreeMap;

use posthaste_core::time::{Span, Timestamp};

use super::columns::Id;
use super::partitions::Day;
use crate::Kept;
use crate::retention::is_over;
use crate::stretches::Stretches;

/// If the things of no more tenants than this go before their day, each tenant's are looked for by themselves.
const FEW_TENANTS: usize = 50;
/// How long a survey holds that was begun when tenants could still appear. Later ones hold until somebody's mind changes.
const SURVEYED_EARLY_FOR: Span = Span::from_hours(1);
/// How soon it is tried again to drop a day, or its attempts, if something was in the way.
const TRIED_AGAIN: Span = Span::from_mins(10);
/// How long a day that could go is held up by what waits, or ended late, before the rest of it goes row by row.
const HELD_UP: Span = Span::from_days(1);
/// Other nodes' clocks may be so far behind: what is younger is not remembered as looked at.
pub(super) const SETTLED: Span = Span::from_mins(10);
/// So many stretches are remembered, over all days. Past that, only those of the day at hand are.
const MAX_REMEMBERED: usize = 100_000;
/// What goes with its day, and not before.
const WITH_ITS_DAY: Span = Span::from_millis(u64::MAX);

/// What to do next about a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Read who has something there, of the tenants with a greater number.
    Survey { above: i64 },
    /// Drop it: nobody keeps anything of it for longer than this.
    Drop { longest: Kept },
    /// Drop its attempts.
    DropAttempts { longest: Kept },
    /// Remove some of what goes before its day.
    Walk(Walk),
    /// Nothing, for now.
    Rest,
}

/// A piece of the way through a day's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Walk {
    pub(super) whose: Whose,
    pub(super) above: Id,
    /// What goes as a whole; nothing if all of it goes row by row.
    pub(super) whole: Option<Kept>,
}

/// Whose events are walked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    Everybody,
    Tenant(i64),
}

/// What a piece of the way came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walked {
    /// The last event that was looked at; nothing if none is left.
    pub(super) last: Option<Id>,
    /// The last of those that nothing comes before any more.
    pub(super) settled: Option<Id>,
    /// There may be more behind it.
    pub(super) more: bool,
    /// Nothing that is left of it can go before this; nothing if nothing is left.
    pub(super) until: Option<Timestamp>,
}

/// What is known of all large days.
#[derive(Debug, Default)]
pub(super) struct Almanac {
    pages: BTreeMap<Day, Page>,
}

/// What is known of one.
#[derive(Debug, Default)]
struct Page {
    survey: Option<Survey>,
    strolls: BTreeMap<Whose, Stroll>,
    round: Round,
    rests_until: Option<Timestamp>,
}

/// Who has something there.
#[derive(Debug)]
struct Survey {
    began: Timestamp,
    /// Where to read on; nothing if everybody is known.
    above: Option<i64>,
    /// How long each keeps it. Forgotten when it is clear what follows.
    tenants: Vec<(i64, Kept)>,
    longest: Kept,
    /// Whose things go before the day does.
    early: Vec<Whose>,
    /// After how long the first of them do, and the first of all if nothing goes as a whole.
    soonest: Span,
    soonest_of_all: Span,
    /// Somebody's mind has changed since.
    outdated: bool,
}

/// What was done about a day in this round.
#[derive(Debug, Default)]
struct Round {
    begun: bool,
    tried: bool,
    tried_attempts: bool,
    /// Whose way has come to its end.
    done: Option<Whose>,
}

/// The way through somebody's events of one day.
#[derive(Debug)]
struct Stroll {
    whole: Option<Kept>,
    above: Id,
    stretches: Stretches<Id>,
    /// When the first of what was looked at or passed over since the beginning of the way can go.
    soonest: Option<Timestamp>,
    /// Nothing of it can go before this.
    rests_until: Option<Timestamp>,
}

impl Almanac {
    /// These days are large. Nothing is known of any other.
    pub(super) fn keep_only(&mut self, days: &[Day]) {
        self.pages.retain(|day, _| days.contains(day));
    }

    /// Nothing of what is known holds any more.
    pub(super) fn forget(&mut self) {
        self.pages.clear();
    }

    /// A day is gone.
    pub(super) fn forget_day(&mut self, day: Day) {
        self.pages.remove(&day);
    }

    /// Some tenants keep their things for so long from now on.
    pub(super) fn minds_changed(&mut self, to: &[Kept]) {
        for page in self.pages.values_mut() {
            page.minds_changed(to);
        }
    }

    /// Whether nothing of a day can go yet.
    pub(super) fn rests(&self, day: Day, now: Timestamp) -> bool {
        let page = self.pages.get(&day);
        page.and_then(|page| page.rests_until)
            .is_some_and(|until| until > now)
    }

    /// What to do next about a day. [`Task::Rest`] ends its turn in this round.
    pub(super) fn next(&mut self, day: Day, now: Timestamp) -> Task {
        self.pages.entry(day).or_default().next(day, now)
    }

    /// What has to go before a day can be dropped is going: it is tried again.
    pub(super) fn try_again(&mut self, day: Day) {
        if let Some(page) = self.pages.get_mut(&day) {
            page.round.tried = false;
        }
    }

    /// These tenants have something there, and there may be more above that number.
    pub(super) fn surveyed(&mut self, day: Day, found: Vec<(i64, Kept)>, above: Option<i64>) {
        if let Some(page) = self.pages.get_mut(&day) {
            page.surveyed(found, above);
        }
    }

    /// A piece of the way is done.
    pub(super) fn walked(&mut self, day: Day, now: Timestamp, walk: Walk, walked: Walked) {
        if let Some(page) = self.pages.get_mut(&day) {
            page.walked(day, now, walk, walked);
        }
        if self.remembered() > MAX_REMEMBERED {
            for (other, page) in &mut self.pages {
                if *other != day {
                    page.strolls.clear();
                    page.rests_until = None;
                }
            }
        }
    }

    fn remembered(&self) -> usize {
        let strolls = self.pages.values().flat_map(|page| page.strolls.values());
        strolls.map(|stroll| 1 + stroll.stretches.len()).sum()
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
            soonest: WITH_ITS_DAY,
            soonest_of_all: WITH_ITS_DAY,
            outdated: false,
        }
    }

    fn holds_until(&self, day: Day) -> Timestamp {
        if self.began < day.next().begins().after(SETTLED) {
            self.began.after(SURVEYED_EARLY_FOR)
        } else {
            Timestamp(u64::MAX)
        }
    }

    /// When nobody keeps anything of the day any more.
    fn goes_at(&self, day: Day) -> Timestamp {
        day.next().begins().after(self.longest.deliveries)
    }

    /// Everybody is known.
    fn close(&mut self) {
        let whole = Some(self.longest);
        let tenants = std::mem::take(&mut self.tenants);
        let spans = || {
            tenants
                .iter()
                .map(|(_, kept)| early(*kept, whole).shortest())
        };
        self.soonest = spans().min().unwrap_or(WITH_ITS_DAY);
        let all = tenants.iter().map(|(_, kept)| kept.shortest());
        self.soonest_of_all = all.min().unwrap_or(WITH_ITS_DAY);
        let early = tenants.iter().zip(spans());
        let early = early.filter(|(_, shortest)| *shortest < WITH_ITS_DAY);
        self.early = early.map(|((no, _), _)| Whose::Tenant(*no)).collect();
        if self.early.len() > FEW_TENANTS || 2 * self.early.len() > tenants.len() {
            self.early = vec![Whose::Everybody];
        }
    }
}

impl Page {
    fn minds_changed(&mut self, to: &[Kept]) {
        if let Some(survey) = &mut self.survey {
            survey.outdated = true;
            survey.longest = to.iter().fold(survey.longest, longest);
        }
        for stroll in self.strolls.values_mut() {
            stroll.stretches.forget();
            stroll.soonest = Some(Timestamp(0));
            stroll.rests_until = None;
        }
        self.rests_until = None;
    }

    fn next(&mut self, day: Day, now: Timestamp) -> Task {
        if !std::mem::replace(&mut self.round.begun, true) {
            let holds = |survey: &Survey| !survey.outdated && survey.holds_until(day) > now;
            // One that is not complete goes on.
            let incomplete = |survey: &Survey| survey.above.is_some();
            self.survey = self.survey.take().filter(|it| incomplete(it) || holds(it));
        }
        let survey = self.survey.get_or_insert_with(|| Survey::begin(now));
        let goes_at = survey.goes_at(day);
        if survey.above.is_none() && survey.began < goes_at && goes_at <= now {
            *survey = Survey::begin(now);
        }
        if let Some(above) = survey.above {
            return Task::Survey { above };
        }
        let longest = survey.longest;
        let goes_at = survey.goes_at(day);
        if goes_at <= now && !std::mem::replace(&mut self.round.tried, true) {
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
        let whole = (!is_over(goes_at, HELD_UP, now)).then_some(longest);
        let mut until = survey.holds_until(day);
        for at in [Some(goes_at), attempts_go.then_some(attempts_at)] {
            let at = at.map(|at| if at > now { at } else { now.after(TRIED_AGAIN) });
            until = at.map_or(until, |at| at.min(until));
        }
        match self.stroll_on(day, now, whole) {
            Ok(walk) => Task::Walk(walk),
            Err(strolls_until) => {
                self.round = Round::default();
                let holds = self.survey.as_ref().is_some_and(|it| !it.outdated);
                self.rests_until = holds.then_some(until.min(strolls_until));
                Task::Rest
            }
        }
    }

    /// The next piece of the way, or when something can go if nothing can now.
    fn stroll_on(
        &mut self,
        day: Day,
        now: Timestamp,
        whole: Option<Kept>,
    ) -> Result<Walk, Timestamp> {
        let survey = self.survey.as_ref().expect("it was surveyed");
        let soonest = match whole {
            Some(_) => survey.soonest,
            None => survey.soonest_of_all,
        };
        let first_goes_at = day.begins().after(soonest);
        if first_goes_at > now {
            return Err(first_goes_at);
        }
        let everybody = [Whose::Everybody];
        let early = whole.map_or(everybody.as_slice(), |_| &survey.early);
        self.strolls.retain(|whose, _| early.contains(whose));
        for whose in early.iter().filter(|whose| Some(**whose) > self.round.done) {
            let stroll = self.strolls.entry(*whose);
            let stroll = stroll.or_insert_with(|| Stroll::begin(day, whole));
            if stroll.whole != whole {
                *stroll = Stroll::begin(day, whole);
            }
            if stroll.rests_until.is_none_or(|until| until <= now) {
                return Ok(Walk {
                    whose: *whose,
                    above: stroll.on(now),
                    whole,
                });
            }
        }
        let rest = self
            .strolls
            .values()
            .filter_map(|stroll| stroll.rests_until);
        Err(rest.min().unwrap_or(Timestamp(u64::MAX)))
    }

    fn surveyed(&mut self, found: Vec<(i64, Kept)>, above: Option<i64>) {
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

    fn walked(&mut self, day: Day, now: Timestamp, walk: Walk, walked: Walked) {
        let (Some(stroll), Some(survey)) = (self.strolls.get_mut(&walk.whose), &self.survey) else {
            return;
        };
        if let Some(settled) = walked.settled {
            stroll
                .stretches
                .looked_at(walk.above, settled, walked.until);
        }
        stroll.note(walked.until);
        match walked.last.filter(|_| walked.more) {
            Some(last) => stroll.above = last,
            None => {
                // Whatever comes after this look is no older than that.
                let soonest = walk.whole.map_or(survey.soonest_of_all, |_| survey.soonest);
                stroll.note(Some(now.after(soonest)));
                stroll.rests_until = stroll.soonest.take();
                stroll.above = before(day);
                self.round.done = Some(walk.whose);
            }
        }
    }
}

impl Stroll {
    fn begin(day: Day, whole: Option<Kept>) -> Stroll {
        Stroll {
            whole,
            above: before(day),
            stretches: Stretches::default(),
            soonest: None,
            rests_until: None,
        }
    }

    /// Where to look next.
    fn on(&mut self, now: Timestamp) -> Id {
        let (above, soonest) = self.stretches.passed(self.above, now);
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

/// Kept for no time at all.
const NOTHING: Kept = Kept {
    deliveries: Span::ZERO,
    payloads: Span::ZERO,
    attempts: Span::ZERO,
};

/// For as long as the more patient of two keeps each.
fn longest(one: Kept, other: &Kept) -> Kept {
    Kept {
        deliveries: one.deliveries.max(other.deliveries),
        payloads: one.payloads.max(other.payloads),
        attempts: one.attempts.max(other.attempts),
    }
}

fn before(day: Day) -> Id {
    Id(day.first_id().saturating_sub(1))
}

/// What a tenant keeps for a shorter time than what goes as a whole.
pub(super) fn early(kept: Kept, whole: Option<Kept>) -> Kept {
    let Some(whole) = whole else {
        return kept;
    };
    let than = |own: Span, whole: Span| if own < whole { own } else { WITH_ITS_DAY };
    Kept {
        deliveries: than(kept.deliveries, whole.deliveries),
        // What events carry lies with them, and goes alone.
        payloads: than(kept.payloads, whole.deliveries),
        attempts: than(kept.attempts, whole.attempts),
    }
}

#[cfg(test)]
mod tests;
