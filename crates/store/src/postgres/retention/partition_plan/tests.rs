//! Checks that the partition plans cause few reads and that nothing is deleted too early.

use super::*;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
const STEP: usize = 100;

fn kept(deliveries: u64, payloads: u64, attempts: u64) -> RetentionPeriods {
    RetentionPeriods {
        deliveries: Span::from_days(deliveries),
        payloads: Span::from_days(payloads),
        attempts: Span::from_days(attempts),
    }
}

#[test]
fn data_with_the_same_retention_is_deleted_with_its_partition() {
    let whole = Some(kept(30, 30, 7));
    let patient = early(kept(30, 30, 7), whole);
    assert_eq!(patient.shortest(), UNTIL_DAY_IS_DROPPED);
    let empties = early(kept(30, 2, 7), whole);
    assert_eq!(empties.payloads, Span::from_days(2));
    assert_eq!(empties.shortest(), Span::from_days(2));
    let hasty = early(kept(3, 3, 1), whole);
    assert_eq!(hasty, kept(3, 3, 1));
    // Nothing of a day that is delayed waits for the day.
    assert_eq!(early(kept(30, 30, 7), None), kept(30, 30, 7));
}

/// An event whose deliveries ended when it was accepted.
struct Event {
    tenant: i64,
    at: Timestamp,
    emptied: bool,
}

/// A simulated database that executes the tasks of the partition plans.
#[derive(Default)]
struct World {
    partition_plans: PartitionPlans,
    days: Vec<Day>,
    kept: BTreeMap<i64, RetentionPeriods>,
    events: BTreeMap<Id, Event>,
    /// Numbers of tenants and events that were read, and of tasks that were requested.
    read: usize,
    asked: usize,
    /// Events that were read although nothing of them expires before their day.
    strangers: usize,
    /// Numbers of deleted events and of deleted payloads.
    gone: usize,
    emptied: usize,
}

impl World {
    /// Creates this number of days, each with this number of events of every tenant.
    fn new(days: u64, each: u64, kept: &[RetentionPeriods]) -> World {
        let mut world = World::default();
        for (place, kept) in kept.iter().enumerate() {
            world.kept.insert(place as i64 + 1, *kept);
        }
        let mut number = 0;
        for day in 0..days {
            world.days.push(Day::at(Timestamp(day * DAY)));
            for n in 0..each {
                for tenant in world.kept.keys() {
                    number += 1;
                    let at = Timestamp(day * DAY + n * (DAY / each));
                    let event = Event {
                        tenant: *tenant,
                        at,
                        emptied: false,
                    };
                    let id = Id((u128::from(at.0) << 80) + number);
                    world.events.insert(id, event);
                }
            }
        }
        world
    }

    fn of_day(&self, day: Day) -> impl Iterator<Item = (&Id, &Event)> {
        self.events
            .range(Id(day.first_id())..Id(day.next().first_id()))
    }

    /// Runs a retention run at each interval from one time to another.
    fn rounds(&mut self, from: u64, to: u64, every: u64) {
        for now in (from..to).step_by(every as usize).map(Timestamp) {
            for day in self.days.clone() {
                if day.begins() <= now && !self.partition_plans.can_skip(day, now) {
                    self.turn(day, now);
                }
            }
        }
    }

    fn turn(&mut self, day: Day, now: Timestamp) {
        loop {
            self.asked += 1;
            match self.partition_plans.next(day, now) {
                Task::Survey { above } => {
                    let tenants = self.of_day(day).filter(|(_, it)| it.at <= now);
                    let mut tenants: Vec<i64> = tenants.map(|(_, it)| it.tenant).collect();
                    tenants.sort_unstable();
                    tenants.dedup();
                    tenants.retain(|no| *no > above);
                    let more = tenants.len() > STEP;
                    tenants.truncate(STEP);
                    self.read += tenants.len();
                    let above = tenants.last().copied().filter(|_| more);
                    let found = tenants.iter().map(|no| (*no, self.kept[no])).collect();
                    self.partition_plans.surveyed(day, found, above);
                }
                Task::Drop { longest } => {
                    let own = |it: &Event| self.kept[&it.tenant].deliveries;
                    let over = |it: &Event| has_expired(it.at, own(it), now);
                    assert!(self.of_day(day).all(|(_, it)| over(it)), "too early");
                    assert!(
                        self.kept
                            .values()
                            .all(|it| longest.deliveries >= it.deliveries)
                    );
                    let gone: Vec<Id> = self.of_day(day).map(|(id, _)| *id).collect();
                    self.gone += gone.len();
                    for id in &gone {
                        self.events.remove(id);
                    }
                    self.days.retain(|it| *it != day);
                    return self.partition_plans.forget_day(day);
                }
                Task::DropAttempts { .. } => {}
                Task::ScanStep(scan_step) => {
                    let scanned = self.scan_step(day, now, scan_step);
                    self.partition_plans.scanned(day, now, scan_step, scanned);
                }
                Task::Idle => return,
            }
        }
    }

    fn scan_step(&mut self, day: Day, now: Timestamp, scan_step: ScanStep) -> ScanResult {
        let mine = |it: &Event| match scan_step.scope {
            ScanScope::AllTenants => true,
            ScanScope::Tenant(no) => it.tenant == no,
        };
        let there = self
            .events
            .range(Id(scan_step.above.0 + 1)..Id(day.next().first_id()));
        let there = there.filter(|(_, it)| it.at <= now && mine(it));
        let examined: Vec<Id> = there.map(|(id, _)| *id).take(STEP).collect();
        self.read += examined.len();
        let mut until = None::<Timestamp>;
        for id in &examined {
            let event = self.events.get_mut(id).expect("it is there");
            let kept = early(self.kept[&event.tenant], scan_step.whole);
            self.strangers += usize::from(kept.shortest() == UNTIL_DAY_IS_DROPPED);
            if has_expired(event.at, kept.deliveries, now) {
                self.events.remove(id);
                self.gone += 1;
                continue;
            }
            if !event.emptied && has_expired(event.at, kept.payloads, now) {
                event.emptied = true;
                self.emptied += 1;
            }
            let mut next = event.at.after(kept.deliveries);
            if !event.emptied {
                next = next.min(event.at.after(kept.payloads));
            }
            until = Some(until.map_or(next, |until| until.min(next)));
        }
        let settled = Timestamp(now.0.saturating_sub(MAX_CLOCK_LAG.as_millis()));
        let is_settled = |id: &&Id| self.events.get(*id).is_none_or(|it| it.at < settled);
        ScanResult {
            last: examined.last().copied(),
            settled: examined.iter().rev().find(is_settled).copied(),
            more: examined.len() == STEP,
            until,
        }
    }
}

/// Number of events on a day of [`work_is_proportional_to_the_deleted_rows`].
const A_DAY: u64 = 9_600;

#[test]
fn work_is_proportional_to_the_deleted_rows() {
    for (tenants, days) in [(1, 2), (20, 2), (400, 2), (400, 8)] {
        // Half of the tenants keep everything longer than the others. All delete payloads before events.
        let kept: Vec<RetentionPeriods> = (0..tenants)
            .map(|no| {
                if no % 2 == 0 {
                    kept(9, 2, 9)
                } else {
                    kept(4, 1, 4)
                }
            })
            .collect();
        let mut world = World::new(days, A_DAY / tenants, &kept);
        let all = world.events.len();
        world.rounds(0, (days + 12) * DAY, HOUR / 6);
        assert_eq!((world.gone, world.emptied), (all, all), "in the end");
        let done = world.gone + world.emptied;
        let (read, asked) = (world.read, world.asked);
        assert!(
            read <= 6 * done,
            "{tenants}, {days}: {read} read for {done}"
        );
        // One task per hundred events, or one every ten minutes.
        let looks = done / STEP + 144 * 9 * days as usize;
        assert!(
            asked <= 2 * looks,
            "{tenants}, {days}: {asked} asked, {looks}"
        );
    }
}

#[test]
fn nothing_is_queried_where_nothing_can_expire() {
    let mut world = World::new(20, 2, &[kept(90, 90, 90); 100]);
    world.rounds(30 * DAY, 30 * DAY + HOUR, HOUR);
    let (asked, read) = (world.asked, world.read);
    assert_eq!(read, 20 * 100, "each day is surveyed once");
    world.rounds(30 * DAY + HOUR, 89 * DAY, HOUR);
    assert_eq!((world.asked, world.read), (asked, read));
    world.rounds(89 * DAY, 120 * DAY, HOUR);
    assert_eq!(world.gone, 20 * 100 * 2);
    assert_eq!(world.read, 2 * read, "and once more before it goes");
}

#[test]
fn tenants_with_shorter_retention_are_found_individually() {
    let mut tenants = vec![kept(90, 90, 90); 200];
    tenants[70] = kept(3, 3, 3);
    tenants[90] = kept(3, 1, 3);
    let mut world = World::new(1, 96, &tenants);
    world.rounds(2 * DAY, 9 * DAY, HOUR / 6);
    assert_eq!((world.gone, world.emptied), (2 * 96, 96));
    // The other tenants have a hundred times as many events, and none of them is read.
    assert_eq!(world.strangers, 0);
}

#[test]
fn a_retention_change_takes_effect_at_once() {
    let mut world = World::new(1, 4, &[kept(5, 5, 5), kept(5, 5, 5)]);
    world.rounds(DAY, 5 * DAY, HOUR);
    assert_eq!((world.gone, world.emptied), (0, 0));
    // A shorter retention takes effect without waiting for the day to be dropped.
    world.kept.insert(2, kept(5, 1, 5));
    world.partition_plans.policies_changed(&[kept(5, 1, 5)]);
    world.rounds(5 * DAY, 5 * DAY + HOUR, HOUR);
    assert_eq!(world.emptied, 4);
    // A longer retention takes effect although the day was about to be dropped.
    world.kept.insert(1, kept(8, 8, 8));
    world.partition_plans.policies_changed(&[kept(8, 8, 8)]);
    world.rounds(6 * DAY, 7 * DAY, HOUR);
    assert_eq!(world.gone, 4, "only the other's went");
    world.rounds(9 * DAY, 10 * DAY, HOUR);
    assert_eq!(world.gone, 8);
}

#[test]
fn constant_retention_changes_do_not_prevent_deletion() {
    let mut world = World::new(1, 4, &[kept(5, 1, 5); 350]);
    let day = world.days[0];
    for hour in 24..60 {
        let now = Timestamp(hour * HOUR);
        for _ in 0..60 {
            world.partition_plans.policies_changed(&[kept(5, 1, 5)]);
            world.asked += 1;
            match world.partition_plans.next(day, now) {
                Task::Survey { above } => {
                    let tenants: Vec<i64> = (above + 1..=350).take(STEP).collect();
                    let found = tenants.iter().map(|no| (*no, world.kept[no])).collect();
                    let above = tenants.last().copied().filter(|last| *last < 350);
                    world.partition_plans.surveyed(day, found, above);
                }
                Task::ScanStep(scan_step) => {
                    let scanned = world.scan_step(day, now, scan_step);
                    world.partition_plans.scanned(day, now, scan_step, scanned);
                }
                Task::Drop { .. } | Task::DropAttempts { .. } | Task::Idle => {}
            }
        }
    }
    assert_eq!(world.emptied, 4 * 350);
}

#[test]
fn memory_is_bounded() {
    let mut partition_plans = PartitionPlans::default();
    let now = Timestamp(1_000 * DAY);
    for day in (0..30).map(|day| Day::at(Timestamp(day * DAY))) {
        assert_eq!(partition_plans.next(day, now), Task::Survey { above: 0 });
        let found = (1..=20).map(|no| (no, kept(if no < 10 { 5_000 } else { 9_000 }, 1, 1)));
        partition_plans.surveyed(day, found.collect(), None);
        for step in 0..9_000_u64 {
            let Task::ScanStep(scan_step) = partition_plans.next(day, now) else {
                continue;
            };
            let last = Some(Id(scan_step.above.0 + 1));
            let scanned = ScanResult {
                last,
                settled: last,
                more: true,
                until: Some(now.after(Span::from_hours(step))),
            };
            partition_plans.scanned(day, now, scan_step, scanned);
        }
        assert!(partition_plans.skip_range_count() <= MAX_SKIP_RANGES);
    }
}

#[test]
fn a_partition_is_not_dropped_after_its_retention_was_extended() {
    let (day, now) = (Day::at(Timestamp(0)), Timestamp(7 * DAY));
    for policies in [kept(5, 5, 5), kept(8, 8, 8)] {
        let mut partition_plans = PartitionPlans::default();
        assert_eq!(partition_plans.next(day, now), Task::Survey { above: 0 });
        partition_plans.surveyed(day, vec![(1, kept(5, 5, 5))], None);
        partition_plans.policies_changed(&[policies]);
        let goes = matches!(partition_plans.next(day, now), Task::Drop { .. });
        assert_eq!(goes, policies == kept(5, 5, 5));
    }
}
