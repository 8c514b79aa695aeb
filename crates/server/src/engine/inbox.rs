//! Where everything arrives that the engine has to hear of.
//!
//! Anybody may put something in, from any thread, and never waits. What the inbox holds is bounded by
//! those who put in: attempts and records by the number of flights, fetches and sweeps by the
//! dispatcher, requests by the connections they came in on. Only applications could outrun it: past
//! [`MAX_HANDED_OVER`] deliveries or [`MAX_HANDED_OVER_BYTES`] that nobody has looked at yet, the inbox
//! remembers only which endpoints have work on disk.

use std::sync::{Mutex, MutexGuard};

use posthaste_core::cluster::Shard;
use posthaste_core::dispatcher::{BreakerCensus, Crowd, Input, LaneView, Ticket};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::Standing;
use posthaste_core::time::Timestamp;
use posthaste_store::{DisabledReason, Done, HandOver, HandedOver, StoreError, Written};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot, watch};

use super::cards::Loaded;
use super::courier::Return;
use super::handle::{Cancelled, EngineError};

/// How many deliveries may wait in the inbox with all they carry.
pub(super) const MAX_HANDED_OVER: usize = 16_384;
/// How much these may carry.
const MAX_HANDED_OVER_BYTES: usize = 32 * 1_024 * 1_024;

/// Answers somebody who waits.
pub(super) type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

/// Something the engine has to hear of.
pub(super) enum Message {
    /// An answer that the dispatcher takes as it is.
    Hear(Input),
    /// What was just committed.
    HandedOver(Vec<HandedOver>),
    /// An attempt is over.
    Returned(Return),
    /// A record was written, or was not.
    Recorded {
        ticket: Ticket,
        result: Result<Written, StoreError>,
    },
    /// An endpoint was read from the store.
    Loaded(Box<Loaded>),
    /// How an endpoint is configured was changed.
    Changed(EndpointId),
    /// What a tenant's endpoints inherit was changed.
    TenantChanged(TenantId),
    /// Anything may have been changed.
    Missed,
    /// Something was put on disk.
    Work(Vec<(EndpointId, Timestamp)>),
    /// What waits, as the store was asked.
    Found(Vec<(EndpointId, Timestamp)>),
    /// It is time to ask what waits.
    Poll,
    /// Shards are this node's from now on.
    Granted(Vec<Shard>),
    /// Shards are to be given up.
    Recalled { shards: Vec<Shard>, done: Done<()> },
    /// The lease has ended, for the so-manieth time.
    Expired { losses: u64 },
    /// Somebody wants an endpoint to stand otherwise.
    Stand {
        endpoint: EndpointId,
        standing: Standing,
        reason: Option<DisabledReason>,
        reply: Reply<()>,
    },
    /// Somebody wants a delivery called off.
    Cancel {
        endpoint: EndpointId,
        delivery: DeliveryId,
        reply: Reply<Cancelled>,
    },
    /// Somebody wants to look at a lane.
    Look {
        endpoint: EndpointId,
        reply: Reply<Option<LaneView>>,
    },
    /// Somebody wants to know how the breakers are.
    Census { reply: Reply<BreakerCensus> },
    /// A standing was written down, or was not.
    Stood {
        endpoint: EndpointId,
        decree: u64,
        result: Result<(), StoreError>,
    },
    /// A standing could not be written down a while ago.
    StandAgain { endpoint: EndpointId, decree: u64 },
    /// Somebody wants to know how many attempts a tenant has under way.
    UnderWay {
        tenant: TenantId,
        reply: Reply<usize>,
    },
    /// Somebody wants to know what limited tenants have under way, and how often everything was lost before.
    Crowds { reply: Reply<(u64, Vec<Crowd>)> },
    /// This node may have so many of these tenants' under way; unless everything was lost since it asked.
    Room {
        losses: u64,
        rooms: Vec<(TenantId, u32)>,
    },
    /// Begin nothing new.
    CalmDown,
    /// The same, and end when what was begun is written down.
    Shutdown,
}

#[derive(Default)]
struct Waiting {
    messages: Vec<Message>,
    handed_over: usize,
    handed_over_bytes: usize,
    /// Endpoints with work on disk that was not handed over, and when the earliest of it is due.
    overflow: FxHashMap<EndpointId, Timestamp>,
    /// Nobody will look any more.
    closed: bool,
}

/// What waits to be heard, in the order it came.
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    bell: Notify,
    /// Why the store has failed, if it has.
    broken: watch::Sender<Option<StoreError>>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox {
            waiting: Mutex::default(),
            bell: Notify::new(),
            broken: watch::Sender::new(None),
        }
    }
}

impl Inbox {
    /// Puts something in. Once it is closed that is thrown away, and whoever waits for a reply is told.
    pub(super) fn put(&self, message: Message) {
        let mut waiting = self.lock();
        if waiting.closed {
            // Not under the lock: what is thrown away may wake somebody.
            drop(waiting);
            drop(message);
            return;
        }
        waiting.messages.push(message);
        drop(waiting);
        self.bell.notify_one();
    }

    /// Throws everything away, now and from now on.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        let messages = std::mem::take(&mut waiting.messages);
        waiting.overflow.clear();
        drop(waiting);
        drop(messages);
    }

    /// Waits until the store has failed, and says why.
    pub(super) async fn store_broken(&self) -> StoreError {
        let mut broken = self.broken.subscribe();
        let why = broken.wait_for(|broken| broken.is_some()).await;
        let why = why.expect("the sender is ours").clone();
        why.expect("it was waited for")
    }

    /// Moves everything into `messages`, which should be empty.
    pub(super) fn empty_into(&self, messages: &mut Vec<Message>) {
        let mut waiting = self.lock();
        std::mem::swap(&mut waiting.messages, messages);
        waiting.handed_over = 0;
        waiting.handed_over_bytes = 0;
        let overflow = std::mem::take(&mut waiting.overflow);
        drop(waiting);
        if !overflow.is_empty() {
            messages.push(Message::Work(overflow.into_iter().collect()));
        }
    }

    /// Waits until something is put in.
    pub(super) async fn rung(&self) {
        self.bell.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nobody panics while holding it")
    }
}

impl HandOver for Inbox {
    fn accepted(&self, deliveries: Vec<HandedOver>) {
        let mut waiting = self.lock();
        if waiting.closed {
            return;
        }
        // Once one has overflowed, so does everything behind it: order is kept.
        let has_room = waiting.handed_over < MAX_HANDED_OVER
            && waiting.handed_over_bytes < MAX_HANDED_OVER_BYTES;
        if waiting.overflow.is_empty() && has_room {
            let carried = deliveries.iter().map(|it| it.content.payload.len());
            waiting.handed_over_bytes += carried.sum::<usize>();
            waiting.handed_over += deliveries.len();
            waiting.messages.push(Message::HandedOver(deliveries));
        } else {
            for HandedOver { delivery, .. } in deliveries {
                let due = delivery.facts().due_at;
                let earliest = waiting.overflow.entry(delivery.facts().endpoint);
                let earliest = earliest.or_insert(due);
                *earliest = due.min(*earliest);
            }
        }
        drop(waiting);
        self.bell.notify_one();
    }

    fn broken(&self, why: &StoreError) {
        tracing::error!(error = %why, "the store has failed: nothing is accepted or sent until the server is started again");
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
    fn what_carries_much_soon_stays_on_disk() {
        let inbox = Inbox::default();
        let payload = Bytes::from(vec![b'x'; 1_024 * 1_024]);
        for number in 0..100 {
            let (id, event) = (DeliveryId(number), EventId(number));
            let due = Timestamp(number as u64);
            let after = Span::from_hours(1);
            inbox.accepted(vec![HandedOver {
                delivery: Delivery::schedule(id, event, EndpointId(7), None, due, after),
                accepted_at: due,
                content: Arc::new(Content {
                    event_type: "a.b".parse().expect("a type"),
                    content_type: None,
                    payload: payload.clone(),
                    trace: None,
                }),
                received: None,
            }]);
        }
        let mut messages = Vec::new();
        inbox.empty_into(&mut messages);
        let kept = MAX_HANDED_OVER_BYTES / payload.len();
        assert_eq!(messages.len(), kept + 1);
        let Some(Message::Work(work)) = messages.pop() else {
            panic!("the rest is not heard of");
        };
        assert_eq!(work, [(EndpointId(7), Timestamp(kept as u64))]);
    }
}
