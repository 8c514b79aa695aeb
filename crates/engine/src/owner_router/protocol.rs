//! Requests and answers between nodes (node RPC).
//!
//! Nodes of different versions may share a store during an upgrade. So [`NodeRequest`] and [`NodeResponse`] are JSON:
//! an unknown request gets [`NodeResponse::NotUnderstood`], unknown fields are ignored, and missing fields have a
//! default where one makes sense.

use std::fmt::Display;
use std::str::FromStr;

use posthaste_core::dispatcher::LaneView;
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::{BreakerState, EndpointStatus, TripReason};
use posthaste_core::time::{Now, Timestamp};
use posthaste_store::{DisabledReason, Scope, StatCounters};
use posthaste_telemetry::metrics::{EndpointStats, RecentAttempts};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Cancelled;

/// Maximum number of ids in one request, and in one answer.
pub(super) const MAX_IDS_PER_MESSAGE: usize = 10_000;

/// An id in the text form of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextId<T>(pub(super) T);

impl<T: Display> Serialize for TextId<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: FromStr> Deserialize<'de> for TextId<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TextId<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let id = text.parse().map_err(|_| D::Error::custom("no such id"))?;
        Ok(TextId(id))
    }
}

/// Requested status of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WireStatus {
    Enabled,
    Paused,
    Disabled,
    Deleted,
}

impl From<EndpointStatus> for WireStatus {
    fn from(status: EndpointStatus) -> WireStatus {
        match status {
            EndpointStatus::Enabled => WireStatus::Enabled,
            EndpointStatus::Paused => WireStatus::Paused,
            EndpointStatus::Disabled => WireStatus::Disabled,
            EndpointStatus::Deleted => WireStatus::Deleted,
        }
    }
}

impl From<WireStatus> for EndpointStatus {
    fn from(status: WireStatus) -> EndpointStatus {
        match status {
            WireStatus::Enabled => EndpointStatus::Enabled,
            WireStatus::Paused => EndpointStatus::Paused,
            WireStatus::Disabled => EndpointStatus::Disabled,
            WireStatus::Deleted => EndpointStatus::Deleted,
        }
    }
}

/// Request of one node to another. All requests are idempotent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(super) enum NodeRequest {
    /// Changes the status of an endpoint.
    #[serde(rename = "stand")]
    SetStatus {
        endpoint: TextId<EndpointId>,
        #[serde(rename = "standing")]
        status: WireStatus,
        #[serde(default)]
        reason: Option<DisabledReason>,
    },
    /// Cancels a delivery.
    Cancel {
        endpoint: TextId<EndpointId>,
        delivery: TextId<DeliveryId>,
    },
    /// Asks for the state of an endpoint.
    #[serde(rename = "look")]
    ViewLane { endpoint: TextId<EndpointId> },
    /// Asks which of these deliveries are in flight.
    #[serde(rename = "aloft")]
    InFlightOf { deliveries: Vec<TextId<DeliveryId>> },
    /// Asks for all deliveries in flight.
    #[serde(rename = "flights")]
    AllInFlight,
    /// Asks for the number of attempts that a tenant has in flight.
    #[serde(rename = "under_way")]
    TenantInFlight { tenant: TextId<TenantId> },
    /// Asks for counters that are not in the store yet.
    #[serde(rename = "pending")]
    UnwrittenCounters { of: WireScope },
    /// Asks for the failing endpoints of all tenants or of one, and for the recent attempts of these others.
    #[serde(rename = "lately")]
    RecentAttempts {
        #[serde(default)]
        tenant: Option<TextId<TenantId>>,
        #[serde(default)]
        others: Vec<TextId<EndpointId>>,
    },
}

/// Scope of the requested counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WireScope {
    All,
    Tenant(TextId<TenantId>),
    Endpoint(TextId<EndpointId>),
}

impl From<Scope> for WireScope {
    fn from(scope: Scope) -> WireScope {
        match scope {
            Scope::Everything => WireScope::All,
            Scope::Tenant(tenant) => WireScope::Tenant(TextId(tenant)),
            Scope::Endpoint(endpoint) => WireScope::Endpoint(TextId(endpoint)),
        }
    }
}

impl From<WireScope> for Scope {
    fn from(scope: WireScope) -> Scope {
        match scope {
            WireScope::All => Scope::Everything,
            WireScope::Tenant(TextId(tenant)) => Scope::Tenant(tenant),
            WireScope::Endpoint(TextId(endpoint)) => Scope::Endpoint(endpoint),
        }
    }
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum NodeResponse {
    /// The status is in force and persisted.
    #[serde(rename = "stands")]
    StatusSet,
    /// Outcome of the cancellation.
    Cancelled { outcome: Cancelled },
    /// State of the endpoint.
    Lane {
        #[serde(default)]
        lane: Option<LaneReport>,
        #[serde(rename = "figures")]
        stats: EndpointStats,
    },
    /// Deliveries in flight.
    Deliveries { deliveries: Vec<TextId<DeliveryId>> },
    /// Number of attempts in flight.
    #[serde(rename = "under_way")]
    TenantInFlight { attempts: u64 },
    /// Counters that are not in the store yet, by minute, and the number of writes so far.
    #[serde(rename = "pending")]
    UnwrittenCounters {
        flushes: u64,
        minutes: Vec<(Timestamp, StatCounters)>,
    },
    /// Recent attempts of these endpoints.
    #[serde(rename = "lately")]
    RecentAttempts {
        endpoints: Vec<(TextId<EndpointId>, RecentAttempts)>,
    },
    /// Another node owns the endpoint.
    #[serde(rename = "elsewhere")]
    NotOwner,
    /// The request cannot be served now.
    Unable { why: String },
    /// The request comes from a version that this node does not know.
    #[serde(other)]
    NotUnderstood,
}

/// State of an endpoint's breaker, with wall-clock times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum BreakerReport {
    /// Attempts are allowed.
    Passing,
    /// No attempts are allowed until this time.
    Tripped {
        /// Earliest time of a probe.
        until: Timestamp,
        /// Reason of the trip.
        reason: TripReason,
    },
    /// A probe is in flight.
    Probing {
        /// Reason of the trip.
        reason: TripReason,
    },
}

/// State of a lane, as its owner reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneReport {
    /// The breaker.
    pub breaker: BreakerReport,
    /// Number of attempts in flight.
    pub in_flight: u32,
    /// End of the pause that the receiver asked for.
    pub quiet_until: Timestamp,
    /// Consecutive failures of the destination.
    pub consecutive_failures: u32,
}

impl LaneReport {
    /// Converts a lane's state to wall-clock times.
    pub(super) fn new(lane: &LaneView, now: Now) -> LaneReport {
        LaneReport {
            breaker: match lane.breaker {
                BreakerState::Passing => BreakerReport::Passing,
                BreakerState::Tripped { until, reason } => BreakerReport::Tripped {
                    until: now.wall_at(until),
                    reason,
                },
                BreakerState::Probing { reason } => BreakerReport::Probing { reason },
            },
            in_flight: lane.in_flight,
            quiet_until: now.wall_at(lane.quiet_until),
            consecutive_failures: lane.health.consecutive_failures,
        }
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::classify::FailureKind;
    use serde_json::{Value, json};

    use super::*;
    use posthaste_telemetry::metrics::LastFailure;

    /// Converts a message to JSON and back. Checks that its tag is the one that other versions know.
    fn round_trip<T: Serialize + for<'de> Deserialize<'de>>(
        message: &T,
        tag: &str,
        name: &str,
    ) -> T {
        let json = serde_json::to_value(message).expect("a message is plain data");
        assert_eq!(json[tag], name);
        serde_json::from_value(json).expect("it has the same format")
    }

    #[test]
    fn messages_survive_the_wire_format() {
        let (endpoint, delivery) = (TextId(EndpointId(7)), TextId(DeliveryId(8)));
        let questions = [
            NodeRequest::SetStatus {
                endpoint,
                status: WireStatus::Disabled,
                reason: Some(DisabledReason::Manual),
            },
            NodeRequest::Cancel { endpoint, delivery },
            NodeRequest::ViewLane { endpoint },
            NodeRequest::InFlightOf {
                deliveries: vec![delivery],
            },
            NodeRequest::AllInFlight,
            NodeRequest::TenantInFlight {
                tenant: TextId("acme".parse().expect("a valid tenant id")),
            },
            NodeRequest::UnwrittenCounters { of: WireScope::All },
            NodeRequest::UnwrittenCounters {
                of: WireScope::Tenant(TextId("acme".parse().expect("a valid tenant id"))),
            },
            NodeRequest::UnwrittenCounters {
                of: WireScope::Endpoint(endpoint),
            },
            NodeRequest::RecentAttempts {
                tenant: None,
                others: vec![endpoint],
            },
        ];
        let names = "stand cancel look aloft flights under_way pending pending pending lately";
        for (question, name) in questions.into_iter().zip(names.split(' ')) {
            assert_eq!(round_trip(&question, "ask", name), question);
        }
        let lane = LaneReport {
            breaker: BreakerReport::Tripped {
                until: Timestamp(5),
                reason: TripReason::FailureRatio,
            },
            in_flight: 2,
            quiet_until: Timestamp(6),
            consecutive_failures: 3,
        };
        let stats = EndpointStats {
            success_ratio: 0.5,
            p50_ms: Some(1.5),
            p99_ms: None,
        };
        let recent = RecentAttempts {
            attempts: 3,
            last_failure: Some(LastFailure {
                at: Timestamp(4),
                kind: FailureKind::Http,
                status_code: Some(503),
            }),
            ..RecentAttempts::default()
        };
        let replies = [
            NodeResponse::StatusSet,
            NodeResponse::Cancelled {
                outcome: Cancelled::TooLate,
            },
            NodeResponse::Lane {
                lane: Some(lane),
                stats,
            },
            NodeResponse::Deliveries {
                deliveries: vec![delivery],
            },
            NodeResponse::TenantInFlight { attempts: 2 },
            NodeResponse::UnwrittenCounters {
                flushes: 3,
                minutes: vec![(Timestamp(7), StatCounters::default())],
            },
            NodeResponse::RecentAttempts {
                endpoints: vec![(endpoint, recent)],
            },
            NodeResponse::NotOwner,
            NodeResponse::Unable {
                why: "full".to_owned(),
            },
            NodeResponse::NotUnderstood,
        ];
        let names = "stands cancelled lane deliveries under_way pending lately elsewhere unable not_understood";
        for (reply, name) in replies.into_iter().zip(names.split(' ')) {
            assert_eq!(round_trip(&reply, "answer", name), reply);
        }
    }

    #[test]
    fn messages_of_other_versions_are_accepted() {
        let newer = json!({"ask": "look", "endpoint": EndpointId(7).to_string(), "colour": "red"});
        let question: NodeRequest = serde_json::from_value(newer).expect("the request is known");
        assert_eq!(
            question,
            NodeRequest::ViewLane {
                endpoint: TextId(EndpointId(7))
            }
        );
        let unknown = |value: Value| serde_json::from_value::<NodeRequest>(value).is_err();
        assert!(unknown(json!({"ask": "sing"})));
        // An answer of an older version that has fewer fields is accepted.
        let older =
            json!({"answer": "pending", "flushes": 1, "minutes": [[60_000, {"attempts": 3}]]});
        let older: NodeResponse = serde_json::from_value(older).expect("a valid answer");
        let counters = StatCounters {
            attempts: 3,
            ..StatCounters::default()
        };
        let minutes = vec![(Timestamp(60_000), counters)];
        let flushes = 1;
        assert_eq!(older, NodeResponse::UnwrittenCounters { flushes, minutes });
        let strange: NodeResponse =
            serde_json::from_value(json!({"answer": "sung"})).expect("a valid answer");
        assert_eq!(strange, NodeResponse::NotUnderstood);
    }
}
