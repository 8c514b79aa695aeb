//! Random expressions in random zones, compared with a scan of every second or minute.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const ZONES: [&str; 12] = [
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Asia/Gaza",
    "America/Nuuk",
    "Antarctica/Troll",
];
const FIRST: u64 = 1_230_768_000_000;
const LAST: u64 = 1_900_000_000_000;

fn field(least: u8, most: u8) -> impl Strategy<Value = String> {
    let item = prop_oneof![
        3 => Just("*".to_owned()),
        3 => (least..=most).prop_map(|value| value.to_string()),
        1 => (1..=most).prop_map(|step| format!("*/{step}")),
        1 => (least..=most, least..=most)
            .prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (least..=most, 1..=most).prop_map(|(from, step)| format!("{from}/{step}")),
    ];
    proptest::collection::vec(item, 1..3).prop_map(|items| items.join(","))
}

fn expression() -> impl Strategy<Value = String> {
    let days = prop_oneof![5 => field(1, 28), 1 => Just("L".to_owned())];
    let weekdays = prop_oneof![
        4 => field(0, 6),
        1 => (0u8..7, 1u8..5).prop_map(|(day, nth)| format!("{day}#{nth}")),
        1 => (0u8..7).prop_map(|day| format!("{day}L")),
    ];
    let fields = (field(0, 59), field(0, 23), days, field(1, 12), weekdays);
    fields.prop_map(|(minute, hour, day, month, weekday)| {
        format!("{minute} {hour} {day} {month} {weekday}")
    })
}

/// Returns what the clocks show at an instant: date, hour and minute.
fn shown(zone: &Zone, at: Timestamp) -> String {
    let text = zone.local_text(at).expect("a time of this century");
    text.chars().take(16).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Between two occurrences there is no other one, wherever the search starts.
    #[test]
    fn the_search_finds_the_same_from_every_start(
        text in expression(), name in select(&ZONES[..]), after in FIRST..LAST, share in 0.0..1.0f64,
    ) {
        let (expression, zone) = (cron(&text), zone(name));
        let after = Timestamp(after);
        let Some(next) = expression.next_after(after, &zone) else {
            return Ok(());
        };
        prop_assert!(next > after, "{} is not after {}", next, after);
        prop_assert_eq!(next.0 % 60_000, 0);
        let between = Timestamp(after.0 + ((next.0 - after.0 - 1) as f64 * share) as u64);
        prop_assert_eq!(expression.next_after(between, &zone), Some(next));
        let just_before = Timestamp(next.0 - 1);
        prop_assert_eq!(expression.next_after(just_before, &zone), Some(next));
    }

    /// An expression with every hour runs at every minute that matches; the same expression without one hour runs at most
    /// once for each time that the clocks show.
    #[test]
    fn wildcard_hours_run_in_both_passes_and_times_of_day_once(
        minutes in field(0, 59), name in select(&ZONES[..]), start in FIRST..LAST,
    ) {
        let zone = zone(name);
        let start = Timestamp(start / 60_000 * 60_000);
        let end = Timestamp(start.0 + 40 * 3_600_000);
        let every_hour = occurrences(&cron(&format!("{minutes} * * * *")), &zone, start, end);
        let bits = occurrences(&cron(&format!("{minutes} * * * *")), &super::zone("UTC"), start, end);
        let minutes_of = |at: &Timestamp| at.0 / 60_000 % 60;
        let wanted: std::collections::BTreeSet<u64> = bits.iter().map(minutes_of).collect();
        let mut scanned = Vec::new();
        let mut at = start;
        while at < end {
            let minute: u64 = shown(&zone, at)[14..16].parse().expect("a minute");
            if wanted.contains(&minute) {
                scanned.push(at);
            }
            at = Timestamp(at.0 + 60_000);
        }
        prop_assert_eq!(&every_hour, &scanned);
        let by_day = occurrences(&cron(&format!("{minutes} 0-22 * * *")), &zone, start, end);
        let mut times: Vec<String> = by_day.iter().map(|at| shown(&zone, *at)).collect();
        let count = times.len();
        times.dedup();
        times.sort_unstable();
        times.dedup();
        prop_assert_eq!(times.len(), count, "a time of the day runs twice");
    }

    #[test]
    fn no_text_panics_and_errors_are_inside_it(text in "[ -~*/,#@LW0-9A-Z-]{0,40}") {
        if let Err(errors) = CronExpression::parse(&text) {
            prop_assert!(!errors.is_empty());
            for error in errors {
                prop_assert!(error.position >= 1 && error.position <= text.chars().count() + 1);
            }
        }
    }

    #[test]
    fn every_valid_expression_has_words(text in expression()) {
        let words = cron(&text).words();
        prop_assert!(words.starts_with(char::is_uppercase) && !words.contains("  "), "{}", words);
    }
}
