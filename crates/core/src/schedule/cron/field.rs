//! The six fields of a cron expression, their values, and the sets of values that match.

use std::fmt;

/// A field of a cron expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CronField {
    /// Seconds, the first of six fields.
    Second,
    /// Minutes.
    Minute,
    /// Hours.
    Hour,
    /// Days of the month.
    DayOfMonth,
    /// Months.
    Month,
    /// Days of the week.
    DayOfWeek,
}

/// Names of the months, as cron expressions abbreviate them.
const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
/// Names of the weekdays, from Sunday.
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl CronField {
    /// The fields of an expression with six fields, in their order.
    pub const ALL: [CronField; 6] = [
        CronField::Second,
        CronField::Minute,
        CronField::Hour,
        CronField::DayOfMonth,
        CronField::Month,
        CronField::DayOfWeek,
    ];

    /// Returns the smallest and the largest number that may be written.
    pub(super) fn range(self) -> (u8, u8) {
        match self {
            CronField::Second | CronField::Minute => (0, 59),
            CronField::Hour => (0, 23),
            CronField::DayOfMonth => (1, 31),
            CronField::Month => (1, 12),
            CronField::DayOfWeek => (0, 7),
        }
    }

    /// Returns the largest value; Sunday is 0.
    pub(super) fn largest(self) -> u8 {
        match self {
            CronField::DayOfWeek => 6,
            CronField::Second
            | CronField::Minute
            | CronField::Hour
            | CronField::DayOfMonth
            | CronField::Month => self.range().1,
        }
    }

    /// Returns the number of different values.
    pub(super) fn values(self) -> u8 {
        self.largest() - self.range().0 + 1
    }

    /// Returns the value of a name, in any case.
    pub(super) fn named(self, text: &str) -> Option<u8> {
        let position = |names: &[&str]| {
            let found = names
                .iter()
                .position(|name| name.eq_ignore_ascii_case(text));
            found.map(|index| index as u8)
        };
        match self {
            CronField::Month => position(&MONTHS).map(|index| index + 1),
            CronField::DayOfWeek => position(&WEEKDAYS),
            CronField::Second | CronField::Minute | CronField::Hour | CronField::DayOfMonth => None,
        }
    }

    /// Returns the values in words, for messages.
    pub(super) fn allowed(self) -> &'static str {
        match self {
            CronField::Second | CronField::Minute => "a number from 0 to 59",
            CronField::Hour => "a number from 0 to 23",
            CronField::DayOfMonth => "a number from 1 to 31, or L for the last day",
            CronField::Month => "a number from 1 to 12, or a name from JAN to DEC",
            CronField::DayOfWeek => {
                "a number from 0 (Sunday) to 7 (Sunday), or a name from SUN to SAT"
            }
        }
    }
}

impl fmt::Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CronField::Second => "second",
            CronField::Minute => "minute",
            CronField::Hour => "hour",
            CronField::DayOfMonth => "day of month",
            CronField::Month => "month",
            CronField::DayOfWeek => "day of week",
        })
    }
}

/// One item of the list in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Every value, or every `step`th from the smallest.
    All { step: u8 },
    /// One value.
    Value(u8),
    /// Every `step`th value of a range. In days of the week, `to` may be 7 for Sunday.
    Range { from: u8, to: u8, step: u8 },
    /// The last day of the month.
    LastDay,
    /// The last such weekday of the month.
    LastWeekday(u8),
    /// The first to fifth such weekday of the month.
    NthWeekday { weekday: u8, nth: u8 },
}

impl Item {
    /// Returns the values of the item as bits. The items that depend on the month have none.
    pub(super) fn bits(self, field: CronField) -> u64 {
        let range = |from: u8, to: u8, step: u8| {
            let values = (from..=to).step_by(usize::from(step));
            values.fold(0, |bits, value| bits | 1 << value)
        };
        let bits = match self {
            Item::All { step } => range(field.range().0, field.largest(), step),
            Item::Value(value) => 1 << value,
            Item::Range { from, to, step } => range(from, to, step),
            Item::LastDay | Item::LastWeekday(_) | Item::NthWeekday { .. } => 0,
        };
        match field {
            CronField::DayOfWeek => bits & 0x7f | bits >> 7 & 1,
            CronField::Second
            | CronField::Minute
            | CronField::Hour
            | CronField::DayOfMonth
            | CronField::Month => bits,
        }
    }
}

/// Returns the bits of all values of a field.
pub(super) fn all_values(field: CronField) -> u64 {
    Item::All { step: 1 }.bits(field)
}

/// The days of the week that match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DaysOfWeek {
    /// These weekdays, as bits from Sunday.
    pub(super) every: u64,
    /// These weekdays, the last time that they occur in a month.
    pub(super) last: u64,
    /// These weekdays the nth time that they occur in a month, at index nth - 1.
    pub(super) nth: [u64; 5],
}

impl DaysOfWeek {
    pub(super) fn of(items: &[Item]) -> DaysOfWeek {
        let mut days = DaysOfWeek::default();
        for item in items {
            match *item {
                Item::LastWeekday(weekday) => days.last |= 1 << weekday,
                Item::NthWeekday { weekday, nth } => {
                    days.nth[usize::from(nth) - 1] |= 1 << weekday;
                }
                Item::All { .. } | Item::Value(_) | Item::Range { .. } | Item::LastDay => {
                    days.every |= item.bits(CronField::DayOfWeek);
                }
            }
        }
        days
    }
}
