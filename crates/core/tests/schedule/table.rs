//! Every row of the table.

use super::*;

const TABLE: &str = include_str!("../vectors/schedules.tsv");
/// Rows that the table must have, so that a damaged table is noticed.
const MIN_ROWS: usize = 700;
/// The explicit rows list what happens this close to a change of the offset.
const NEAR_MS: u64 = 30 * 3_600_000;

/// Returns the digest of the table: 64-bit FNV-1a over the seconds.
fn digest(occurrences: &[Timestamp]) -> String {
    let mut state: u64 = 0xcbf2_9ce4_8422_2325;
    for at in occurrences {
        assert_eq!(at.0 % 1_000, 0, "{at} is not a whole second");
        for byte in (at.0 / 1_000).to_le_bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{state:016x}")
}

fn check_all(row: &[&str]) -> Option<String> {
    let [name, years, text, count, expected] = row else {
        panic!("a row has other columns: {row:?}");
    };
    let (first, last) = years.split_once('-').expect("two years");
    let start = at(&format!("{first}-01-01T00:00:00Z"));
    let end = at(&format!("{last}-01-01T00:00:00Z"));
    let found = occurrences(&cron(text), &zone(name), start, end);
    let is_equal = found.len().to_string() == *count && digest(&found) == *expected;
    (!is_equal).then(|| {
        let count_here = found.len();
        format!("{name} {years} {text}: {count_here} occurrences here, {count} there")
    })
}

fn check_near(row: &[&str]) -> Option<String> {
    let [name, change, text, expected] = row else {
        panic!("a row has other columns: {row:?}");
    };
    let change = at(change);
    let start = Timestamp(change.0 - NEAR_MS);
    let end = Timestamp(change.0 + NEAR_MS + 1);
    let found = occurrences(&cron(text), &zone(name), start, end);
    let expected: Vec<Timestamp> = expected.split_whitespace().map(at).collect();
    (found != expected).then(|| format!("{name} {text}: {found:?}, expected {expected:?}"))
}

#[test]
fn every_row_agrees() {
    let mut rows = 0;
    let mut wrong = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (kind, row) = columns.split_first().expect("a row has columns");
        wrong.extend(match *kind {
            "all" => check_all(row),
            "near" => check_near(row),
            other => panic!("{other} is not a kind of row"),
        });
        rows += 1;
    }
    assert!(rows >= MIN_ROWS, "the table has only {rows} rows");
    assert!(
        wrong.is_empty(),
        "{} rows differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// A day that Samoa skipped, when it crossed the date line at the end of 2011.
#[test]
fn a_day_that_does_not_exist_runs_at_the_first_instant_after_it() {
    let apia = zone("Pacific/Apia");
    let (start, end) = (at("2011-12-29T10:00:00Z"), at("2011-12-31T10:00:00Z"));
    // 29 December at UTC-10, then 31 December at UTC+14. The 30th did not exist.
    let daily = occurrences(&cron("0 9 * * *"), &apia, start, end);
    let expected = [
        "2011-12-29T19:00:00Z",
        "2011-12-30T10:00:00Z",
        "2011-12-30T19:00:00Z",
    ];
    assert_eq!(daily, expected.map(at));
    let hourly = occurrences(&cron("0 * * * *"), &apia, start, end);
    assert_eq!(hourly.len(), 48);
}
