//! The engine's inbox: every message to the engine task arrives here.
//!
//! Any thread can put a [`Message`] in, without waiting. The senders bound what [`Inbox`] holds: attempts and records
//! by the number of attempts in flight, fetches and sweeps by the dispatcher, requests by their connections. Only the hand-over of
//! new deliveries has no such bound. Beyond [`MAX_HANDED_OVER`] unprocessed deliveries, or [`MAX_HANDED_OVER_BYTES`] of
//! their payloads, the inbox keeps only the ids of the endpoints that have work in the store.

use std::sync::{Mutex, MutexGuard};

use posthaste_core::cluster::Shard;
use posthaste_core::dispatcher::{
    BreakerCounts, Input, LaneView, LimitedEndpoint, TenantDemand, Ticket,
};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::HeldBackBy;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{Done, HandOver, HandedOver, StoreError, Written};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, watch};

use super::attempt_result::AttemptResult;
use super::endpoint_cache::LoadedEndpoint;
use super::reply::{CancelResult, Reply};
use super::waiting_callers::StatusRequest;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::engine::inbox";

/// Maximum number of handed-over deliveries that wait in the inbox with their payloads.
pub(super) const MAX_HANDED_OVER: usize = 16_384;
/// Maximum total payload size of these deliveries, in bytes.
const MAX_HANDED_OVER_BYTES: usize = 32 * 1_024 * 1_024;

/// A message to the engine task.
pub(super) enum Message {
    /// An input that is passed to the dispatcher unchanged.
    Input(Input),
    /// Deliveries that were just committed.
    HandedOver(Vec<HandedOver>),
    /// An attempt has ended.
    AttemptEnded(AttemptResult),
    /// A record was written, or the write failed.
    Recorded {
        ticket: Ticket,
        result: Result<Written, StoreError>,
    },
    /// An endpoint was read from the store.
    Loaded(Box<LoadedEndpoint>),
    /// The configuration of an endpoint has changed.
    EndpointChanged(EndpointId),
    /// Settings of a tenant have changed that its endpoints inherit.
    TenantChanged(TenantId),
    /// Change notifications may have been lost: any endpoint may have changed.
    ChangesMissed,
    /// Deliveries were stored for these endpoints, due at these times.
    Work(Vec<(EndpointId, Timestamp)>),
    /// Result of the query for unfinished work.
    BacklogFound(Vec<(EndpointId, Timestamp)>),
    /// The store should be queried for unfinished work.
    PollBacklog,
    /// Shards were granted to this node.
    Granted(Vec<Shard>),
    /// Shards were revoked from this node.
    Revoked { shards: Vec<Shard>, done: Done<()> },
    /// The lease has ended. `losses` is the number of lease losses so far.
    LeaseLost { losses: u64 },
    /// Request to change the status of an endpoint.
    SetStatus {
        endpoint: EndpointId,
        request: StatusRequest,
    },
    /// Request to cancel a delivery.
    Cancel {
        endpoint: EndpointId,
        delivery: DeliveryId,
        reply: Reply<CancelResult>,
    },
    /// Request for a snapshot of a lane.
    ViewLane {
        endpoint: EndpointId,
        reply: Reply<Option<LaneView>>,
    },
    /// Request for snapshots of these lanes. Endpoints without a lane on this node are left out.
    ViewLanes {
        endpoints: Vec<EndpointId>,
        reply: Reply<Vec<(EndpointId, LaneView)>>,
    },
    /// Request for the number of endpoints that are held back, by reason.
    CountHeldBack {
        reply: Reply<Vec<(HeldBackBy, usize)>>,
    },
    /// Request for the endpoints that limits have held back for at least this time, longest first.
    ViewLimited {
        at_least: Span,
        max_endpoints: usize,
        reply: Reply<Vec<LimitedEndpoint>>,
    },
    /// Request for the number of breakers in each state.
    CountBreakers { reply: Reply<BreakerCounts> },
    /// An endpoint status was written, or the write failed.
    StatusWritten {
        endpoint: EndpointId,
        version: u64,
        result: Result<(), StoreError>,
    },
    /// The pause after a failed write of an endpoint status is over.
    RetryStatusWrite { endpoint: EndpointId, version: u64 },
    /// Request for the number of attempts that a tenant has in flight.
    TenantInFlight {
        tenant: TenantId,
        reply: Reply<usize>,
    },
    /// Request for the in-flight counts of limited tenants, and the number of lease losses so far.
    TenantDemand {
        reply: Reply<(u64, Vec<TenantDemand>)>,
    },
    /// Concurrency shares of these tenants. Valid only if the lease was not lost since they were requested.
    ConcurrencyShares {
        losses: u64,
        shares: Vec<(TenantId, u32)>,
    },
    /// Start no attempts any more.
    StopStarting,
    /// Start no attempts any more, and end when all attempts in flight are recorded.
    Shutdown,
}

#[derive(Default)]
struct Queue {
    messages: Vec<Message>,
    handed_over: usize,
    handed_over_bytes: usize,
    /// Endpoints with stored deliveries that were not handed over, and the earliest due time of those.
    overflow: FxHashMap<EndpointId, Timestamp>,
    /// The engine has ended: no message will be processed any more.
    is_closed: bool,
}

/// Messages to the engine task, in order of arrival.
pub(super) struct Inbox {
    queue: Mutex<Queue>,
    arrived: Notify,
    /// The error of the store, if it has failed.
    broken: watch::Sender<Option<StoreError>>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox {
            queue: Mutex::default(),
            arrived: Notify::new(),
            broken: watch::Sender::new(None),
        }
    }
}

impl Inbox {
    /// Puts a message in. After [`Inbox::close`] the message is dropped, and a caller waiting for its reply gets an
    /// error.
    pub(super) fn put(&self, message: Message) {
        let mut queue = self.lock();
        if queue.is_closed {
            // Not under the lock: dropping the message may wake a waiting caller.
            drop(queue);
            drop(message);
            return;
        }
        queue.messages.push(message);
        drop(queue);
        self.arrived.notify_one();
    }

    /// Drops all messages, those in the inbox and all later ones.
    pub(super) fn close(&self) {
        let mut queue = self.lock();
        queue.is_closed = true;
        let messages = std::mem::take(&mut queue.messages);
        queue.overflow.clear();
        drop(queue);
        drop(messages);
    }

    /// Waits until the store has failed, and returns its error.
    pub(super) async fn store_broken(&self) -> StoreError {
        let mut broken = self.broken.subscribe();
        let why = broken.wait_for(|broken| broken.is_some()).await;
        let why = why.expect("the inbox owns the sender").clone();
        why.expect("the wait ends when there is an error")
    }

    /// Moves all messages into `messages`, which should be empty.
    pub(super) fn empty_into(&self, messages: &mut Vec<Message>) {
        let mut queue = self.lock();
        std::mem::swap(&mut queue.messages, messages);
        queue.handed_over = 0;
        queue.handed_over_bytes = 0;
        let overflow = std::mem::take(&mut queue.overflow);
        drop(queue);
        if !overflow.is_empty() {
            messages.push(Message::Work(overflow.into_iter().collect()));
        }
    }

    /// Waits until a message is put in.
    pub(super) async fn message_arrived(&self) {
        self.arrived.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue
            .lock()
            .expect("no thread panics while it holds the lock")
    }
}

impl HandOver for Inbox {
    fn accepted(&self, deliveries: Vec<HandedOver>) {
        let mut queue = self.lock();
        if queue.is_closed {
            return;
        }
        // After one overflow everything behind it overflows too, until the inbox is emptied. This keeps the order.
        let has_room =
            queue.handed_over < MAX_HANDED_OVER && queue.handed_over_bytes < MAX_HANDED_OVER_BYTES;
        if queue.overflow.is_empty() && has_room {
            let payload_bytes = deliveries.iter().map(|it| it.content.payload.len());
            queue.handed_over_bytes += payload_bytes.sum::<usize>();
            queue.handed_over += deliveries.len();
            queue.messages.push(Message::HandedOver(deliveries));
        } else {
            for HandedOver { delivery, .. } in deliveries {
                let due = delivery.facts().due_at;
                let earliest = queue.overflow.entry(delivery.facts().endpoint);
                let earliest = earliest.or_insert(due);
                *earliest = due.min(*earliest);
            }
        }
        drop(queue);
        self.arrived.notify_one();
    }

    fn broken(&self, why: &StoreError) {
        tracing::error!(target: LOG_TARGET, error = %why, "the store has failed: nothing is accepted or sent until the server is restarted");
        self.broken.send_replace(Some(why.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use posthaste_core::delivery::Delivery;
    use posthaste_core::id::EventId;
    use posthaste_core::time::Span;
    use posthaste_store::Content;

    use super::*;

    #[test]
    fn large_payloads_overflow_to_the_store() {
        let inbox = Inbox::default();
        let payload = Bytes::from(vec![b'x'; 1_024 * 1_024]);
        for number in 0..100 {
            let (id, event) = (DeliveryId(number), EventId(number));
            let due = Timestamp(number as u64);
            let after = Span::from_hours(1);
            inbox.accepted(vec![HandedOver {
                delivery: Delivery::schedule(id, event, EndpointId(7), None, due, after),
                accepted_at: due,
                content: Arc::new(Content::new(
                    "a.b".parse().expect("a type"),
                    payload.clone(),
                )),
                received: None,
            }]);
        }
        let mut messages = Vec::new();
        inbox.empty_into(&mut messages);
        let kept = MAX_HANDED_OVER_BYTES / payload.len();
        assert_eq!(messages.len(), kept + 1);
        let Some(Message::Work(work)) = messages.pop() else {
            panic!("the endpoints with stored work are reported");
        };
        assert_eq!(work, [(EndpointId(7), Timestamp(kept as u64))]);
    }
}
