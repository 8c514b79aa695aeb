//! Reusable components of pages: buttons, badges, form fields, lists, charts, times.

mod badge;
mod button;
pub(super) mod chart;
mod field;
mod list;
mod policy_preview;
mod time;

pub(super) use badge::{BadgeKind, badge, delivery_badge, humanize};
pub(super) use button::{action_button, copy_button, copyable};
pub(super) use field::{Field, FieldErrors, csrf_field};
pub(super) use list::{empty_list, pager};
pub(super) use policy_preview::PolicyPreview;
pub(super) use time::{duration, time, to_the_second};
