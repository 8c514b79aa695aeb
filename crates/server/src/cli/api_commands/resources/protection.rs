//! The fields of `protection` that tenants and endpoints have in common.
//!
//! The other thresholds are set with the API.

use super::super::action::{Field, OptionKind, body};

pub(super) const REFUSALS: Field = body(
    "breaker-refusals",
    "protection.breaker.refusals",
    OptionKind::IntegerOrDefault,
    "Consecutive refusals (such as 404) that trip the breaker",
);

pub(super) const DISABLE_AFTER: Field = body(
    "disable-after",
    "protection.disable.after",
    OptionKind::DurationOrDefault,
    "Disable the endpoint after it has failed for this long, such as 5d",
);

pub(super) const DISABLE_WARN_BEFORE: Field = body(
    "disable-warn-before",
    "protection.disable.warn_before",
    OptionKind::DurationOrDefault,
    "Warn this long before disabling, such as 1d",
);

pub(super) const DISABLE_ON_GONE: Field = body(
    "disable-on-gone",
    "protection.disable.on_gone",
    OptionKind::Bool,
    "Disable the endpoint on the first 410 Gone; --disable-on-gone=false prevents it",
);
