//! Requests and answers between nodes (node RPC).
//!
//! Nodes of different versions may share a store during an upgrade. So [`NodeRequest`] and [`NodeResponse`] are JSON:
//! an unknown request gets [`NodeResponse::NotUnderstood`], unknown fields are ignored, and missing fields have a
//! default where one makes sense.

use std::fmt::Display;
use std::str::FromStr;

use posthaste_core::dispatcher::{LaneView, LimitedEndpoint};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::{
    BreakerState, EndpointStatus, HeldBack, HeldBackBy, LimitsInForce, TripReason,
};
use posthaste_core::time::{Now, Span, Tick, Timestamp};
use posthaste_store::DisabledReason;
use posthaste_telemetry::metrics::{EndpointStats, RecentAttempts};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::CancelResult;

/// Maximum number of ids in one request, and in one answer.
pub(super) const MAX_IDS_PER_MESSAGE: usize = 10_000;

/// Maximum difference of two times that were computed from two readings of the clocks, in milliseconds.
const MAX_CLOCK_DIFFERENCE_MS: u64 = 50;

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
    /// Asks for the states of these endpoints.
    #[serde(rename = "lanes")]
    ViewLanes { endpoints: Vec<TextId<EndpointId>> },
    /// Asks for the endpoints that limits have held back for at least this time.
    #[serde(rename = "limited")]
    LimitedEndpoints { at_least_ms: u64 },
    /// Asks which of these deliveries are in flight.
    #[serde(rename = "aloft")]
    InFlightOf { deliveries: Vec<TextId<DeliveryId>> },
    /// Asks for all deliveries in flight.
    #[serde(rename = "flights")]
    AllInFlight,
    /// Asks for the number of attempts that a tenant has in flight.
    #[serde(rename = "under_way")]
    TenantInFlight { tenant: TextId<TenantId> },
    /// Asks for the deliveries that are held after repeated internal faults.
    HeldAfterFaults,
    /// Asks how long an outbox of the node has not been readable.
    Outboxes,
    /// Asks for counters that are not in the store yet. Only nodes of 0.1 have such counters and ask for them.
    #[serde(rename = "pending")]
    UnwrittenCounters {},
    /// Asks for the failing endpoints of all tenants or of one, and for the recent attempts of these others.
    #[serde(rename = "lately")]
    RecentAttempts {
        #[serde(default)]
        tenant: Option<TextId<TenantId>>,
        #[serde(default)]
        others: Vec<TextId<EndpointId>>,
    },
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum NodeResponse {
    /// The status is in force and persisted.
    #[serde(rename = "stands")]
    StatusSet,
    /// Outcome of the cancellation.
    Cancelled { outcome: CancelResult },
    /// State of the endpoint.
    Lane {
        #[serde(default)]
        lane: Option<LaneReport>,
        #[serde(rename = "figures")]
        stats: EndpointStats,
    },
    /// States of those of the endpoints that have a lane on this node.
    #[serde(rename = "lanes")]
    Lanes {
        lanes: Vec<(TextId<EndpointId>, LaneReport)>,
    },
    /// Endpoints that limits have held back, longest first.
    #[serde(rename = "limited")]
    LimitedEndpoints {
        endpoints: Vec<(TextId<EndpointId>, LimitedReport)>,
    },
    /// Deliveries in flight.
    Deliveries { deliveries: Vec<TextId<DeliveryId>> },
    /// Number of attempts in flight.
    #[serde(rename = "under_way")]
    TenantInFlight { attempts: u64 },
    /// Deliveries that are held after repeated internal faults, and their number with the unreadable ones.
    HeldAfterFaults {
        deliveries: Vec<TextId<DeliveryId>>,
        count: u64,
    },
    /// The longest time for which an outbox of the node has not been readable; absent if all are.
    Outboxes {
        #[serde(default)]
        unreadable_ms: Option<u64>,
    },
    /// Counters that are not in the store yet, by minute, and the number of writes so far: none, for nodes of 0.1.
    #[serde(rename = "pending")]
    UnwrittenCounters { flushes: u64, minutes: [u64; 0] },
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

/// The reason why deliveries of an endpoint are held back, with wall-clock times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBackReport {
    /// The reason.
    pub by: HeldBackBy,
    /// The earliest time at which it can end, if it is known.
    #[serde(default)]
    pub until: Option<Timestamp>,
}

/// Limits of an endpoint after adaptive protection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitsReport {
    /// Size of the in-flight window.
    pub in_flight: u32,
    /// Rate, in requests per second.
    pub per_second: f64,
}

impl From<LimitsInForce> for LimitsReport {
    fn from(limits: LimitsInForce) -> LimitsReport {
        LimitsReport {
            in_flight: limits.in_flight,
            per_second: limits.per_second,
        }
    }
}

/// A limit that has held deliveries of an endpoint back for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitedReport {
    /// The limit.
    pub by: HeldBackBy,
    /// Time for which limits have held deliveries back.
    pub duration_ms: u64,
    /// Number of other endpoints of the tenant on the same node that limits have held back for longer.
    #[serde(default)]
    pub rank: usize,
}

impl LimitedReport {
    pub(super) fn new(limited: &LimitedEndpoint) -> LimitedReport {
        LimitedReport {
            by: limited.by,
            duration_ms: limited.duration.as_millis(),
            rank: limited.rank,
        }
    }

    /// Returns the time for which limits have held deliveries back.
    pub fn duration(&self) -> Span {
        Span::from_millis(self.duration_ms)
    }
}

/// State of a lane, as its owner reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneReport {
    /// The breaker.
    pub breaker: BreakerReport,
    /// Number of attempts in flight.
    pub in_flight: u32,
    /// End of the pause that the receiver asked for.
    pub quiet_until: Timestamp,
    /// Consecutive failures of the destination.
    pub consecutive_failures: u32,
    /// The reason why a due delivery is not sent now.
    #[serde(default)]
    pub obstacle: Option<HeldBackReport>,
    /// The same, if deliveries wait for it.
    #[serde(default)]
    pub held_back: Option<HeldBackReport>,
    /// Limits in force. `None` if they are not known yet, or the owner is of a version that does not report them.
    #[serde(default)]
    pub limits: Option<LimitsReport>,
}

impl LaneReport {
    /// Converts a lane's state to wall-clock times.
    pub(super) fn new(lane: &LaneView, now: Now) -> LaneReport {
        // A time that is stored is reported as stored: two readings of two clocks differ by a few milliseconds.
        let stored = [
            lane.health.trip.map(|trip| trip.until),
            lane.health.quiet_until,
        ];
        let wall_at = |tick: Tick| {
            let at = now.wall_at(tick);
            let mut stored = stored.into_iter().flatten();
            stored.find(|stored| is_about(*stored, at)).unwrap_or(at)
        };
        let report = |held_back: HeldBack| HeldBackReport {
            by: held_back.by,
            until: held_back.until.map(wall_at),
        };
        LaneReport {
            breaker: match lane.breaker {
                BreakerState::Passing => BreakerReport::Passing,
                BreakerState::Tripped { until, reason } => BreakerReport::Tripped {
                    until: wall_at(until),
                    reason,
                },
                BreakerState::Probing { reason } => BreakerReport::Probing { reason },
            },
            in_flight: lane.in_flight,
            quiet_until: wall_at(lane.quiet_until),
            consecutive_failures: lane.health.consecutive_failures,
            obstacle: lane.obstacle.map(report),
            held_back: lane.held_back.map(report),
            limits: lane.limits.map(LimitsReport::from),
        }
    }
}

/// Returns true if the two times differ only because two clocks were read.
fn is_about(a: Timestamp, b: Timestamp) -> bool {
    a.0.abs_diff(b.0) <= MAX_CLOCK_DIFFERENCE_MS
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
            NodeRequest::ViewLanes {
                endpoints: vec![endpoint],
            },
            NodeRequest::LimitedEndpoints { at_least_ms: 9 },
            NodeRequest::InFlightOf {
                deliveries: vec![delivery],
            },
            NodeRequest::AllInFlight,
            NodeRequest::TenantInFlight {
                tenant: TextId("acme".parse().expect("a valid tenant id")),
            },
            NodeRequest::HeldAfterFaults,
            NodeRequest::Outboxes,
            NodeRequest::UnwrittenCounters {},
            NodeRequest::RecentAttempts {
                tenant: None,
                others: vec![endpoint],
            },
        ];
        let names = "stand cancel look lanes limited aloft flights under_way held_after_faults outboxes pending lately";
        for (question, name) in questions.into_iter().zip(names.split(' ')) {
            assert_eq!(round_trip(&question, "ask", name), question);
        }
        let held_back = HeldBackReport {
            by: HeldBackBy::RetryAfter,
            until: Some(Timestamp(6)),
        };
        let limited = LimitedReport {
            by: HeldBackBy::RateLimit,
            duration_ms: 300_000,
            rank: 1,
        };
        let lane = LaneReport {
            breaker: BreakerReport::Tripped {
                until: Timestamp(5),
                reason: TripReason::FailureRatio,
            },
            in_flight: 2,
            quiet_until: Timestamp(6),
            consecutive_failures: 3,
            obstacle: Some(held_back),
            held_back: Some(held_back),
            limits: Some(LimitsReport {
                in_flight: 10,
                per_second: 2.5,
            }),
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
                outcome: CancelResult::TooLate,
            },
            NodeResponse::Lane {
                lane: Some(lane.clone()),
                stats,
            },
            NodeResponse::Lanes {
                lanes: vec![(endpoint, lane)],
            },
            NodeResponse::LimitedEndpoints {
                endpoints: vec![(endpoint, limited)],
            },
            NodeResponse::Deliveries {
                deliveries: vec![delivery],
            },
            NodeResponse::TenantInFlight { attempts: 2 },
            NodeResponse::HeldAfterFaults {
                deliveries: vec![delivery],
                count: 3,
            },
            NodeResponse::Outboxes {
                unreadable_ms: Some(5),
            },
            NodeResponse::UnwrittenCounters {
                flushes: 0,
                minutes: [],
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
        let names = "stands cancelled lane lanes limited deliveries under_way held_after_faults outboxes pending lately elsewhere unable not_understood";
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
        // A node of 0.1 asks for the counters of a scope.
        let older = json!({"ask": "pending", "of": {"tenant": "acme"}});
        let older: NodeRequest = serde_json::from_value(older).expect("the request is known");
        assert_eq!(older, NodeRequest::UnwrittenCounters {});
        // An owner of an older version does not report what holds deliveries back.
        let older = json!({
            "answer": "lane",
            "lane": {"breaker": {"state": "passing"}, "in_flight": 2, "quiet_until": 6, "consecutive_failures": 0},
            "figures": {"success_ratio": 0.5, "p50_ms": null, "p99_ms": null},
        });
        let older: NodeResponse = serde_json::from_value(older).expect("a valid answer");
        let NodeResponse::Lane {
            lane: Some(lane), ..
        } = older
        else {
            panic!("{older:?}");
        };
        assert_eq!(
            (lane.obstacle, lane.held_back, lane.limits),
            (None, None, None)
        );
        let strange: NodeResponse =
            serde_json::from_value(json!({"answer": "sung"})).expect("a valid answer");
        assert_eq!(strange, NodeResponse::NotUnderstood);
    }
}
