//! Reusable components of pages: buttons, badges, questions, form fields, lists, charts, times, URLs.

mod badge;
mod button;
pub(super) mod chart;
mod confirm;
mod field;
mod list;
mod policy_preview;
mod time;
mod url;

pub(super) use badge::{BadgeKind, badge, delivery_badge, humanize};
pub(super) use button::{action_button, copy_button, copyable};
pub(super) use confirm::{Confirmation, is_confirmed};
pub(super) use field::{Field, FieldErrors, csrf_field};
pub(super) use list::{empty_list, pager};
pub(super) use policy_preview::PolicyPreview;
pub(super) use time::{duration, rounded_duration, time, time_with_ms, to_the_second};
pub(super) use url::url_text;
