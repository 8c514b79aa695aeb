//! Who is looked up next.
//!
//! The system's resolver blocks a thread for as long as a name's servers keep silent, and strangers
//! choose the names. Places are therefore shared out by *zone*, the part of a name that somebody
//! registered (`customer.com` of `a.hooks.customer.com`), because a zone's servers are what makes a
//! lookup slow, whoever asks and for however many of its names. Sharing by tenant or endpoint would not
//! do: one who means harm has a thousand endpoints, and names cost nothing below a zone of one's own.
//!
//! - A zone has at most [`MAX_PER_ZONE`] places, so that none can take them all.
//! - A zone that was seen to be slow has one, until it answers promptly again, and all such zones
//!   together have [`MAX_SLOW`].
//! - Those, and the zones of which nothing is known yet, together have [`MAX_UNPROVEN`]: whoever
//!   registers new zones by the dozen finds the rest kept for those that answered promptly the last
//!   time. To take that as well, each zone has to answer promptly before every time that it does not.
//! - Within these bounds, first come, first served.
//!
//! Two customers of one hosting company share a zone, and its servers too. What looks like a zone but
//! is a registry, such as `co.uk`, is told by a short list; where the list is wrong, strangers share
//! four places, and nothing worse happens.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// How many lookups run at once.
pub(crate) const MAX_RUNNING: usize = 64;
/// How many of them in one zone.
pub(crate) const MAX_PER_ZONE: usize = 4;
/// How many of them in all the zones that are slow.
pub(crate) const MAX_SLOW: usize = 32;
/// From when on a lookup is slow. Resolvers ask again after five seconds, some after three.
pub(crate) const SLOW_AFTER: Duration = Duration::from_secs(2);
/// How many of them in all the zones that have not shown to be prompt.
pub(crate) const MAX_UNPROVEN: usize = 48;
/// How many zones are remembered.
const MAX_REMEMBERED: usize = 4_096;

/// Labels below a country's that are registries and no zones of anybody's.
const REGISTRIES: [&str; 14] = [
    "ac", "co", "com", "edu", "go", "gob", "gov", "gv", "ltd", "ne", "net", "or", "org", "sch",
];

/// The part of a name that somebody registered.
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

/// What is known of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repute {
    /// Nothing yet, or nothing any more.
    Unknown,
    /// It answered promptly the last time.
    Prompt,
    /// It did not, or is not doing so now.
    Slow,
}

/// How a zone answered the last time.
struct Memory {
    repute: Repute,
    at: Instant,
}

/// The lookups that run and those that wait.
pub(crate) struct Rota<L> {
    waiting: VecDeque<(String, L)>,
    /// When each lookup of a zone began.
    running: HashMap<String, Vec<Instant>>,
    remembered: HashMap<String, Memory>,
}

impl<L> Default for Rota<L> {
    fn default() -> Rota<L> {
        Rota {
            waiting: VecDeque::new(),
            running: HashMap::new(),
            remembered: HashMap::new(),
        }
    }
}

impl<L> Rota<L> {
    /// Queues a lookup in a zone.
    pub(crate) fn queue(&mut self, zone: &str, lookup: L) {
        self.waiting.push_back((zone.to_owned(), lookup));
    }

    /// Strikes out the waiting lookups that `is_wanted` does not want.
    pub(crate) fn strike(&mut self, mut is_wanted: impl FnMut(&L) -> bool) {
        self.waiting.retain(|(_, lookup)| is_wanted(lookup));
    }

    /// Whether nobody waits.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next lookup that may begin, and its zone. It has then begun.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<(String, L)> {
        if self.waiting.is_empty() {
            return None;
        }
        let (mut running, mut slow, mut unproven) = (0, 0, 0);
        for (zone, lookups) in &self.running {
            let count = lookups.len();
            running += count;
            match self.repute(zone, now) {
                Repute::Prompt => {}
                Repute::Unknown => unproven += count,
                Repute::Slow => {
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
            match self.repute(zone, now) {
                Repute::Prompt => count < MAX_PER_ZONE,
                Repute::Unknown => count < MAX_PER_ZONE && unproven < MAX_UNPROVEN,
                Repute::Slow => count == 0 && slow < MAX_SLOW && unproven < MAX_UNPROVEN,
            }
        };
        let next = self.waiting.iter().position(may_begin)?;
        let (zone, lookup) = self.waiting.remove(next)?;
        self.running.entry(zone.clone()).or_default().push(now);
        Some((zone, lookup))
    }

    /// A lookup that began at this time is over.
    pub(crate) fn end(&mut self, zone: &str, began: Instant, now: Instant) {
        let Some(lookups) = self.running.get_mut(zone) else {
            return;
        };
        let Some(place) = lookups.iter().position(|other| *other == began) else {
            return;
        };
        lookups.swap_remove(place);
        if lookups.is_empty() {
            self.running.remove(zone);
        }
        let repute = match is_slow(began, now) {
            true => Repute::Slow,
            false => Repute::Prompt,
        };
        let memory = Memory { repute, at: now };
        self.remembered.insert(zone.to_owned(), memory);
        if self.remembered.len() > MAX_REMEMBERED {
            self.forget_one();
        }
    }

    fn repute(&self, zone: &str, now: Instant) -> Repute {
        let lookups = self.running.get(zone).into_iter().flatten();
        if lookups.copied().any(|began| is_slow(began, now)) {
            return Repute::Slow;
        }
        let memory = self.remembered.get(zone);
        memory.map_or(Repute::Unknown, |memory| memory.repute)
    }

    /// Forgets the zone that was not asked for the longest. It is then a zone like any other.
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
    fn a_zone_is_what_somebody_registered() {
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

    /// Begins whatever may begin.
    fn begin_all(rota: &mut Rota<u32>, now: Instant) -> Vec<u32> {
        std::iter::from_fn(|| rota.begin(now).map(|(_, lookup)| lookup)).collect()
    }

    #[test]
    fn one_zone_has_a_few_places_and_keeps_nobody_waiting() {
        let now = Instant::now();
        let mut rota = Rota::default();
        for lookup in 0..1_000 {
            rota.queue("tarpit.example", lookup);
        }
        rota.queue("prompt.example", 1_000);
        assert_eq!(begin_all(&mut rota, now), [0, 1, 2, 3, 1_000]);
        rota.end("tarpit.example", now, now);
        assert_eq!(begin_all(&mut rota, now), [4]);
    }

    #[test]
    fn there_are_only_so_many_places() {
        let now = Instant::now();
        let mut rota = Rota::default();
        for nth in 0..100 {
            prove(&mut rota, &format!("{nth}.example"), now);
        }
        for lookup in 0..100 {
            rota.queue(&format!("{lookup}.example"), lookup);
        }
        assert_eq!(begin_all(&mut rota, now).len(), MAX_RUNNING);
        rota.end("3.example", now, now);
        assert_eq!(begin_all(&mut rota, now), [64]);
    }

    /// A zone answers promptly.
    fn prove(rota: &mut Rota<u32>, zone: &str, now: Instant) {
        rota.queue(zone, u32::MAX);
        assert_eq!(begin_all(rota, now), [u32::MAX]);
        rota.end(zone, now, now);
    }

    #[test]
    fn new_zones_by_the_dozen_leave_room_for_those_that_answer() {
        let began = Instant::now();
        let mut rota = Rota::default();
        prove(&mut rota, "prompt.example", began);
        for nth in 0..1_000 {
            rota.queue(&format!("{nth}.example"), nth);
        }
        assert_eq!(begin_all(&mut rota, began).len(), MAX_UNPROVEN);
        for now in [began, began + SLOW_AFTER, began + 10 * SLOW_AFTER] {
            rota.queue("prompt.example", 1_000);
            assert_eq!(begin_all(&mut rota, now), [1_000]);
            rota.end("prompt.example", now, now);
        }
        // It is kept for those that answer, and for no others.
        rota.queue("prompt.example", 1_001);
        assert_eq!(begin_all(&mut rota, began), [1_001]);
        rota.end("prompt.example", began, began + SLOW_AFTER);
        rota.queue("prompt.example", 1_002);
        assert!(begin_all(&mut rota, began + SLOW_AFTER).is_empty());
    }

    #[test]
    fn slow_zones_leave_room_for_the_others() {
        let began = Instant::now();
        let now = began + SLOW_AFTER;
        let mut rota = Rota::default();
        let tarpits: Vec<String> = (0..200).map(|n| format!("{n}.example")).collect();
        // Each is found out once.
        for tarpit in &tarpits {
            rota.queue(tarpit, 0);
            assert_eq!(begin_all(&mut rota, began), [0]);
            rota.end(tarpit, began, now);
        }
        for tarpit in &tarpits {
            rota.queue(tarpit, 1);
            rota.queue(tarpit, 2);
        }
        assert_eq!(begin_all(&mut rota, now), [1; MAX_SLOW]);
        rota.queue("prompt.example", 3);
        assert_eq!(begin_all(&mut rota, now), [3]);
        // One that answers promptly is as good as any other.
        rota.end(&tarpits[0], now, now);
        rota.queue(&tarpits[0], 4);
        assert!(begin_all(&mut rota, now).ends_with(&[4]));
    }

    #[test]
    fn a_lookup_that_is_still_running_is_known_to_be_slow() {
        let began = Instant::now();
        let mut rota = Rota::default();
        rota.queue("tarpit.example", 0);
        assert_eq!(begin_all(&mut rota, began), [0]);
        rota.queue("tarpit.example", 1);
        assert!(begin_all(&mut rota, began + SLOW_AFTER).is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let began = Instant::now();
        let mut rota = Rota::default();
        for nth in 0..5_000 {
            let zone = format!("{nth}.example");
            rota.queue(&zone, nth);
            assert_eq!(begin_all(&mut rota, began), [nth]);
            rota.end(&zone, began, began + SLOW_AFTER);
        }
        assert_eq!(rota.remembered.len(), MAX_REMEMBERED);
        assert!(rota.running.is_empty());
    }
}
