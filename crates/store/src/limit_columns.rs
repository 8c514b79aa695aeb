//! The columns of limits and protection, the same in every store.
//!
//! The columns of an endpoint's limits cannot be null, and nodes of version 0.1 read them during a rolling upgrade. A limit that is
//! inherited is therefore stored as its usual default, and a bit of the column `inherited` marks it.

use posthaste_core::lane::{EndpointLimits, LimitOverrides, ProtectionOverrides, RateLimit};
use posthaste_core::time::Span;

/// The bit of an inherited timeout.
const TIMEOUT: i16 = 1;
/// The bit of an inherited in-flight limit.
const IN_FLIGHT: i16 = 2;
/// The bit of an inherited rate limit.
const RATE: i16 = 4;

/// The stored limits of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LimitColumns {
    pub(crate) timeout_ms: i64,
    pub(crate) max_in_flight: u32,
    pub(crate) per_second: f64,
    pub(crate) burst: u32,
    pub(crate) inherited: i16,
}

impl LimitColumns {
    /// Returns the columns of these limits.
    pub(crate) fn of(limits: &LimitOverrides) -> LimitColumns {
        let written = EndpointLimits::resolve(
            limits,
            &LimitOverrides::default(),
            &EndpointLimits::default(),
        );
        let bits = [
            (limits.timeout.is_none(), TIMEOUT),
            (limits.max_in_flight.is_none(), IN_FLIGHT),
            (limits.rate_limit.is_none(), RATE),
        ];
        LimitColumns {
            timeout_ms: written.timeout.as_millis() as i64,
            max_in_flight: written.max_in_flight,
            per_second: written.rate_limit.per_second,
            burst: written.rate_limit.burst,
            inherited: bits
                .iter()
                .filter(|(is_set, _)| *is_set)
                .map(|(_, bit)| bit)
                .sum(),
        }
    }

    /// Returns the limits that these columns contain.
    pub(crate) fn limits(self) -> LimitOverrides {
        let is_own = |bit| self.inherited & bit == 0;
        LimitOverrides {
            timeout: is_own(TIMEOUT).then(|| Span::from_millis(self.timeout_ms as u64)),
            max_in_flight: is_own(IN_FLIGHT).then_some(self.max_in_flight),
            rate_limit: is_own(RATE).then_some(RateLimit {
                per_second: self.per_second,
                burst: self.burst,
            }),
        }
    }
}

/// Returns the column with a tenant's limits for its endpoints.
pub(crate) fn defaults_column(defaults: &LimitOverrides) -> Option<String> {
    (!defaults.is_empty()).then(|| serde_json::to_string(defaults).expect("limits are plain data"))
}

/// Returns the column with the thresholds of a tenant or an endpoint.
pub(crate) fn protection_column(protection: &ProtectionOverrides) -> Option<String> {
    (!protection.is_empty())
        .then(|| serde_json::to_string(protection).expect("thresholds are plain data"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_and_inherited_limits_are_read_back() {
        let all = LimitOverrides {
            timeout: Some(Span::from_secs(7)),
            max_in_flight: Some(8),
            rate_limit: Some(RateLimit {
                per_second: 0.5,
                burst: 9,
            }),
        };
        for bits in 0..8 {
            let keep = |bit: i16| bits & bit == 0;
            let limits = LimitOverrides {
                timeout: all.timeout.filter(|_| keep(TIMEOUT)),
                max_in_flight: all.max_in_flight.filter(|_| keep(IN_FLIGHT)),
                rate_limit: all.rate_limit.filter(|_| keep(RATE)),
            };
            let columns = LimitColumns::of(&limits);
            assert_eq!(columns.inherited, bits);
            assert_eq!(columns.limits(), limits);
            // A node of version 0.1 must be able to send with the other columns.
            assert!(columns.timeout_ms > 0 && columns.max_in_flight > 0);
            assert!(columns.per_second > 0.0 && columns.burst > 0);
        }
    }
}
