//! Names for ids, which are the same in both stores.
//!
//! Each store makes its own ids. [`Names`] numbers events and replays in the order in which they appear and names
//! deliveries by event and endpoint. [`Names::translate`] replaces every id in a text by its name.

use std::collections::BTreeMap;

use posthaste_core::delivery::Delivery;
use posthaste_core::id::{DeliveryId, EndpointId, EventId, ReplayId};

/// A delivery, named by the index of its event and its endpoint.
pub(super) type DeliveryName = (usize, EndpointId);

/// Number of characters after the prefix of an id.
const ID_CHARS: usize = 26;
const PREFIXES: [&str; 3] = ["evt_", "dlv_", "rpl_"];

/// The ids that one store has made, in the order in which they appeared.
#[derive(Default)]
pub(super) struct Names {
    pub(super) events: Vec<EventId>,
    pub(super) replays: Vec<ReplayId>,
    pub(super) deliveries: BTreeMap<DeliveryName, DeliveryId>,
    texts: BTreeMap<String, String>,
}

impl Names {
    pub(super) fn learn_event(&mut self, event: EventId) {
        let number = self.events.len();
        self.texts.entry(event.to_string()).or_insert_with(|| {
            self.events.push(event);
            format!("event {number}")
        });
    }

    pub(super) fn learn_replay(&mut self, replay: ReplayId) {
        let number = self.replays.len();
        self.replays.push(replay);
        self.texts
            .insert(replay.to_string(), format!("replay {number}"));
    }

    pub(super) fn learn_delivery(&mut self, event: EventId, endpoint: EndpointId, id: DeliveryId) {
        let Some(number) = self.events.iter().position(|known| *known == event) else {
            return;
        };
        self.deliveries.insert((number, endpoint), id);
        let text = format!("delivery of {number} to {endpoint}");
        self.texts.insert(id.to_string(), text);
    }

    pub(super) fn learn(&mut self, delivery: &Delivery) {
        let facts = delivery.facts();
        self.learn_delivery(facts.event, facts.endpoint, facts.id);
    }

    /// Returns the text with names instead of ids.
    pub(super) fn translate(&self, text: &str) -> String {
        let mut translated = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = PREFIXES.iter().filter_map(|prefix| rest.find(prefix)).min() {
            let (before, found) = rest.split_at(start);
            let end = (PREFIXES[0].len() + ID_CHARS).min(found.len());
            let (id, after) = found.split_at(end);
            translated.push_str(before);
            translated.push_str(self.texts.get(id).map_or(id, String::as_str));
            rest = after;
        }
        translated.push_str(rest);
        translated
    }
}
