//! Everything posthaste decides.
//!
//! Nothing in this crate waits, speaks to a network or a disk, reads a clock or rolls dice of its
//! own: time and chance are arguments, and what should happen is returned as data. The server's
//! shell acts on it, and the simulator drives the very same code through years of bad weather in
//! seconds.
//!
//! | module | decides |
//! |---|---|
//! | [`policy`] | when to try again, and when to stop |
//! | [`classify`] | what an answer means, and whom it speaks about |
//! | [`delivery`] | which state may follow which |
//! | [`lane`] | whether one endpoint may be sent to now |
//! | [`dispatcher`] | who is sent to next, over all endpoints |
//! | [`cluster`] | which node owns which endpoints |
//! | [`ingest`] | whether an event is new |
//! | [`subscription`] | which endpoints want it |
//! | [`trace`] | whose trace it belongs to |
//! | [`sign`] | how a request proves where it came from |
//! | [`address`] | which destinations may be called at all |
//! | [`alert`] | what is wrong enough to wake somebody |

pub mod address;
pub mod alert;
pub mod allowance;
pub mod classify;
pub mod cluster;
pub mod delivery;
pub mod dice;
pub mod dispatcher;
pub mod id;
pub mod ingest;
pub mod json;
pub mod lane;
pub mod mistakes;
pub mod policy;
pub mod quoted;
pub mod sign;
pub mod subscription;
pub mod time;
pub mod trace;
