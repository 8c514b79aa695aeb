//! Idempotent event ingestion: the same idempotency key makes one event.
//!
//! An application that did not receive an answer sends the event again. With the same idempotency key and the same
//! content it is the same event. With other content it is an error of the application, which is reported.
//! [`plan`] decides about the events of one request. Both stores and the simulator use it.

use std::collections::HashMap;
use std::hash::Hash;

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

/// A hash of the content of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; SHA256_OUTPUT_LEN]);

impl Fingerprint {
    /// Returns the fingerprint of an event that consists of these parts, in this order.
    pub fn of(parts: &[&[u8]]) -> Fingerprint {
        let mut context = Context::new(&SHA256);
        for part in parts {
            // The length goes first, so that two different lists of parts never give the same bytes.
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(context.finish().as_ref());
        Fingerprint(bytes)
    }

    /// Returns the fingerprint as it is stored.
    pub fn as_bytes(&self) -> &[u8; SHA256_OUTPUT_LEN] {
        &self.0
    }

    /// Restores a stored fingerprint.
    pub fn from_bytes(bytes: [u8; SHA256_OUTPUT_LEN]) -> Fingerprint {
        Fingerprint(bytes)
    }
}

/// The decision about one event of a request. `T` names a stored event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventDecision<T> {
    /// Store it.
    Store,
    /// It is stored already.
    Stored(T),
    /// It is the same event as the one at this index of the request, which is new or stored already.
    SameAs(usize),
}

impl<T> EventDecision<T> {
    /// Returns whether the event is new.
    pub fn is_new(&self) -> bool {
        matches!(self, EventDecision::Store)
    }
}

/// The decisions about the events of a request, or the indexes of those whose key is used for another event.
pub type AcceptPlan<T> = Result<Vec<EventDecision<T>>, Vec<usize>>;

/// Decides about every event of a request by its idempotency key and its content. Events without a key are new.
/// `stored_under` returns the event that is stored under a key.
pub fn plan<K: Copy + Eq + Hash, T, E>(
    events: impl IntoIterator<Item = Option<(K, Fingerprint)>>,
    mut stored_under: impl FnMut(K) -> Result<Option<(T, Fingerprint)>, E>,
) -> Result<AcceptPlan<T>, E> {
    let mut plans = Vec::new();
    let mut conflicts = Vec::new();
    // Each key is looked up once, however often a request repeats it.
    let mut earlier: HashMap<K, (usize, Fingerprint)> = HashMap::new();
    for (index, event) in events.into_iter().enumerate() {
        let Some((key, offered)) = event else {
            plans.push(EventDecision::Store);
            continue;
        };
        let (decision, content) = if let Some((first, content)) = earlier.get(&key) {
            (EventDecision::SameAs(*first), *content)
        } else if let Some((stored, content)) = stored_under(key)? {
            earlier.insert(key, (index, content));
            (EventDecision::Stored(stored), content)
        } else {
            earlier.insert(key, (index, offered));
            (EventDecision::Store, offered)
        };
        if content != offered {
            conflicts.push(index);
        }
        plans.push(decision);
    }
    Ok(if conflicts.is_empty() {
        Ok(plans)
    } else {
        Err(conflicts)
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn the_same_key_makes_one_event() {
        let paid = Fingerprint::of(&[b"invoice.paid", b"{}"]);
        let sent = Fingerprint::of(&[b"invoice.sent", b"{}"]);
        let decide = |events: &[Option<(&str, Fingerprint)>]| {
            let stored = |key: &str| Ok::<_, Infallible>((key == "old").then_some((7, paid)));
            let Ok(plan) = plan(events.iter().copied(), stored);
            plan
        };
        let (new, first) = (EventDecision::Store, EventDecision::SameAs(0));
        assert_eq!(decide(&[None, None]), Ok(vec![new, new]));
        let old = EventDecision::Stored(7);
        assert_eq!(decide(&[Some(("old", paid))]), Ok(vec![old]));
        let (old_paid, old_sent) = (Some(("old", paid)), Some(("old", sent)));
        assert_eq!(
            decide(&[None, old_paid, old_paid]),
            Ok(vec![new, old, EventDecision::SameAs(1)])
        );
        assert_eq!(decide(&[old_paid, old_sent, old_sent]), Err(vec![1, 2]));
        assert_eq!(decide(&[Some(("old", sent)), None]), Err(vec![0]));
        let (a_paid, a_sent) = (Some(("a", paid)), Some(("a", sent)));
        assert_eq!(decide(&[a_paid, None, a_paid]), Ok(vec![new, new, first]));
        assert_eq!(decide(&[a_paid, a_sent, a_sent]), Err(vec![1, 2]));
    }

    #[test]
    fn a_repeated_key_is_looked_up_once() {
        let paid = Fingerprint::of(&[b"invoice.paid", b"{}"]);
        let mut looked_up = Vec::new();
        let stored = |key: &'static str| {
            looked_up.push(key);
            Ok::<_, Infallible>((key == "old").then_some((7, paid)))
        };
        let Ok(planned) = plan([Some(("old", paid)); 1_000], stored);
        assert_eq!(planned.expect("no conflict").len(), 1_000);
        assert_eq!(looked_up, ["old"]);
    }

    #[test]
    fn adjacent_fields_are_not_confused() {
        assert_ne!(
            Fingerprint::of(&[b"ab", b"c"]),
            Fingerprint::of(&[b"a", b"bc"])
        );
        assert_ne!(Fingerprint::of(&[b"ab"]), Fingerprint::of(&[b"ab", b""]));
        let print = Fingerprint::of(&[b"ab"]);
        assert_eq!(Fingerprint::from_bytes(*print.as_bytes()), print);
    }
}
