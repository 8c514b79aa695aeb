//! Per-connection counters: when a request's first byte left, and how many bytes may still arrive.
//!
//! A receiver can send valid bytes for ever without sending a response: interim responses, empty frames, chunks
//! whose extensions are longer than their data. Reading them costs time and yields nothing. So every connection
//! has an *allowance*. Each request adds the maximum that an honest response could need, each byte that arrives
//! uses it up, and the connection ends when none is left. An idle connection gets no allowance.
//!
//! [`ConnectionAllowance`] takes no lock for counting: one task only adds received bytes, the other only grants them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

use crate::request::SendPermit;

/// Allowance before the first request, for the handshakes of TLS and HTTP/2. rustls itself accepts at most 64
/// KiB for one handshake message.
const HANDSHAKE_BYTES: u64 = 128 * 1_024;

/// More bytes arrived than the allowance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the response is too large")]
pub(crate) struct AllowanceExceeded;

/// The counters of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionAllowance {
    since: Instant,
    /// Nanoseconds after `since`; [`ConnectionAllowance::NOT_SENT`] before the first byte was sent.
    first_byte: AtomicU64,
    /// Number of bytes that have arrived since the connection was opened.
    arrived: AtomicU64,
    /// Number of bytes that may have arrived.
    granted: AtomicU64,
    is_flooded: AtomicBool,
    /// The permit of the request that is about to start.
    permit: Mutex<Option<SendPermit>>,
    is_too_late: AtomicBool,
}

/// The permit ended before the request started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the request may no longer be sent")]
pub(crate) struct PermitEnded;

impl ConnectionAllowance {
    const NOT_SENT: u64 = u64::MAX;

    /// Creates an allowance that covers the handshakes.
    pub(crate) fn new() -> ConnectionAllowance {
        ConnectionAllowance::granting(HANDSHAKE_BYTES)
    }

    /// Creates an allowance without a limit.
    pub(crate) fn unlimited() -> ConnectionAllowance {
        ConnectionAllowance::granting(u64::MAX)
    }

    fn granting(bytes: u64) -> ConnectionAllowance {
        ConnectionAllowance {
            since: Instant::now(),
            first_byte: AtomicU64::new(ConnectionAllowance::NOT_SENT),
            arrived: AtomicU64::new(0),
            granted: AtomicU64::new(bytes),
            is_flooded: AtomicBool::new(false),
            permit: Mutex::new(None),
            is_too_late: AtomicBool::new(false),
        }
    }

    /// Prepares for the first byte of the next request, which may be sent only if the permit is valid then.
    pub(crate) fn rearm(&self, permit: Option<SendPermit>) {
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
        self.first_byte
            .store(ConnectionAllowance::NOT_SENT, Ordering::Relaxed);
    }

    /// Returns an error if the permit has ended. Once the first byte of a request was sent, the rest may always
    /// be sent.
    pub(crate) fn check_permit(&self) -> Result<(), PermitEnded> {
        if self.first_byte.load(Ordering::Relaxed) != ConnectionAllowance::NOT_SENT {
            return Ok(());
        }
        let permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner);
        if permit.as_ref().is_none_or(SendPermit::holds) {
            return Ok(());
        }
        self.is_too_late.store(true, Ordering::Release);
        Err(PermitEnded)
    }

    /// Returns true if a request was stopped because its permit had ended.
    pub(crate) fn is_too_late(&self) -> bool {
        self.is_too_late.load(Ordering::Acquire)
    }

    pub(crate) fn first_byte_at(&self) -> Option<Instant> {
        match self.first_byte.load(Ordering::Relaxed) {
            ConnectionAllowance::NOT_SENT => None,
            nanos => Some(self.since + Duration::from_nanos(nanos)),
        }
    }

    /// Records that bytes were sent.
    pub(crate) fn record_sent(&self) {
        if self.first_byte.load(Ordering::Relaxed) == ConnectionAllowance::NOT_SENT {
            let nanos = u64::try_from(self.since.elapsed().as_nanos())
                .unwrap_or(ConnectionAllowance::NOT_SENT - 1);
            self.first_byte.store(nanos, Ordering::Relaxed);
        }
    }

    /// Adds the allowance of one request. The unused allowance of earlier requests is kept only up to what
    /// `at_once` requests need.
    pub(crate) fn grant(&self, bytes: u64, at_once: u64) {
        let arrived = self.arrived.load(Ordering::Relaxed);
        let most = arrived.saturating_add(bytes.saturating_mul(at_once));
        let topped_up = |granted: u64| Some(granted.max(arrived).saturating_add(bytes).min(most));
        let _ = self
            .granted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, topped_up);
    }

    /// Records that bytes arrived. Must be called only by the one task that reads.
    pub(crate) fn record_received(&self, bytes: usize) -> Result<(), AllowanceExceeded> {
        let arrived = self.arrived.load(Ordering::Relaxed) + bytes as u64;
        self.arrived.store(arrived, Ordering::Relaxed);
        if arrived > self.granted.load(Ordering::Relaxed) {
            self.is_flooded.store(true, Ordering::Release);
            return Err(AllowanceExceeded);
        }
        Ok(())
    }

    /// Returns true if more bytes arrived than allowed.
    pub(crate) fn is_flooded(&self) -> bool {
        self.is_flooded.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_granted_bytes_may_arrive() {
        let allowance = ConnectionAllowance::granting(0);
        allowance.grant(100, 1);
        assert_eq!(allowance.record_received(60), Ok(()));
        assert_eq!(allowance.record_received(40), Ok(()));
        assert!(!allowance.is_flooded());
        assert_eq!(allowance.record_received(1), Err(AllowanceExceeded));
        assert!(allowance.is_flooded());
    }

    #[test]
    fn unused_allowance_is_not_carried_over() {
        let allowance = ConnectionAllowance::granting(0);
        for _ in 0..10 {
            allowance.grant(100, 1);
            assert_eq!(allowance.record_received(10), Ok(()));
        }
        assert_eq!(allowance.record_received(90), Ok(()));
        assert_eq!(allowance.record_received(1), Err(AllowanceExceeded));
    }

    #[test]
    fn the_allowance_is_bounded_by_the_number_of_concurrent_requests() {
        let allowance = ConnectionAllowance::granting(0);
        for _ in 0..10 {
            allowance.grant(100, 4);
        }
        assert_eq!(allowance.record_received(400), Ok(()));
        assert_eq!(allowance.record_received(1), Err(AllowanceExceeded));
    }

    #[test]
    fn an_unlimited_meter_stays_unlimited() {
        let allowance = ConnectionAllowance::unlimited();
        assert_eq!(allowance.record_received(usize::MAX / 2), Ok(()));
    }
}
