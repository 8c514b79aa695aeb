//! Cron expressions: parsing, error messages, words and occurrences.

use crate::schedule::{CronExpression, Schedule, ScheduleDefinition, Timing, Zone};
use crate::schedule::{ScheduleTiming, timing::TimingError};
use crate::time::{Span, Timestamp};

fn errors(text: &str) -> Vec<String> {
    let errors = CronExpression::parse(text).expect_err(text);
    errors.iter().map(ToString::to_string).collect()
}

fn words(text: &str) -> String {
    CronExpression::parse(text).expect(text).words()
}

#[test]
fn every_mistake_is_reported_with_field_and_position() {
    assert_eq!(
        errors("61 25 0 13 MOO"),
        [
            "minute, position 1: \"61\" is not a number from 0 to 59",
            "hour, position 4: \"25\" is not a number from 0 to 23",
            "day of month, position 7: \"0\" is not a number from 1 to 31, or L for the last day",
            "month, position 9: \"13\" is not a number from 1 to 12, or a name from JAN to DEC",
            "day of week, position 12: \"MOO\" is not a number from 0 (Sunday) to 7 (Sunday), or a name from SUN to SAT",
        ]
    );
    assert_eq!(
        errors("  0,,70  * * * *"),
        [
            "minute, position 5: an item of the list is empty; remove the extra comma",
            "minute, position 6: \"70\" is not a number from 0 to 59",
        ]
    );
}

#[test]
fn each_mistake_names_the_remedy() {
    for (text, part) in [
        ("", "is empty; write five fields"),
        ("* * * *", "has 4 fields; write five fields"),
        ("0 0 0 * * * 2027", "use ends_at"),
        ("@reboot", "write one of @hourly, @daily"),
        ("@every 5m", "use \"every\" instead of \"cron\""),
        ("*/0 * * * *", "a number from 1 to 60 after /"),
        ("*/90 * * * *", "a number from 1 to 60 after /"),
        ("* */25 * * *", "a number from 1 to 24 after /"),
        ("0/ * * * *", "the step \"\" is not valid"),
        ("* 22-2 * * *", "write 22-23,0-2"),
        ("* * * NOV-FEB *", "write NOV-12,1-FEB"),
        ("* 1- * * *", "a value is missing"),
        ("0 0 15W * *", "not supported: W (nearest weekday)"),
        ("0 0 * * L", "such as FRIL for the last Friday"),
        ("0 0 * * MON#6", "a number from 1 to 5 after #"),
        ("0 0 30 2 *", "never runs"),
        ("0 0 31 2,4,6,9,11 *", "never runs"),
        ("-1 * * * *", "a value is missing"),
        ("? * * * *", "\"?\" is not a number"),
        ("\u{ff11} * * * *", "is not a number from 0 to 59"),
        ("0 9 * * MON-FRI\u{0}", "is not a number from 0 (Sunday)"),
    ] {
        let found = errors(text);
        assert!(
            found.len() == 1 && found[0].contains(part),
            "{text:?}: {found:?}"
        );
    }
    let long = format!("{} * * * *", "1,".repeat(200));
    assert!(errors(&long)[0].contains("at most 256 characters"));
}

#[test]
fn expressions_are_described_in_words() {
    for (text, expected) in [
        ("0 9 * * MON-FRI", "At 09:00, Monday through Friday"),
        ("* * * * *", "Every minute"),
        ("* * * * * *", "Every second"),
        ("*/15 * * * * *", "Every 15 seconds"),
        ("@hourly", "Every hour"),
        ("0 */2 * * *", "Every 2 hours"),
        ("@daily", "At 00:00"),
        ("@weekly", "At 00:00, on Sunday"),
        ("@monthly", "At 00:00, on day 1 of the month"),
        ("@yearly", "At 00:00, on day 1 of the month, in January"),
        ("30 * * * *", "At 30 minutes past the hour"),
        ("0,30 * * * *", "At 0 and 30 minutes past the hour"),
        (
            "*/5 9-17 * * 1-5",
            "Every 5 minutes, between 09:00 and 17:59, Monday through Friday",
        ),
        ("0 9-17 * * *", "Every hour from 09:00 through 17:00"),
        ("0 9,17 * * *", "At 09:00 and 17:00"),
        ("30 14 * * SAT,SUN", "At 14:30, on Saturday and Sunday"),
        ("15 30 8 * * *", "At 08:30:15"),
        ("0 0 L * *", "At 00:00, on the last day of the month"),
        ("0 0 1,15 * *", "At 00:00, on days 1 and 15 of the month"),
        (
            "0 0 13 * FRI",
            "At 00:00, on day 13 of the month or on Friday",
        ),
        (
            "0 12 * * MON#2",
            "At 12:00, on the second Monday of the month",
        ),
        ("0 12 * * 5L", "At 12:00, on the last Friday of the month"),
        ("0 6 * JAN,JUL *", "At 06:00, in January and July"),
        ("0 6 * 3-5 *", "At 06:00, March through May"),
        ("0 0 */3 * *", "At 00:00, every 3 days of the month"),
        ("*/10 2 * * *", "Every 10 minutes, between 02:00 and 02:59"),
        ("0 0 * * FRI-SUN", "At 00:00, Friday through Sunday"),
        ("10-20 * * * *", "Minutes 10 through 20 past the hour"),
    ] {
        assert_eq!(words(text), expected, "{text}");
    }
}

#[test]
fn the_description_names_the_zone() {
    let describe = |timing: ScheduleTiming| {
        Timing::new(&timing, "Europe/Berlin")
            .expect("a timing")
            .description()
    };
    let cron = ScheduleTiming::Cron("0 9 * * MON-FRI".to_owned());
    assert_eq!(
        describe(cron),
        "At 09:00, Monday through Friday (Europe/Berlin)"
    );
    let every = |text: &str| ScheduleTiming::Every(text.parse().expect("a span"));
    assert_eq!(describe(every("15m")), "Every 15 minutes");
    assert_eq!(describe(every("60m")), "Every hour");
    assert_eq!(describe(every("90m")), "Every 1 hour and 30 minutes");
    let once = ScheduleTiming::At(vec![Timestamp(1_800_000_000_000)]);
    assert_eq!(describe(once), "Once, at 2027-01-15T08:00:00.000Z");
}

#[test]
fn equal_spellings_mean_the_same() {
    let utc = Zone::find("UTC").expect("known");
    let sets = |text: &str| {
        let found = CronExpression::parse(text).expect(text);
        let mut after = Timestamp(1_795_075_200_000);
        let occurrences = std::iter::repeat_with(|| {
            after = found.next_after(after, &utc).expect("it occurs");
            after
        });
        occurrences.take(100).collect::<Vec<_>>()
    };
    for (a, b) in [
        ("0 0 * * 0", "0 0 0 * * sun"),
        ("0 0 * * 7", "0 0 ? * SUN"),
        ("0 0 * * 5-7", "0 0 * * FRI,SAT,SUN"),
        ("5/20 * * * *", "5,25,45 * * * *"),
        ("0 0 1-31 1-12 0-6", "@daily"),
        ("0 0 * * 0-7", "@daily"),
        ("0 9 * * SUN-7", "0 9 * * *"),
        ("0 0 * jan-MAR/2 *", "0 0 * 1,3 *"),
        ("\t0  0 * * fril ", "0 0 * * 5L"),
        (" @Daily ", "@midnight"),
    ] {
        assert_eq!(sets(a), sets(b), "{a} and {b}");
    }
}

#[test]
fn a_zone_is_found_in_any_case_and_a_similar_one_suggested() {
    assert_eq!(
        Zone::find("europe/berlin").expect("known").name(),
        "Europe/Berlin"
    );
    assert_eq!(Zone::find("UTC").expect("known").name(), "UTC");
    for (name, hint) in [
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("Berlin", "did you mean Europe/Berlin?"),
        ("America/NewYork", "did you mean America/New_York?"),
        ("new york", "did you mean America/New_York?"),
        ("Mars/Olympus", "write a name such as Europe/Berlin or UTC"),
        ("", "write a name such as Europe/Berlin or UTC"),
        ("Etc/Unknown", "write a name such as"),
        ("+02:00", "write a name such as"),
    ] {
        let error = Zone::find(name).expect_err(name).to_string();
        assert!(error.contains(hint), "{name}: {error}");
    }
    assert!(Zone::names().len() > 400);
}

#[test]
fn the_local_time_is_printed_with_its_offset() {
    let at: Timestamp = "2026-11-19T08:00:00Z".parse().expect("a time");
    let text = |name: &str| Zone::find(name).expect(name).local_text(at);
    assert_eq!(
        text("Europe/Berlin").as_deref(),
        Some("2026-11-19 09:00:00 +01:00")
    );
    assert_eq!(
        text("America/St_Johns").as_deref(),
        Some("2026-11-19 04:30:00 -03:30")
    );
}

#[test]
fn a_leap_day_on_a_given_weekday_is_found_decades_ahead() {
    let berlin = Zone::find("Europe/Berlin").expect("known");
    // February has a fifth Saturday only in a leap year that begins on a Thursday. 2100 is no leap year.
    let expression = CronExpression::parse("0 12 * 2 SAT#5").expect("it occurs");
    let mut after: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let mut years = Vec::new();
    for _ in 0..4 {
        after = expression
            .next_after(after, &berlin)
            .expect("it occurs again");
        years.push(after.to_string()[..4].to_owned());
    }
    assert_eq!(years, ["2048", "2076", "2116", "2144"]);
}

#[test]
fn a_definition_that_cannot_be_computed_is_an_error() {
    let wrong = Timing::new(&ScheduleTiming::Cron("0 25 * * *".to_owned()), "UTC");
    assert!(matches!(wrong, Err(TimingError::Cron(_))));
    let wrong = Timing::new(&ScheduleTiming::Cron("0 5 * * *".to_owned()), "Nowhere");
    assert!(matches!(wrong, Err(TimingError::Zone(_))));
    let stored = r#"{"timing":{"cron":"0 5 * * *"},"timezone":"Nowhere","target":{"event":{"type":"a","body":{"bytes":{"text":"{}"}}}}}"#;
    let definition = ScheduleDefinition::read(stored).expect("readable");
    assert!(Schedule::new(definition).is_err());
    let shortest = Timing::new(&ScheduleTiming::Every(Span::ZERO), "UTC").expect("a timing");
    assert_eq!(
        shortest.next_after(Timestamp(5), Timestamp(0)),
        Some(Timestamp(1_000))
    );
}
