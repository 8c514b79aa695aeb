//! Where everything arrives that the engine has to hear of.
//!
//! Anybody may put something in, from any thread, and never waits. What the inbox holds is bounded by
//! those who put in: attempts and records by the number of flights, fetches and sweeps by the
//! dispatcher, requests by the connections they came in on. Only applications could outrun it: past
//! [`MAX_HANDED_OVER`] deliveries that nobody has looked at yet, the inbox remembers only which
//! endpoints have work on disk.

use std::sync::{Mutex, MutexGuard};

use posthaste_core::dispatcher::{BreakerCensus, Input, LaneView, Ticket};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::lane::Standing;
use posthaste_core::time::Timestamp;
use posthaste_store::{DisabledReason, HandOver, HandedOver, StoreError, Written};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot};

use super::cards::Loaded;
use super::courier::Return;
use super::handle::{Cancelled, EngineError};

/// How many deliveries may wait in the inbox with all they carry.
pub(super) const MAX_HANDED_OVER: usize = 16_384;

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
    /// Begin nothing new.
    Shutdown,
}

#[derive(Default)]
struct Waiting {
    messages: Vec<Message>,
    handed_over: usize,
    /// Endpoints with work on disk that was not handed over, and when the earliest of it is due.
    overflow: FxHashMap<EndpointId, Timestamp>,
}

/// What waits to be heard, in the order it came.
#[derive(Default)]
pub(super) struct Inbox {
    waiting: Mutex<Waiting>,
    bell: Notify,
}

impl Inbox {
    /// Puts something in.
    pub(super) fn put(&self, message: Message) {
        self.lock().messages.push(message);
        self.bell.notify_one();
    }

    /// Moves everything into `messages`, which should be empty.
    pub(super) fn empty_into(&self, messages: &mut Vec<Message>) {
        let mut waiting = self.lock();
        std::mem::swap(&mut waiting.messages, messages);
        waiting.handed_over = 0;
        let overflow = std::mem::take(&mut waiting.overflow);
        drop(waiting);
        let work = |(endpoint, due)| Message::Hear(Input::Work { endpoint, due });
        messages.extend(overflow.into_iter().map(work));
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
        // Once one has overflowed, so does everything behind it: order is kept.
        if waiting.overflow.is_empty() && waiting.handed_over < MAX_HANDED_OVER {
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
    }
}
