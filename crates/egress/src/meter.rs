//! What is counted on a connection: when a request began to leave, and how much may still come in.
//!
//! A receiver can go on for ever without saying anything: interim answers, frames without content,
//! chunks whose extensions are longer than they are. Each is valid, none is worth reading, and all of
//! them cost time. So a connection has an *allowance*: every request adds to it what an honest answer
//! could need at the very most, every byte that arrives uses it up, and when there is none left the
//! connection is over. An idle connection is given nothing.
//!
//! Counting takes no lock: one side only ever reads bytes, the other only ever grants them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

use crate::request::Permit;

/// What arrives before the first request: the handshakes of TLS and of HTTP/2. rustls itself takes no
/// more than 64 KiB for one message of its handshake.
const GREETING_BYTES: u64 = 128 * 1_024;

/// More has arrived than was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("more arrived than any answer needs")]
pub(crate) struct Flood;

/// The counters of one connection.
#[derive(Debug)]
pub(crate) struct Meter {
    since: Instant,
    /// Nanoseconds after `since`; [`Meter::SILENT`] before the first byte.
    first_byte: AtomicU64,
    /// Bytes that have arrived since it was opened.
    arrived: AtomicU64,
    /// Bytes that may have arrived.
    granted: AtomicU64,
    is_flooded: AtomicBool,
    /// What the request that is about to begin has to ask.
    permit: Mutex<Option<Permit>>,
    is_too_late: AtomicBool,
}

/// The request may not begin any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the request may not begin any more")]
pub(crate) struct TooLate;

impl Meter {
    const SILENT: u64 = u64::MAX;

    /// A meter that allows for the greetings.
    pub(crate) fn new() -> Meter {
        Meter::granting(GREETING_BYTES)
    }

    /// A meter that only counts.
    pub(crate) fn unlimited() -> Meter {
        Meter::granting(u64::MAX)
    }

    fn granting(bytes: u64) -> Meter {
        Meter {
            since: Instant::now(),
            first_byte: AtomicU64::new(Meter::SILENT),
            arrived: AtomicU64::new(0),
            granted: AtomicU64::new(bytes),
            is_flooded: AtomicBool::new(false),
            permit: Mutex::new(None),
            is_too_late: AtomicBool::new(false),
        }
    }

    /// Waits for the first byte of another request, which may leave if it is permitted then.
    pub(crate) fn rearm(&self, permit: Option<Permit>) {
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
        self.first_byte.store(Meter::SILENT, Ordering::Relaxed);
    }

    /// Whether bytes may leave: always, once the first byte of a request has.
    pub(crate) fn check_permit(&self) -> Result<(), TooLate> {
        if self.first_byte.load(Ordering::Relaxed) != Meter::SILENT {
            return Ok(());
        }
        let permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner);
        if permit.as_ref().is_none_or(Permit::holds) {
            return Ok(());
        }
        self.is_too_late.store(true, Ordering::Release);
        Err(TooLate)
    }

    /// Whether a request was kept from leaving.
    pub(crate) fn is_too_late(&self) -> bool {
        self.is_too_late.load(Ordering::Acquire)
    }

    pub(crate) fn first_byte_at(&self) -> Option<Instant> {
        match self.first_byte.load(Ordering::Relaxed) {
            Meter::SILENT => None,
            nanos => Some(self.since + Duration::from_nanos(nanos)),
        }
    }

    /// Bytes have left.
    pub(crate) fn note_sent(&self) {
        if self.first_byte.load(Ordering::Relaxed) == Meter::SILENT {
            let nanos = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(Meter::SILENT - 1);
            self.first_byte.store(nanos, Ordering::Relaxed);
        }
    }

    /// Adds to the allowance what one request needs. What others left over is not saved up beyond
    /// what `at_once` requests need.
    pub(crate) fn grant(&self, bytes: u64, at_once: u64) {
        let arrived = self.arrived.load(Ordering::Relaxed);
        let most = arrived.saturating_add(bytes.saturating_mul(at_once));
        let topped_up = |granted: u64| Some(granted.max(arrived).saturating_add(bytes).min(most));
        let _ = self
            .granted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, topped_up);
    }

    /// Bytes have arrived. Only the one task that reads may call this.
    pub(crate) fn note_arrived(&self, bytes: usize) -> Result<(), Flood> {
        let arrived = self.arrived.load(Ordering::Relaxed) + bytes as u64;
        self.arrived.store(arrived, Ordering::Relaxed);
        if arrived > self.granted.load(Ordering::Relaxed) {
            self.is_flooded.store(true, Ordering::Release);
            return Err(Flood);
        }
        Ok(())
    }

    /// Whether more has arrived than was allowed.
    pub(crate) fn is_flooded(&self) -> bool {
        self.is_flooded.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_granted_may_arrive_and_not_a_byte_more() {
        let meter = Meter::granting(0);
        meter.grant(100, 1);
        assert_eq!(meter.note_arrived(60), Ok(()));
        assert_eq!(meter.note_arrived(40), Ok(()));
        assert!(!meter.is_flooded());
        assert_eq!(meter.note_arrived(1), Err(Flood));
        assert!(meter.is_flooded());
    }

    #[test]
    fn nothing_is_saved_up_from_one_request_to_the_next() {
        let meter = Meter::granting(0);
        for _ in 0..10 {
            meter.grant(100, 1);
            assert_eq!(meter.note_arrived(10), Ok(()));
        }
        assert_eq!(meter.note_arrived(90), Ok(()));
        assert_eq!(meter.note_arrived(1), Err(Flood));
    }

    #[test]
    fn requests_side_by_side_need_as_much_as_each_of_them() {
        let meter = Meter::granting(0);
        for _ in 0..10 {
            meter.grant(100, 4);
        }
        assert_eq!(meter.note_arrived(400), Ok(()));
        assert_eq!(meter.note_arrived(1), Err(Flood));
    }

    #[test]
    fn a_meter_without_limit_stays_without() {
        let meter = Meter::unlimited();
        assert_eq!(meter.note_arrived(usize::MAX / 2), Ok(()));
    }
}
