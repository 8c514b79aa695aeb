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
//!   together have [`MAX_SLOW`]. The rest is always there for those who answer.
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
/// How many slow zones are remembered.
const MAX_REMEMBERED: usize = 1_024;

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

#[derive(Default)]
struct Zone {
    /// When each of its lookups began.
    running: Vec<Instant>,
    /// Its last lookup was slow.
    was_slow: bool,
}

impl Zone {
    fn is_slow(&self, now: Instant) -> bool {
        let slow = |began: &Instant| now.duration_since(*began) >= SLOW_AFTER;
        self.was_slow || self.running.iter().any(slow)
    }
}

/// The lookups that run and those that wait.
pub(crate) struct Rota<L> {
    waiting: VecDeque<(String, L)>,
    zones: HashMap<String, Zone>,
    running: usize,
}

impl<L> Default for Rota<L> {
    fn default() -> Rota<L> {
        Rota {
            waiting: VecDeque::new(),
            zones: HashMap::new(),
            running: 0,
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
        if self.waiting.is_empty() || self.running >= MAX_RUNNING {
            return None;
        }
        let slow = self.zones.values().filter(|zone| zone.is_slow(now));
        let slow: usize = slow.map(|zone| zone.running.len()).sum();
        let may_begin = |(zone, _): &(String, L)| match self.zones.get(zone) {
            Some(zone) if zone.is_slow(now) => zone.running.is_empty() && slow < MAX_SLOW,
            Some(zone) => zone.running.len() < MAX_PER_ZONE,
            None => true,
        };
        let next = self.waiting.iter().position(may_begin)?;
        let (zone, lookup) = self.waiting.remove(next)?;
        self.zones
            .entry(zone.clone())
            .or_default()
            .running
            .push(now);
        self.running += 1;
        Some((zone, lookup))
    }

    /// A lookup that began at this time is over.
    pub(crate) fn end(&mut self, zone: &str, began: Instant, now: Instant) {
        let Some(entry) = self.zones.get_mut(zone) else {
            return;
        };
        let Some(place) = entry.running.iter().position(|other| *other == began) else {
            return;
        };
        entry.running.swap_remove(place);
        self.running -= 1;
        entry.was_slow = now.duration_since(began) >= SLOW_AFTER;
        if entry.running.is_empty() && !entry.was_slow {
            self.zones.remove(zone);
        } else if self.zones.len() > MAX_REMEMBERED + MAX_RUNNING {
            self.forget_one();
        }
    }

    /// Forgets a zone of which nothing runs. It is then a zone like any other.
    fn forget_one(&mut self) {
        let idle = |(name, zone): (&String, &Zone)| zone.running.is_empty().then(|| name.clone());
        if let Some(name) = self.zones.iter().find_map(idle) {
            self.zones.remove(&name);
        }
    }
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
        for lookup in 0..1_000 {
            rota.queue(&format!("{lookup}.example"), lookup);
        }
        assert_eq!(begin_all(&mut rota, now).len(), MAX_RUNNING);
        rota.end("3.example", now, now);
        assert_eq!(begin_all(&mut rota, now), [64]);
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
        assert!(rota.zones.len() <= MAX_REMEMBERED + MAX_RUNNING + 1);
        assert_eq!(rota.running, 0);
    }
}
