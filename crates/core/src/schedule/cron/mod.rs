//! Cron expressions: five or six fields, evaluated in a time zone.
//!
//! [`CronExpression::parse`] reads an expression and reports all its mistakes, each with its position. The module
//! `occurrence` searches for the next time that matches, `words` describes an expression in English.
//!
//! | field | values | also |
//! |---|---|---|
//! | second (only with six fields) | 0–59 | |
//! | minute | 0–59 | |
//! | hour | 0–23 | |
//! | day of month | 1–31 | `L`: the last day; `?` is `*` |
//! | month | 1–12, `JAN`–`DEC` | |
//! | day of week | 0–7, `SUN`–`SAT`; 0 and 7 are Sunday | `FRIL` or `5L`: the last Friday; `MON#2`: the second Monday; `?` is `*` |
//!
//! Each field is `*`, a value, a range `a-b`, a step `*/n`, `a/n` or `a-b/n`, or a list of these. If both day fields are
//! restricted, a day matches when either of them does, as in every Unix cron.

mod field;
mod occurrence;
mod parse;
mod words;

pub use field::CronField;
pub use parse::{CronError, MAX_CRON_CHARS};

use field::{DaysOfWeek, Item};

/// A valid cron expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronExpression {
    fields: Fields,
    /// The bits of the values that match, by field.
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    /// The last day of the month matches.
    last_day: bool,
    months: u64,
    weekdays: DaysOfWeek,
}

/// The fields as they were written, without names and aliases.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fields {
    seconds: Vec<Item>,
    minutes: Vec<Item>,
    hours: Vec<Item>,
    days: Vec<Item>,
    months: Vec<Item>,
    weekdays: Vec<Item>,
}
