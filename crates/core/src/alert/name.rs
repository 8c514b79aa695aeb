//! Names, units and default limits of the alerts.
//!
//! [`AlertName`] lists every alert. Each has a name in the API, a unit ([`Measure`]) and a default critical range
//! ([`Bound`]), which the operator can change. The names are part of the API and of stored data, so they never
//! change. [`UnknownAlert`] is the error for any other name; its message lists all valid names.

use std::fmt;
use std::str::FromStr;

use super::Bound;
use crate::cluster::Feature;

/// The name of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertName {
    /// Too many deliveries need a retry.
    RetryRatio,
    /// Too many of the deliveries that ended are dead-lettered.
    DeadLetterRatio,
    /// A success takes too many attempts.
    AttemptsPerSuccess,
    /// Too few second attempts succeed.
    SecondAttemptSuccessRatio,
    /// Too many deliveries have been in retry for more than a day.
    RetryingOver24h,
    /// Many deliveries were dead-lettered recently.
    DeadLettersGrowing,
    /// An endpoint's breaker has tripped.
    BreakerTripped,
    /// An endpoint will be disabled if its failures continue.
    DisableWarning,
    /// An endpoint was disabled because it kept failing.
    EndpointDisabled,
    /// A delivery that could be sent has been waiting for too long.
    QueueAge,
    /// A limit, not the receiver, has held deliveries of an endpoint back for too long.
    HeldBack,
    /// Writes to the store are slow.
    StoreSlow,
    /// The store has little free space.
    StoreNearlyFull,
    /// Notifications cannot be sent.
    NotificationsStuck,
    /// Deliveries are held after repeated internal errors, or cannot be read.
    HeldAfterFaults,
    /// An outbox cannot be read.
    OutboxUnreachable,
    /// The runs of a schedule keep failing.
    SchedulesFailing,
}

impl AlertName {
    /// Every name.
    pub const ALL: [AlertName; 17] = [
        AlertName::RetryRatio,
        AlertName::DeadLetterRatio,
        AlertName::AttemptsPerSuccess,
        AlertName::SecondAttemptSuccessRatio,
        AlertName::RetryingOver24h,
        AlertName::DeadLettersGrowing,
        AlertName::BreakerTripped,
        AlertName::DisableWarning,
        AlertName::EndpointDisabled,
        AlertName::QueueAge,
        AlertName::HeldBack,
        AlertName::StoreSlow,
        AlertName::StoreNearlyFull,
        AlertName::NotificationsStuck,
        AlertName::HeldAfterFaults,
        AlertName::OutboxUnreachable,
        AlertName::SchedulesFailing,
    ];

    /// Returns the name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            AlertName::RetryRatio => "retry_ratio",
            AlertName::DeadLetterRatio => "dead_letter_ratio",
            AlertName::AttemptsPerSuccess => "attempts_per_success",
            AlertName::SecondAttemptSuccessRatio => "second_attempt_success_ratio",
            AlertName::RetryingOver24h => "retrying_over_24h",
            AlertName::DeadLettersGrowing => "dead_letters_growing",
            AlertName::BreakerTripped => "breaker_tripped",
            AlertName::DisableWarning => "disable_warning",
            AlertName::EndpointDisabled => "endpoint_disabled",
            AlertName::QueueAge => "queue_age",
            AlertName::HeldBack => "held_back",
            AlertName::StoreSlow => "store_slow",
            AlertName::StoreNearlyFull => "store_nearly_full",
            AlertName::NotificationsStuck => "notices_stuck",
            AlertName::HeldAfterFaults => "held_after_faults",
            AlertName::OutboxUnreachable => "outbox_unreachable",
            AlertName::SchedulesFailing => "schedules_failing",
        }
    }

    /// Returns the feature without which some nodes could not read the alert; `None` if all nodes can.
    pub const fn since(self) -> Option<Feature> {
        match self {
            AlertName::HeldBack
            | AlertName::HeldAfterFaults
            | AlertName::OutboxUnreachable
            | AlertName::SchedulesFailing => Some(Feature::AlertsOfV0_2),
            AlertName::RetryRatio
            | AlertName::DeadLetterRatio
            | AlertName::AttemptsPerSuccess
            | AlertName::SecondAttemptSuccessRatio
            | AlertName::RetryingOver24h
            | AlertName::DeadLettersGrowing
            | AlertName::BreakerTripped
            | AlertName::DisableWarning
            | AlertName::EndpointDisabled
            | AlertName::QueueAge
            | AlertName::StoreSlow
            | AlertName::StoreNearlyFull
            | AlertName::NotificationsStuck => None,
        }
    }

    /// Returns the unit of the alert's value.
    pub const fn measure(self) -> Measure {
        match self {
            AlertName::RetryRatio
            | AlertName::DeadLetterRatio
            | AlertName::SecondAttemptSuccessRatio
            | AlertName::StoreNearlyFull => Measure::Ratio,
            AlertName::AttemptsPerSuccess => Measure::Factor,
            AlertName::RetryingOver24h
            | AlertName::DeadLettersGrowing
            | AlertName::HeldAfterFaults
            | AlertName::SchedulesFailing => Measure::Count,
            AlertName::QueueAge
            | AlertName::HeldBack
            | AlertName::StoreSlow
            | AlertName::NotificationsStuck
            | AlertName::OutboxUnreachable => Measure::Seconds,
            AlertName::BreakerTripped | AlertName::DisableWarning | AlertName::EndpointDisabled => {
                Measure::Event
            }
        }
    }

    /// Returns the default critical range. The operator can change it.
    pub const fn bound(self) -> Bound {
        match self {
            AlertName::RetryRatio => Bound::Above(0.10),
            AlertName::DeadLetterRatio => Bound::Above(0.01),
            AlertName::AttemptsPerSuccess => Bound::Above(2.0),
            AlertName::SecondAttemptSuccessRatio => Bound::Below(0.60),
            AlertName::RetryingOver24h | AlertName::DeadLettersGrowing => Bound::Above(100.0),
            AlertName::BreakerTripped | AlertName::DisableWarning | AlertName::EndpointDisabled => {
                Bound::Above(0.0)
            }
            AlertName::QueueAge => Bound::Above(600.0),
            AlertName::HeldBack => Bound::Above(300.0),
            AlertName::StoreSlow => Bound::Above(1.0),
            AlertName::StoreNearlyFull => Bound::Below(0.10),
            AlertName::NotificationsStuck => Bound::Above(900.0),
            AlertName::HeldAfterFaults => Bound::Above(0.0),
            AlertName::OutboxUnreachable => Bound::Above(60.0),
            AlertName::SchedulesFailing => Bound::Above(0.0),
        }
    }
}

/// The unit of an alert's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A part of a whole, from 0 to 1.
    Ratio,
    /// A factor.
    Factor,
    /// A number.
    Count,
    /// A duration, in seconds.
    Seconds,
    /// No value: the alert is an event that happens or does not happen.
    Event,
}

impl fmt::Display for AlertName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be one of retry_ratio, dead_letter_ratio, attempts_per_success, second_attempt_success_ratio, \
     retrying_over_24h, dead_letters_growing, breaker_tripped, disable_warning, endpoint_disabled, queue_age, held_back, \
     store_slow, store_nearly_full, notices_stuck, held_after_faults, outbox_unreachable, schedules_failing"
)]
pub struct UnknownAlert;

impl FromStr for AlertName {
    type Err = UnknownAlert;

    fn from_str(text: &str) -> Result<AlertName, UnknownAlert> {
        let named = AlertName::ALL.into_iter().find(|name| name.name() == text);
        named.ok_or(UnknownAlert)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_all_names() {
        let message = UnknownAlert.to_string();
        let listed: Vec<&str> = message
            .trim_start_matches("must be one of ")
            .split(", ")
            .collect();
        assert_eq!(listed, AlertName::ALL.map(AlertName::name));
    }

    #[test]
    fn names_round_trip_through_text() {
        for name in AlertName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        assert_eq!("breaker".parse::<AlertName>(), Err(UnknownAlert));
    }
}
