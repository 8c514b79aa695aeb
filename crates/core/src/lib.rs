//! The decision logic of posthaste, as pure code.
//!
//! Nothing in this crate waits, does network or disk I/O, reads a clock or creates randomness. Time and the random
//! number generator are parameters, and decisions are returned as data. The server's engine executes them, and the
//! simulator runs the same code in virtual time.
//!
//! | module | decides |
//! |---|---|
//! | [`policy`] | when to retry a delivery, and when it fails for good |
//! | [`classify`] | what a response means, and whether it concerns the delivery or the destination |
//! | [`delivery`] | which delivery state may follow which |
//! | [`lane`] | whether an attempt to one endpoint may start now |
//! | [`dispatcher`] | which delivery is attempted next, over all endpoints |
//! | [`cluster`] | which node owns which endpoints |
//! | [`ingest`] | which events of a request are new, by idempotency key |
//! | [`quota`] | whether a tenant may send another event |
//! | [`subscription`] | which endpoints want an event |
//! | [`trace`] | which trace an event and its requests belong to |
//! | [`sign`] | how a request proves its origin |
//! | [`address`] | which destinations may be called at all |
//! | [`forecast`] | how an outage would go under a retry policy |
//! | [`outbox`] | which rows of an application's outbox become events now |
//! | [`alert`] | which problems need the operator's attention |
//!
//! The other modules are what these share: [`id`], [`time`] and [`rng`], strict [`json`] with the collected errors of
//! [`validation`], [`quoted`] input in messages, [`secret`] text, and the [`event_queue`] of virtual time.

pub mod address;
pub mod alert;
pub mod classify;
pub mod cluster;
pub mod delivery;
pub mod dispatcher;
pub mod event_queue;
pub mod forecast;
pub mod id;
pub mod ingest;
pub mod json;
pub mod lane;
pub mod outbox;
pub mod policy;
pub mod quota;
pub mod quoted;
pub mod rng;
pub mod secret;
pub mod sign;
pub mod subscription;
pub mod suggestion;
pub mod time;
pub mod trace;
pub mod validation;
