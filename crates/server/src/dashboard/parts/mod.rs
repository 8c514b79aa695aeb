//! What pages are built from.

mod button;
mod status;
mod table;
mod time;

pub(super) use button::{act, copied};
pub(super) use status::{Mood, badge, delivery_badge, in_words};
pub(super) use table::{Listed, empty, pager};
pub(super) use time::{duration, time};
