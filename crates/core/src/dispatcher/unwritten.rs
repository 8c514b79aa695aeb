//! Records that could not be written.
//!
//! A failed record is repeated until it is written. While the store fails, results might be lost, so only single
//! attempts start. If other records are written in between, the store works and the fault lies in the one record: then
//! attempts start as usual, and the record is repeated after growing pauses. After [`FAULTS_TO_QUARANTINE`] such
//! failures the delivery is quarantined like one that causes other internal faults, and its result is discarded. So one record
//! that can never be written neither slows down the node nor occupies a slot for ever.

use super::command::{Command, Record, Ticket};
use super::in_flight::{InFlight, Stage};
use super::lanes::MAX_FAULT_DELAY;
use super::quarantine::FAULTS_TO_QUARANTINE;
use super::{Dispatcher, STORE_PAUSE, SingleAttempt};
use crate::time::{Now, Span};

/// Number of records that must have been written for each other one that failed, so that a failure is the record's own and
/// not one of a store that fails now and then.
const WRITTEN_PER_FAILURE: u64 = 4;

/// Numbers of records of all lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordCounts {
    written: u64,
    failed: u64,
}

/// The failures of one record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordFailures {
    /// True while the record waits to be repeated.
    pub(super) is_waiting: bool,
    /// Number of failures that were the record's own.
    own: u32,
    /// The counts at the last failure, including it.
    at_last: Option<RecordCounts>,
}

impl RecordFailures {
    /// Counts a failure. Returns true if other records were written since the last one, so that the store works.
    fn add(&mut self, counts: RecordCounts) -> bool {
        let (written, failed) = match self.at_last {
            Some(last) => (
                counts.written - last.written,
                counts.failed - last.failed - 1,
            ),
            None => (0, 0),
        };
        if written > WRITTEN_PER_FAILURE * failed {
            self.own = self.own.saturating_add(1);
        }
        self.at_last = Some(counts);
        written > 0
    }

    fn pause(&self) -> Span {
        let doublings = self.own.min(8);
        STORE_PAUSE.times(1 << doublings).min(MAX_FAULT_DELAY)
    }
}

impl Dispatcher {
    /// Counts a record that was written. The store works, so attempts may start.
    pub(super) fn note_written(&mut self) {
        self.records.written += 1;
        self.single_attempt = None;
    }

    pub(super) fn record_failed(&mut self, now: Now, ticket: Ticket, commands: &mut Vec<Command>) {
        let Some(flight) = self.in_flight.get_mut(ticket) else {
            return;
        };
        if !matches!(flight.stage, Stage::Recording(_)) || flight.failures.is_waiting {
            return;
        }
        self.records.failed += 1;
        let store_works = flight.failures.add(self.records);
        if !store_works {
            self.single_attempt.get_or_insert(SingleAttempt {
                at: now.tick.after(STORE_PAUSE),
                pause: STORE_PAUSE,
            });
        }
        if flight.failures.own >= FAULTS_TO_QUARANTINE
            && self.quarantine_unwritten(now, ticket, commands)
        {
            return;
        }
        if let Some(flight) = self.in_flight.get_mut(ticket) {
            flight.failures.is_waiting = true;
            let again = now.tick.after(flight.failures.pause());
            self.unwritten.insert((again, ticket));
        }
    }

    /// Issues the records again whose pause is over.
    pub(super) fn repeat_records(&mut self, now: Now, commands: &mut Vec<Command>) {
        while let Some((at, ticket)) = self.unwritten.first().copied()
            && at <= now.tick
        {
            self.unwritten.pop_first();
            if let Some(InFlight {
                stage: Stage::Recording(record),
                failures,
                ..
            }) = self.in_flight.get_mut(ticket)
            {
                failures.is_waiting = false;
                let record = record.clone();
                commands.push(Command::Record { ticket, record });
            }
        }
    }

    /// Quarantines a delivery whose attempt cannot be recorded. Returns false if the record must be repeated: it disables
    /// the endpoint, it is not about an attempt, or the quarantine of the lane is full.
    fn quarantine_unwritten(
        &mut self,
        now: Now,
        ticket: Ticket,
        commands: &mut Vec<Command>,
    ) -> bool {
        let Some(InFlight {
            lane,
            stage: Stage::Recording(Record::Attempt(record)),
            attempted: Some(attempted),
            ..
        }) = self.in_flight.get_mut(ticket)
        else {
            return false;
        };
        let (lane, record, mut delivery) = (*lane, record.clone(), attempted.clone());
        if record.disable.is_some() || self.lanes[lane].quarantine.is_full() {
            return false;
        }
        delivery.abandon().expect("the delivery was in progress");
        self.in_flight.end(ticket);
        self.quarantine(lane, &delivery);
        let entry = &mut self.lanes[lane];
        // The next record carries what this one would have written of the endpoint.
        entry.unsaved |= record.health.is_some();
        entry
            .unrecorded_changes
            .extend(record.endpoint_changes.clone());
        let config = entry.config.as_ref();
        let config = config.expect("attempts are made only to loaded endpoints");
        let tenant = config.tenant;
        self.turns.attempt_ended(tenant, self.in_flight.spare());
        self.update_lane(now, lane, commands);
        true
    }
}
