//! What is under way: attempts being made, and results being written down.

use slab::Slab;

use super::command::{Record, Ticket};
use crate::delivery::Delivery;

/// One attempt from the moment it is sent until its result is on disk.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) lane: usize,
    pub(super) stage: Stage,
    /// Its record could not be written, and waits to be tried again.
    pub(super) retries: bool,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The attempt is being made.
    Sending { delivery: Delivery, probe: bool },
    /// Its result is being written down.
    Recording(Record),
}

/// All flights. Each holds one of a limited number of places until its result is on disk, so a slow
/// disk slows the sending down instead of piling up results.
#[derive(Debug)]
pub(super) struct Flights {
    places: Slab<(u32, Flight)>,
    capacity: usize,
    next_serial: u32,
}

/// One place in so many is kept in reserve.
const RESERVE: usize = 16;

impl Flights {
    pub(super) fn new(capacity: usize) -> Flights {
        assert!(capacity > 0, "nothing could ever be sent");
        Flights {
            places: Slab::new(),
            capacity,
            next_serial: 0,
        }
    }

    /// How many more may begin.
    pub(super) fn free(&self) -> usize {
        // What is being called off takes a place too, and may go beyond the limit.
        self.capacity.saturating_sub(self.places.len())
    }

    /// How many more may begin without touching the reserve, which is for tenants that have nothing
    /// under way: while others hold their share, a newcomer still finds a place.
    pub(super) fn spare(&self) -> usize {
        self.free().saturating_sub(self.capacity / RESERVE)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn begin(&mut self, flight: Flight) -> Ticket {
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        let index = self.places.insert((serial, flight));
        Ticket {
            index: u32::try_from(index).expect("flights are few"),
            serial,
        }
    }

    /// The flight with this ticket, unless it has ended.
    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Flight> {
        self.places
            .get_mut(ticket.index as usize)
            .filter(|(serial, _)| *serial == ticket.serial)
            .map(|(_, flight)| flight)
    }

    /// Ends all of them. Their tickets are not used again.
    pub(super) fn clear(&mut self) {
        self.places.clear();
    }

    pub(super) fn end(&mut self, ticket: Ticket) -> Option<Flight> {
        self.get_mut(ticket)?;
        Some(self.places.remove(ticket.index as usize).1)
    }
}
