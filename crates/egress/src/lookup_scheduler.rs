//! Lookup scheduler: chooses which host name is resolved next.
//!
//! The system's resolver blocks a thread while a name's servers do not answer, and tenants choose the names. So
//! [`LookupScheduler`] divides the lookup slots by *zone*, the registered part of a name (`customer.com` of
//! `a.hooks.customer.com`). The servers of a zone are what makes a lookup slow, for every tenant and every name
//! in it. A limit per tenant or endpoint would not help: an attacker can create a thousand endpoints, and names
//! within an own zone are free.
//!
//! - A zone has at most [`MAX_PER_ZONE`] slots, so that no zone can take all of them.
//! - A zone whose last lookup was slow, or that has a slow one running, has one slot until it answers promptly
//!   again. All slow zones together have [`MAX_SLOW`] slots.
//! - Slow zones and zones without history together have [`MAX_UNPROVEN`] slots. So an attacker with many new
//!   zones cannot take the slots that remain for zones that answered promptly the last time. To take those as
//!   well, each zone would have to answer promptly before every time that it does not.
//! - Within these limits, lookups start in the order of arrival.
//!
//! Two customers of one hosting company share a zone, and its servers too. Public registries that look like a
//! zone, such as `co.uk`, are recognised by a short list. Where the list is wrong, unrelated tenants share 4 slots;
//! it has no other effect.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of concurrent lookups.
pub(crate) const MAX_RUNNING: usize = 64;
/// Maximum number of concurrent lookups in one zone.
pub(crate) const MAX_PER_ZONE: usize = 4;
/// Maximum number of concurrent lookups in all slow zones together.
pub(crate) const MAX_SLOW: usize = 32;
/// Duration from which a lookup counts as slow. Resolvers repeat a query after 5 seconds, some after 3.
pub(crate) const SLOW_AFTER: Duration = Duration::from_secs(2);
/// Maximum number of concurrent lookups in all slow zones and all zones without history together.
pub(crate) const MAX_UNPROVEN: usize = 48;
/// Maximum number of zones with a stored history.
const MAX_REMEMBERED: usize = 4_096;

/// Second-level labels that are public registries in many countries, such as `co` in `co.uk`.
const REGISTRIES: [&str; 14] = [
    "ac", "co", "com", "edu", "go", "gob", "gov", "gv", "ltd", "ne", "net", "or", "org", "sch",
];

/// Returns the registered part of a name.
pub(crate) fn zone(name: &str) -> &str {
    let mut dots = name.rmatch_indices('.').map(|(at, _)| at);
    let (last, second) = (dots.next(), dots.next());
    let Some(last) = last else {
        return name;
    };
    let label = &name[second.map_or(0, |at| at + 1)..last];
    let is_registry = name.len() - last == ".uk".len() && REGISTRIES.contains(&label);
    let before = if is_registry { dots.next() } else { second };
    before.map_or(name, |at| &name[at + 1..])
}

/// The speed of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ZoneSpeed {
    /// No lookup yet, or its history was discarded.
    Unknown,
    /// The last lookup was prompt.
    Prompt,
    /// The last lookup was slow, or a running one is.
    Slow,
}

/// The result of a zone's last lookup.
struct ZoneHistory {
    repute: ZoneSpeed,
    at: Instant,
}

/// The running and the waiting lookups.
pub(crate) struct LookupScheduler<L> {
    waiting: VecDeque<(String, L)>,
    /// Start times of the running lookups of each zone.
    running: HashMap<String, Vec<Instant>>,
    remembered: HashMap<String, ZoneHistory>,
}

impl<L> Default for LookupScheduler<L> {
    fn default() -> LookupScheduler<L> {
        LookupScheduler {
            waiting: VecDeque::new(),
            running: HashMap::new(),
            remembered: HashMap::new(),
        }
    }
}

impl<L> LookupScheduler<L> {
    /// Enqueues a lookup in a zone.
    pub(crate) fn enqueue(&mut self, zone: &str, lookup: L) {
        self.waiting.push_back((zone.to_owned(), lookup));
    }

    /// Removes the waiting lookups for which `is_wanted` returns false.
    pub(crate) fn retain_waiting(&mut self, mut is_wanted: impl FnMut(&L) -> bool) {
        self.waiting.retain(|(_, lookup)| is_wanted(lookup));
    }

    /// Returns true if no lookup waits.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the next lookup that may start, with its zone, and counts it as running.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<(String, L)> {
        if self.waiting.is_empty() {
            return None;
        }
        let (mut running, mut slow, mut unproven) = (0, 0, 0);
        for (zone, lookups) in &self.running {
            let count = lookups.len();
            running += count;
            match self.zone_speed(zone, now) {
                ZoneSpeed::Prompt => {}
                ZoneSpeed::Unknown => unproven += count,
                ZoneSpeed::Slow => {
                    slow += count;
                    unproven += count;
                }
            }
        }
        if running >= MAX_RUNNING {
            return None;
        }
        let may_begin = |(zone, _): &(String, L)| {
            let count = self.running.get(zone).map_or(0, Vec::len);
            match self.zone_speed(zone, now) {
                ZoneSpeed::Prompt => count < MAX_PER_ZONE,
                ZoneSpeed::Unknown => count < MAX_PER_ZONE && unproven < MAX_UNPROVEN,
                ZoneSpeed::Slow => count == 0 && slow < MAX_SLOW && unproven < MAX_UNPROVEN,
            }
        };
        let next = self.waiting.iter().position(may_begin)?;
        let (zone, lookup) = self.waiting.remove(next)?;
        self.running.entry(zone.clone()).or_default().push(now);
        Some((zone, lookup))
    }

    /// Records the end of a lookup that started at `began`.
    pub(crate) fn end(&mut self, zone: &str, began: Instant, now: Instant) {
        let Some(lookups) = self.running.get_mut(zone) else {
            return;
        };
        let Some(index) = lookups.iter().position(|other| *other == began) else {
            return;
        };
        lookups.swap_remove(index);
        if lookups.is_empty() {
            self.running.remove(zone);
        }
        let repute = match is_slow(began, now) {
            true => ZoneSpeed::Slow,
            false => ZoneSpeed::Prompt,
        };
        let memory = ZoneHistory { repute, at: now };
        self.remembered.insert(zone.to_owned(), memory);
        if self.remembered.len() > MAX_REMEMBERED {
            self.forget_one();
        }
    }

    fn zone_speed(&self, zone: &str, now: Instant) -> ZoneSpeed {
        let lookups = self.running.get(zone).into_iter().flatten();
        if lookups.copied().any(|began| is_slow(began, now)) {
            return ZoneSpeed::Slow;
        }
        let memory = self.remembered.get(zone);
        memory.map_or(ZoneSpeed::Unknown, |memory| memory.repute)
    }

    /// Discards the history of the zone whose last lookup is the oldest. It counts as unknown afterwards.
    fn forget_one(&mut self) {
        let oldest = self.remembered.iter().min_by_key(|(_, memory)| memory.at);
        if let Some(zone) = oldest.map(|(zone, _)| zone.clone()) {
            self.remembered.remove(&zone);
        }
    }
}

fn is_slow(began: Instant, now: Instant) -> bool {
    now.duration_since(began) >= SLOW_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_the_registered_part_of_a_name() {
        for (name, expected) in [
            ("customer.com", "customer.com"),
            ("a.b.customer.com", "customer.com"),
            ("customer.co.uk", "customer.co.uk"),
            ("a.customer.co.uk", "customer.co.uk"),
            ("co.uk", "co.uk"),
            ("a.abc.io", "abc.io"),
            ("com.example", "com.example"),
            ("a.com.example", "com.example"),
            ("single", "single"),
            ("", ""),
        ] {
            assert_eq!(zone(name), expected, "{name}");
        }
    }

    /// Starts all lookups that may start.
    fn begin_all(scheduler: &mut LookupScheduler<u32>, now: Instant) -> Vec<u32> {
        std::iter::from_fn(|| scheduler.begin(now).map(|(_, lookup)| lookup)).collect()
    }

    #[test]
    fn one_zone_has_few_slots_and_does_not_delay_others() {
        let now = Instant::now();
        let mut scheduler = LookupScheduler::default();
        for lookup in 0..1_000 {
            scheduler.enqueue("tarpit.example", lookup);
        }
        scheduler.enqueue("prompt.example", 1_000);
        assert_eq!(begin_all(&mut scheduler, now), [0, 1, 2, 3, 1_000]);
        scheduler.end("tarpit.example", now, now);
        assert_eq!(begin_all(&mut scheduler, now), [4]);
    }

    #[test]
    fn the_number_of_running_lookups_is_bounded() {
        let now = Instant::now();
        let mut scheduler = LookupScheduler::default();
        for nth in 0..100 {
            prove(&mut scheduler, &format!("{nth}.example"), now);
        }
        for lookup in 0..100 {
            scheduler.enqueue(&format!("{lookup}.example"), lookup);
        }
        assert_eq!(begin_all(&mut scheduler, now).len(), MAX_RUNNING);
        scheduler.end("3.example", now, now);
        assert_eq!(begin_all(&mut scheduler, now), [64]);
    }

    /// Makes a zone answer promptly once.
    fn prove(scheduler: &mut LookupScheduler<u32>, zone: &str, now: Instant) {
        scheduler.enqueue(zone, u32::MAX);
        assert_eq!(begin_all(scheduler, now), [u32::MAX]);
        scheduler.end(zone, now, now);
    }

    #[test]
    fn many_new_zones_leave_slots_for_proven_ones() {
        let began = Instant::now();
        let mut scheduler = LookupScheduler::default();
        prove(&mut scheduler, "prompt.example", began);
        for nth in 0..1_000 {
            scheduler.enqueue(&format!("{nth}.example"), nth);
        }
        assert_eq!(begin_all(&mut scheduler, began).len(), MAX_UNPROVEN);
        for now in [began, began + SLOW_AFTER, began + 10 * SLOW_AFTER] {
            scheduler.enqueue("prompt.example", 1_000);
            assert_eq!(begin_all(&mut scheduler, now), [1_000]);
            scheduler.end("prompt.example", now, now);
        }
        // The remaining slots are only for zones that answered promptly.
        scheduler.enqueue("prompt.example", 1_001);
        assert_eq!(begin_all(&mut scheduler, began), [1_001]);
        scheduler.end("prompt.example", began, began + SLOW_AFTER);
        scheduler.enqueue("prompt.example", 1_002);
        assert!(begin_all(&mut scheduler, began + SLOW_AFTER).is_empty());
    }

    #[test]
    fn slow_zones_leave_slots_for_others() {
        let began = Instant::now();
        let now = began + SLOW_AFTER;
        let mut scheduler = LookupScheduler::default();
        let tarpits: Vec<String> = (0..200).map(|n| format!("{n}.example")).collect();
        // One slow lookup in each zone.
        for tarpit in &tarpits {
            scheduler.enqueue(tarpit, 0);
            assert_eq!(begin_all(&mut scheduler, began), [0]);
            scheduler.end(tarpit, began, now);
        }
        for tarpit in &tarpits {
            scheduler.enqueue(tarpit, 1);
            scheduler.enqueue(tarpit, 2);
        }
        assert_eq!(begin_all(&mut scheduler, now), [1; MAX_SLOW]);
        scheduler.enqueue("prompt.example", 3);
        assert_eq!(begin_all(&mut scheduler, now), [3]);
        // A zone that answers promptly again is treated like any other.
        scheduler.end(&tarpits[0], now, now);
        scheduler.enqueue(&tarpits[0], 4);
        assert!(begin_all(&mut scheduler, now).ends_with(&[4]));
    }

    #[test]
    fn a_long_running_lookup_makes_its_zone_slow() {
        let began = Instant::now();
        let mut scheduler = LookupScheduler::default();
        scheduler.enqueue("tarpit.example", 0);
        assert_eq!(begin_all(&mut scheduler, began), [0]);
        scheduler.enqueue("tarpit.example", 1);
        assert!(begin_all(&mut scheduler, began + SLOW_AFTER).is_empty());
    }

    #[test]
    fn the_history_of_zones_is_bounded() {
        let began = Instant::now();
        let mut scheduler = LookupScheduler::default();
        for nth in 0..5_000 {
            let zone = format!("{nth}.example");
            scheduler.enqueue(&zone, nth);
            assert_eq!(begin_all(&mut scheduler, began), [nth]);
            scheduler.end(&zone, began, began + SLOW_AFTER);
        }
        assert_eq!(scheduler.remembered.len(), MAX_REMEMBERED);
        assert!(scheduler.running.is_empty());
    }
}
