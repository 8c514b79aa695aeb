//! Attempts in flight and results being recorded, up to a limit.
//!
//! [`InFlightTable`] holds one [`InFlight`] per attempt from its start until its result is recorded, and one per
//! cancellation or late delivery that is being recorded. A [`Ticket`] identifies it; a ticket is not valid any more
//! once its attempt has ended. Attempts start only while [`InFlightTable::free`] is above zero. Some slots are a
//! reserve for tenants with nothing in flight.

use slab::Slab;

use super::command::{Record, Ticket};
use super::unwritten::RecordFailures;
use crate::delivery::Delivery;
use crate::time::Tick;

/// One attempt from the moment it is sent until its result is recorded, or one cancellation or late delivery being
/// recorded.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) lane: usize,
    pub(super) stage: Stage,
    /// The failures of its record.
    pub(super) failures: RecordFailures,
    /// The delivery as it was sent, while its result is being recorded.
    pub(super) attempted: Option<Delivery>,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The attempt is being made.
    Sending {
        delivery: Delivery,
        probe: bool,
        started_at: Tick,
    },
    /// The result is being written to the store.
    Recording(Record),
}

/// Everything in flight. Each one occupies one of a limited number of slots until its result is recorded. A slow store
/// therefore slows down sending, instead of letting results pile up.
#[derive(Debug)]
pub(super) struct InFlightTable {
    slots: Slab<(u32, InFlight)>,
    capacity: usize,
    next_serial: u32,
}

/// Number of slots of which one is reserved.
const RESERVE: usize = 16;

impl InFlightTable {
    pub(super) fn new(capacity: usize) -> InFlightTable {
        assert!(capacity > 0, "the number of slots must not be zero");
        InFlightTable {
            slots: Slab::new(),
            capacity,
            next_serial: 0,
        }
    }

    /// Returns the number of free slots.
    pub(super) fn free(&self) -> usize {
        // Cancellations take slots too, and may exceed the limit.
        self.capacity.saturating_sub(self.slots.len())
    }

    /// Returns the number of free slots without the reserve. The reserve is for tenants that have nothing in
    /// flight: they get a slot even while other tenants use their full share.
    pub(super) fn spare(&self) -> usize {
        self.free().saturating_sub(self.capacity / RESERVE)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn begin(&mut self, flight: InFlight) -> Ticket {
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        let index = self.slots.insert((serial, flight));
        Ticket {
            index: u32::try_from(index).expect("the index of a flight fits into 32 bits"),
            serial,
        }
    }

    pub(super) fn contains(&self, ticket: Ticket) -> bool {
        let flight = self.slots.get(ticket.index as usize);
        flight.is_some_and(|(serial, _)| *serial == ticket.serial)
    }

    /// Returns the attempt with this ticket, or `None` if it has ended.
    pub(super) fn get(&self, ticket: Ticket) -> Option<&InFlight> {
        let slot = self.slots.get(ticket.index as usize);
        slot.filter(|(serial, _)| *serial == ticket.serial)
            .map(|(_, flight)| flight)
    }

    /// Returns the attempt with this ticket, to change it, or `None` if it has ended.
    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut InFlight> {
        self.slots
            .get_mut(ticket.index as usize)
            .filter(|(serial, _)| *serial == ticket.serial)
            .map(|(_, flight)| flight)
    }

    /// Ends all attempts. Their tickets are not reused.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    pub(super) fn end(&mut self, ticket: Ticket) -> Option<InFlight> {
        self.get_mut(ticket)?;
        Some(self.slots.remove(ticket.index as usize).1)
    }
}
