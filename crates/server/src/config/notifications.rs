//! Reads the settings of notifications.

use posthaste_core::time::Span;
use posthaste_core::validation::Fields;
use posthaste_notify::notifications::NotificationSettings;

use super::fields::{parsed, set};

/// Maximum time that failures are collected. With a longer one, notifications would come too late.
const MAX_GATHER: Span = Span::from_hours(1);

pub(super) fn read(settings: &mut NotificationSettings, mut fields: Fields<'_, '_>) {
    let tenant = parsed(&mut fields, "tenant", str::parse);
    settings.tenant = tenant.or(settings.tenant.take());
    set(
        &mut settings.gather,
        fields.span("gather", Span::ZERO, MAX_GATHER),
    );
    fields.finish();
}
