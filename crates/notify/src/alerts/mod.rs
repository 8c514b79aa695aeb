//! Alerts: problems that need attention now. One node checks for them.
//!
//! Guarantees:
//!
//! - **Raised once.** An alert and its notification are written in one transaction, and there is at most one open alert
//!   per name and scope. So a restart, another node or a repeated round does not notify anyone twice.
//! - **State in the store.** Open alerts are read from the store in every round. Only the time since which a value has
//!   been normal is in memory; after a restart it takes a little longer until an alert is resolved.
//! - **No interference.** A round reads sums and a few rows every few seconds, and never blocks sending.
//!
//! | module | purpose |
//! |---|---|
//! | [`settings`] | interval, window and thresholds |
//! | [`readings`] | values of the alerts, from counters (pure) |
//! | [`course`] | current value, peak and end of an open alert (pure) |
//! | `checker` | reads values, lets the core decide, raises and resolves |
//! | `endpoint_alerts` | alerts of endpoints, derived from notifications |
//! | `held_back` | endpoints that limits hold back (pure) |
//! | `disk_space` | free space of the store (pure) |

mod checker;
pub mod course;
mod disk_space;
mod endpoint_alerts;
mod held_back;
pub mod readings;
pub mod settings;

#[cfg(test)]
mod tests;

pub use checker::AlertChecker;
pub use endpoint_alerts::EndpointAlerts;
pub use settings::AlertSettings;
