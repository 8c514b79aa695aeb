//! Reusable components of pages.

mod button;
pub(super) mod chart;
mod field;
mod policy;
mod status;
mod table;
mod time;

pub(super) use button::{act, copied, copy};
pub(super) use field::{Field, Wrong};
pub(super) use policy::PolicyPreview;
pub(super) use status::{Mood, badge, delivery_badge, in_words};
pub(super) use table::{Listed, empty, pager};
pub(super) use time::{duration, time, to_the_second};
