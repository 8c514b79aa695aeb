//! Decisions that every store makes in the same way, and the types that they need.
//!
//! A store outside this crate (the in-memory model in `posthaste-store-testing`) uses them through this module.

pub use crate::alert::{RAISED, RESOLVED};
pub use crate::audit::{first_kept, fitted};
pub use crate::dead_letters::rank;
pub use crate::failures::{DELIVERY_FAILED, FailureCause, FailureCount, Failures};
pub use crate::notifications::{
    EmailAfterSend, StoredEmail, StoredEmailLine, by_recipient, too_far_ahead,
};
pub use crate::owner_emails::{EmailUsage, StoredConfirmation, address_key, day_of, next_allowed};
pub use crate::retention::has_expired;
pub use crate::stats::{CountedScopes, StatChanges, by_bucket, of_attempt, of_dead_letter};
