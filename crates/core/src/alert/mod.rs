//! Alerts: which problems are detected, when an alert is raised and when it is resolved.
//!
//! - **Raised once, resolved once.** An alert is raised when a reading is in its critical range, and resolved when
//!   readings have been out of it for a while. In between there is no further notification.
//! - **No flapping.** Readings that move in and out of the range keep the alert: only a lasting normal phase
//!   resolves it.
//! - **Enough samples.** A reading with too few samples raises no alert. A critical one does not resolve an alert
//!   either, because little traffic is not a recovery.
//! - **No decision without data.** While nothing can be read, nothing is raised or resolved.
//!
//! [`AlertPhase::after`] is a pure function: it takes the reading, the [`AlertRule`], the current state and the time, and
//! returns the new state and the [`AlertChange`].

mod name;
mod state;

pub use name::{AlertName, Measure, UnknownAlert};
pub use state::{AlertChange, AlertPhase, AlertRule, Bound, Reading};
