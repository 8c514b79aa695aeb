//! Removing what has been finished for long enough.

use posthaste_core::time::Timestamp;

use super::fault::Fault;
use super::scene::{Scene, missing};
use crate::{Retention, Tidied};

/// One step.
pub(super) async fn step(
    _scene: &mut Scene,
    _now: Timestamp,
    _retention: Retention,
) -> Result<Tidied, Fault> {
    missing()
}
