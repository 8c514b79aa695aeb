//! Parses a cron expression and collects all its mistakes.
//!
//! A mistake names the field, its position in the text, the reason, and what to write instead. Positions count
//! characters from 1.

use std::fmt;

use super::field::{CronField, DaysOfWeek, Item, all_values};
use super::{CronExpression, Fields};
use crate::quoted::quoted;

/// Maximum length of a cron expression, in characters.
pub const MAX_CRON_CHARS: usize = 256;

/// The expressions that have a name of their own.
const ALIASES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// A mistake in a cron expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronError {
    /// The field, unless the expression has another number of fields.
    pub field: Option<CronField>,
    /// Position of the mistake in the text, in characters from 1.
    pub position: usize,
    /// The reason, and what to write instead.
    pub reason: String,
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field {
            Some(field) => write!(f, "{field}, position {}: {}", self.position, self.reason),
            None => write!(f, "position {}: {}", self.position, self.reason),
        }
    }
}

impl std::error::Error for CronError {}

impl CronExpression {
    /// Parses an expression. The errors are all its mistakes, in the order of the text.
    pub fn parse(text: &str) -> Result<CronExpression, Vec<CronError>> {
        if text.chars().count() > MAX_CRON_CHARS {
            let reason = format!("is too long; write at most {MAX_CRON_CHARS} characters");
            return Err(vec![whole(reason)]);
        }
        let text = expand_alias(text)?;
        let words = words_of(text);
        let fields = match words.len() {
            5 => &CronField::ALL[1..],
            6 => &CronField::ALL[..],
            count => return Err(vec![wrong_count(count)]),
        };
        let mut errors = Vec::new();
        let mut items: [Vec<Item>; 6] = Default::default();
        items[0] = vec![Item::Value(0)];
        let offset = CronField::ALL.len() - fields.len();
        for (index, (field, word)) in fields.iter().zip(&words).enumerate() {
            items[index + offset] = parse_field(*field, word, &mut errors);
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let expression = CronExpression::of(items);
        match expression.ever_matches() {
            true => Ok(expression),
            false => Err(vec![never(&words[words.len() - 3])]),
        }
    }

    fn of(items: [Vec<Item>; 6]) -> CronExpression {
        let [seconds, minutes, hours, days, months, weekdays] = items;
        let bits = |field: CronField, items: &[Item]| {
            let all = items.iter().map(|item| item.bits(field));
            all.fold(0, |bits, more| bits | more)
        };
        CronExpression {
            seconds: bits(CronField::Second, &seconds),
            minutes: bits(CronField::Minute, &minutes),
            hours: bits(CronField::Hour, &hours),
            days: bits(CronField::DayOfMonth, &days),
            last_day: days.contains(&Item::LastDay),
            months: bits(CronField::Month, &months),
            weekdays: DaysOfWeek::of(&weekdays),
            fields: Fields {
                seconds,
                minutes,
                hours,
                days,
                months,
                weekdays,
            },
        }
    }

    /// Returns true if every hour matches.
    pub(super) fn is_every_hour(&self) -> bool {
        self.hours == all_values(CronField::Hour)
    }

    /// Returns true if not every day of the month matches.
    pub(super) fn restricts_days(&self) -> bool {
        self.days != all_values(CronField::DayOfMonth)
    }

    /// Returns true if not every day of the week matches.
    pub(super) fn restricts_weekdays(&self) -> bool {
        self.weekdays.every != all_values(CronField::DayOfWeek)
    }
}

fn whole(reason: String) -> CronError {
    CronError {
        field: None,
        position: 1,
        reason,
    }
}

fn never(days: &Word<'_>) -> CronError {
    CronError {
        field: Some(CronField::DayOfMonth),
        position: days.position,
        reason: "never runs: no month in the month field has such a day; write L for the last day of a month"
            .to_owned(),
    }
}

fn wrong_count(count: usize) -> CronError {
    let form = "write five fields (minute, hour, day of month, month, day of week), six with seconds first, or a name such as @daily";
    let reason = match count {
        0 => format!("is empty; {form}"),
        1 => format!("has only one field; {form}"),
        7 => format!("has 7 fields; a year is not supported: use ends_at and {form}"),
        count => format!("has {count} fields; {form}"),
    };
    whole(reason)
}

/// Returns the expression that an alias stands for, and any other text unchanged.
fn expand_alias(text: &str) -> Result<&str, Vec<CronError>> {
    let name = text.trim();
    if !name.starts_with('@') {
        return Ok(text);
    }
    let mut all = ALIASES.iter();
    let found = all.find(|(alias, _)| alias.eq_ignore_ascii_case(name));
    found.map(|(_, expression)| *expression).ok_or_else(|| {
        let known: Vec<&str> = ALIASES.iter().map(|(alias, _)| *alias).collect();
        let hint = match name.to_ascii_lowercase().starts_with("@every") {
            true => "; for a fixed interval, use \"every\" instead of \"cron\"",
            false => "",
        };
        let reason = format!(
            "{} is not a known name; write one of {}{hint}",
            quoted(name),
            known.join(", ")
        );
        vec![whole(reason)]
    })
}

/// A part of the expression, with its position.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    text: &'a str,
    position: usize,
}

fn words_of(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut start: Option<(usize, usize)> = None;
    for (position, (byte, character)) in text.char_indices().enumerate() {
        match (character.is_whitespace(), start) {
            (false, None) => start = Some((byte, position + 1)),
            (true, Some((from, position))) => {
                words.push(Word {
                    text: &text[from..byte],
                    position,
                });
                start = None;
            }
            (false, Some(_)) | (true, None) => {}
        }
    }
    if let Some((from, position)) = start {
        words.push(Word {
            text: &text[from..],
            position,
        });
    }
    words
}

/// Parses the list in a field.
fn parse_field(field: CronField, word: &Word<'_>, errors: &mut Vec<CronError>) -> Vec<Item> {
    let mut items = Vec::new();
    let mut position = word.position;
    for text in word.text.split(',') {
        match parse_item(field, text) {
            Ok(item) => items.push(item),
            Err(reason) => errors.push(CronError {
                field: Some(field),
                position,
                reason,
            }),
        }
        position += text.chars().count() + 1;
    }
    items
}

fn parse_item(field: CronField, text: &str) -> Result<Item, String> {
    if text.is_empty() {
        return Err("an item of the list is empty; remove the extra comma".to_owned());
    }
    if let Some(item) = parse_special(field, text)? {
        return Ok(item);
    }
    let (base, step) = match text.split_once('/') {
        None => (text, None),
        Some((base, step)) => (base, Some(parse_step(field, step)?)),
    };
    if base == "*" || base == "?" && is_day_field(field) {
        return Ok(Item::All {
            step: step.unwrap_or(1),
        });
    }
    if let Some((from, to)) = base.split_once('-') {
        let (from, to) = parse_range(field, from, to)?;
        let step = step.unwrap_or(1);
        return Ok(Item::Range { from, to, step });
    }
    let value = parse_value(field, base)?;
    Ok(match step {
        None => Item::Value(value),
        Some(step) => Item::Range {
            from: value,
            to: field.largest(),
            step,
        },
    })
}

fn is_day_field(field: CronField) -> bool {
    matches!(field, CronField::DayOfMonth | CronField::DayOfWeek)
}

/// Parses `L`, `FRIL` and `MON#2`, and refuses what other programs add to cron.
fn parse_special(field: CronField, text: &str) -> Result<Option<Item>, String> {
    let upper = text.to_ascii_uppercase();
    if field == CronField::DayOfMonth {
        if upper == "L" {
            return Ok(Some(Item::LastDay));
        }
        if upper.contains('W') {
            return Err(format!(
                "{} is not supported: W (nearest weekday); write days of the week in the last field",
                quoted(text)
            ));
        }
    }
    if field == CronField::DayOfWeek {
        if let Some((weekday, nth)) = text.split_once('#') {
            let weekday = parse_value(field, weekday)?;
            let nth = nth.parse::<u8>().ok().filter(|nth| (1..=5).contains(nth));
            let nth = nth.ok_or_else(|| {
                format!(
                    "{} must end with a number from 1 to 5 after #, such as MON#2 for the second Monday",
                    quoted(text)
                )
            })?;
            return Ok(Some(Item::NthWeekday { weekday, nth }));
        }
        if upper == "L" {
            return Err("L needs a weekday, such as FRIL for the last Friday".to_owned());
        }
        if let Some(weekday) = upper.strip_suffix('L') {
            return parse_value(field, weekday).map(|weekday| Some(Item::LastWeekday(weekday)));
        }
    }
    Ok(None)
}

fn parse_step(field: CronField, text: &str) -> Result<u8, String> {
    let most = field.values();
    let step = text
        .parse::<u8>()
        .ok()
        .filter(|step| (1..=most).contains(step));
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    step.filter(|_| is_digits).ok_or_else(|| {
        format!(
            "the step {} is not valid; write a number from 1 to {most} after /",
            quoted(text)
        )
    })
}

fn parse_range(field: CronField, from: &str, to: &str) -> Result<(u8, u8), String> {
    let (first, mut last) = (parse_value(field, from)?, parse_value(field, to)?);
    // A week that ends on Sunday: 7 is Sunday too, also after a week that starts with it.
    let is_whole_week = to == "7" && from != "7";
    if field == CronField::DayOfWeek && last == 0 && (first > 0 || is_whole_week) {
        last = 7;
    }
    if first > last {
        let (least, most) = (field.range().0, field.largest());
        return Err(format!(
            "the range {} starts after its end; write {from}-{most},{least}-{to}",
            quoted(&format!("{from}-{to}"))
        ));
    }
    Ok((first, last))
}

/// Parses a number or a name. Sunday is 0.
fn parse_value(field: CronField, text: &str) -> Result<u8, String> {
    let (least, most) = field.range();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = match is_number {
        true => text.parse::<u8>().ok(),
        false => field.named(text),
    };
    match value.filter(|value| (least..=most).contains(value)) {
        Some(7) if field == CronField::DayOfWeek => Ok(0),
        Some(value) => Ok(value),
        None if text.is_empty() => Err(format!("a value is missing; write {}", field.allowed())),
        None => Err(format!("{} is not {}", quoted(text), field.allowed())),
    }
}
