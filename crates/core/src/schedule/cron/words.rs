//! Describes a cron expression in English: `At 09:00, Monday through Friday`.

use super::CronExpression;
use super::field::{CronField, Item};

/// Maximum number of times of the day that are listed one by one.
const MAX_LISTED_TIMES: usize = 6;

const MONTH_NAMES: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAY_NAMES: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const ORDINALS: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];

impl CronExpression {
    /// Returns the expression in words, without the time zone.
    pub fn words(&self) -> String {
        let mut parts = vec![self.time_words()];
        parts.extend(self.day_words());
        parts.extend(self.month_words());
        capitalized(&parts.join(", "))
    }

    fn time_words(&self) -> String {
        if let Some(times) = self.listed_times() {
            return format!("at {}", and_list(&times));
        }
        let mut parts = Vec::new();
        let is_on_the_minute = self.fields.seconds == [Item::Value(0)];
        if !is_on_the_minute {
            parts.push(unit_words(
                CronField::Second,
                &self.fields.seconds,
                "second",
                "minute",
            ));
        }
        let is_on_the_hour = self.fields.minutes == [Item::Value(0)];
        let is_any_minute = is_all(&self.fields.minutes);
        match (is_on_the_minute, is_on_the_hour, is_any_minute) {
            (true, true, _) => return self.whole_hour_words(),
            (false, _, true) => {}
            (true, false, _) | (false, true, _) | (false, false, false) => {
                parts.push(unit_words(
                    CronField::Minute,
                    &self.fields.minutes,
                    "minute",
                    "hour",
                ));
            }
        }
        parts.extend(self.hour_words());
        parts.join(", ")
    }

    /// Returns the words for an expression that runs at whole hours.
    fn whole_hour_words(&self) -> String {
        match self.fields.hours.as_slice() {
            [Item::All { step: 1 }] => "every hour".to_owned(),
            [Item::All { step }] => format!("every {step} hours"),
            [Item::Range { from, to, step: 1 }] => {
                format!("every hour from {from:02}:00 through {to:02}:00")
            }
            [Item::Range { from, to, step }] => {
                format!("every {step} hours from {from:02}:00 through {to:02}:00")
            }
            hours => {
                let hours: Vec<String> = hours.iter().map(|hour| hour_item(*hour)).collect();
                format!("at {}", and_list(&hours))
            }
        }
    }

    fn hour_words(&self) -> Option<String> {
        match self.fields.hours.as_slice() {
            [Item::All { step: 1 }] => None,
            [Item::All { step }] => Some(format!("every {step} hours")),
            [Item::Value(hour)] => Some(format!("between {hour:02}:00 and {hour:02}:59")),
            [Item::Range { from, to, step: 1 }] => {
                Some(format!("between {from:02}:00 and {to:02}:59"))
            }
            hours => {
                let hours: Vec<String> = hours.iter().map(|hour| hour_item(*hour)).collect();
                Some(format!("in the hours {}", and_list(&hours)))
            }
        }
    }

    /// Returns the times of the day if there are few of them.
    fn listed_times(&self) -> Option<Vec<String>> {
        let hours = values(&self.fields.hours)?;
        let minutes = values(&self.fields.minutes)?;
        let seconds = values(&self.fields.seconds)?;
        if hours.len() * minutes.len() * seconds.len() > MAX_LISTED_TIMES {
            return None;
        }
        let mut times = Vec::new();
        for hour in &hours {
            for minute in &minutes {
                for second in &seconds {
                    times.push(match (seconds.as_slice(), second) {
                        ([0], _) => format!("{hour:02}:{minute:02}"),
                        (_, second) => format!("{hour:02}:{minute:02}:{second:02}"),
                    });
                }
            }
        }
        Some(times)
    }

    fn day_words(&self) -> Option<String> {
        let days = self.restricts_days().then(|| day_items(&self.fields.days));
        let weekdays = self
            .restricts_weekdays()
            .then(|| weekday_items(&self.fields.weekdays));
        match (days, weekdays) {
            (Some(days), Some(weekdays)) => {
                let on = match weekdays.starts_with("on ") {
                    true => "",
                    false => "on ",
                };
                Some(format!("{days} or {on}{weekdays}"))
            }
            (days, weekdays) => days.or(weekdays),
        }
    }

    fn month_words(&self) -> Option<String> {
        match self.fields.months.as_slice() {
            [Item::All { step: 1 }] => None,
            [Item::All { step }] => Some(format!("every {step} months")),
            [Item::Range { from, to, step: 1 }] => {
                Some(format!("{} through {}", month(*from), month(*to)))
            }
            items => {
                let months = items.iter().map(|item| span_item(*item, month, "month"));
                Some(format!("in {}", and_list(&months.collect::<Vec<_>>())))
            }
        }
    }
}

/// Returns the words for seconds or minutes.
fn unit_words(field: CronField, items: &[Item], unit: &str, of: &str) -> String {
    match items {
        [Item::All { step: 1 }] => format!("every {unit}"),
        [Item::All { step }] => format!("every {step} {unit}s"),
        [Item::Range { from, to, step }] if *from == 0 && *to == field.largest() => {
            format!("every {step} {unit}s")
        }
        [Item::Range { from, to, step: 1 }] => {
            format!("{unit}s {from} through {to} past the {of}")
        }
        [Item::Value(1)] => format!("at 1 {unit} past the {of}"),
        items => {
            let plain = |value: u8| value.to_string();
            let parts: Vec<String> = items
                .iter()
                .map(|item| span_item(*item, plain, unit))
                .collect();
            format!("at {} {unit}s past the {of}", and_list(&parts))
        }
    }
}

fn hour_item(item: Item) -> String {
    span_item(item, |hour| format!("{hour:02}:00"), "hour")
}

fn day_items(items: &[Item]) -> String {
    match items {
        [Item::All { step }] => format!("every {step} days of the month"),
        [Item::LastDay] => "on the last day of the month".to_owned(),
        [Item::Range { from, to, step: 1 }] => {
            format!("on days {from} through {to} of the month")
        }
        [Item::Value(day)] => format!("on day {day} of the month"),
        items => {
            let plain = |value: u8| value.to_string();
            let parts: Vec<String> = items
                .iter()
                .map(|item| span_item(*item, plain, "day"))
                .collect();
            format!("on days {} of the month", and_list(&parts))
        }
    }
}

fn weekday_items(items: &[Item]) -> String {
    match items {
        [Item::Range { from, to, step: 1 }] => {
            format!("{} through {}", weekday(*from), weekday(*to))
        }
        items => {
            let parts: Vec<String> = items.iter().map(|item| weekday_item(*item)).collect();
            format!("on {}", and_list(&parts))
        }
    }
}

fn weekday_item(item: Item) -> String {
    match item {
        Item::LastWeekday(day) => format!("the last {} of the month", weekday(day)),
        Item::NthWeekday { weekday: day, nth } => {
            let ordinal = ORDINALS[usize::from(nth) - 1];
            format!("the {ordinal} {} of the month", weekday(day))
        }
        Item::All { .. } | Item::Value(_) | Item::Range { .. } | Item::LastDay => {
            span_item(item, weekday, "day")
        }
    }
}

/// Returns the words for a value or a range.
fn span_item(item: Item, name: impl Fn(u8) -> String, unit: &str) -> String {
    match item {
        Item::All { step } => format!("every {step} {unit}s"),
        Item::Value(value) => name(value),
        Item::Range { from, to, step: 1 } => format!("{} through {}", name(from), name(to)),
        Item::Range { from, to, step } => {
            format!(
                "every {step} {unit}s from {} through {}",
                name(from),
                name(to)
            )
        }
        Item::LastDay | Item::LastWeekday(_) | Item::NthWeekday { .. } => {
            format!("the last {unit}")
        }
    }
}

/// Returns the values of a list, ascending, if it has only single values.
fn values(items: &[Item]) -> Option<Vec<u8>> {
    let single = items.iter().map(|item| match item {
        Item::Value(value) => Some(*value),
        Item::All { .. }
        | Item::Range { .. }
        | Item::LastDay
        | Item::LastWeekday(_)
        | Item::NthWeekday { .. } => None,
    });
    let mut values: Vec<u8> = single.collect::<Option<_>>()?;
    values.sort_unstable();
    values.dedup();
    Some(values)
}

fn is_all(items: &[Item]) -> bool {
    items == [Item::All { step: 1 }]
}

fn month(number: u8) -> String {
    MONTH_NAMES[usize::from(number) - 1].to_owned()
}

fn weekday(number: u8) -> String {
    WEEKDAY_NAMES[usize::from(number) % 7].to_owned()
}

fn and_list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}
