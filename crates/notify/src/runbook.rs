//! Addresses of the runbook: the section of each alert in `docs/operations.md`, which the server shows.
//!
//! A test checks that every alert has its section.

use posthaste_core::alert::AlertName;

/// Returns the path of the runbook section of an alert.
pub fn section(name: AlertName) -> String {
    format!("/docs/operations#{name}")
}
