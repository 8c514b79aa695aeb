//! The benchmark, through the built program. These tests check that it produces results, not the values.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_posthaste"))
        .arg("bench")
        .args(arguments.split_whitespace())
        .env_remove("COLUMNS")
        .output()
        .expect("the program runs")
}

fn document(output: Output) -> Value {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    assert_eq!(complaint, "", "no progress bar outside a terminal");
    serde_json::from_slice(&output.stdout).expect("one document")
}

fn complaint(output: Output, code: i32) -> String {
    let complaint = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(code), "{complaint}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    complaint
}

fn is_measured(results: &Value, name: &str) {
    let value = &results[name];
    let is_spread = value["p50"].is_number() && value["p99"].is_number();
    assert!(value.is_number() || is_spread, "{name} is {value}");
}

const BOTH_HAVE: [&str; 7] = [
    "events_per_second",
    "deliveries_per_second",
    "accept_latency_ms",
    "delivery_lag_ms",
    "cpu_us_per_delivery",
    "peak_memory_bytes",
    "written_bytes_per_delivery",
];

#[test]
fn the_relay_delivers_everything_once() {
    let report = document(bench(
        "--only relay --events 200 --endpoints 3 --rounds 1 --rate 1000/s --json",
    ));
    for name in BOTH_HAVE {
        is_measured(&report["relay"], name);
    }
    assert_eq!(report["server"], Value::Null);
    assert_eq!(report["ratio"], Value::Null);
    let names: Vec<&Value> = report["scenarios"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|scenario| &scenario["name"])
        .collect();
    assert_eq!(names, ["throughput", "lag", "door"]);
}

#[test]
fn the_egress_client_is_measured_beside_raw_connections() {
    let report = document(bench(
        "--scenario door --events 500 --rounds 2 --endpoints 64 --json",
    ));
    let egress_client = &report["scenarios"][0];
    assert_eq!(egress_client["requests"], 500);
    // As many connections as each endpoint would have.
    assert_eq!(egress_client["connections"], 8);
    let rounds = egress_client["rounds"].as_array().expect("a list");
    assert_eq!(rounds.len(), 2);
    for side in rounds
        .iter()
        .flat_map(|round| [&round["raw"], &round["door"]])
    {
        for name in ["requests_per_second", "cpu_us_per_request"] {
            assert!(
                side[name].as_f64().is_some_and(|figure| figure > 0.0),
                "{side}"
            );
        }
    }
    assert!(
        egress_client["ratio"].is_number() && egress_client["cpu_ratio"].is_number(),
        "{egress_client}"
    );
}

#[test]
fn results_are_also_printed_as_text() {
    let output = bench("--only relay --events 50 --rounds 2 --scenario throughput");
    assert_eq!(output.status.code(), Some(0));
    let page = String::from_utf8(output.stdout).expect("text");
    for part in [
        "deliveries/s out",
        "Medians of 2 rounds",
        "exactly once",
        "cores",
    ] {
        assert!(page.contains(part), "no {part:?} in:\n{page}");
    }
}

#[test]
fn an_existing_store_is_not_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("precious.db");
    std::fs::write(&file, "mine").expect("a file");
    let report = complaint(bench(&format!("--store sqlite:{}", file.display())), 2);
    assert!(report.contains("name a new file"), "{report}");
    assert_eq!(std::fs::read(&file).expect("the file exists"), b"mine");
}

#[test]
fn impossible_arguments_are_refused_with_a_correction() {
    for (arguments, part) in [
        ("--payload 5", "whole number from"),
        ("--events 0", "whole number from"),
        ("--scenario wishful", "throughput"),
        ("--endpoints 100 --events 10000000", "too many for one run"),
    ] {
        let report = complaint(bench(arguments), 2);
        assert!(report.contains(part), "{arguments}: {report}");
    }
}

#[test]
fn retention_runs_during_the_benchmark() {
    let report = document(bench("--scenario retention --events 400 --json"));
    let retention = &report["scenarios"][0];
    assert_eq!(retention["removed"], 400);
    assert!(retention["removed_within_ms"].is_number(), "{retention}");
    assert!(retention["ratio"].is_number(), "{retention}");
    for name in ["before", "while_removing", "after"] {
        is_measured(&retention[name], "deliveries_per_second");
    }
    let rounds = retention["sizes_of_rounds"].as_array().expect("a list");
    let sizes: Vec<u64> = rounds
        .iter()
        .map(|size| size["file_bytes"].as_u64().expect("a size"))
        .collect();
    assert_eq!(sizes.len(), 5);
    assert!(sizes.iter().all(|size| *size > 0), "{sizes:?}");
}

#[test]
fn the_server_delivers_everything_once() {
    let report = document(bench("--events 300 --rounds 1 --rate 500/s --json"));
    for name in BOTH_HAVE {
        is_measured(&report["relay"], name);
        is_measured(&report["server"], name);
    }
    is_measured(&report["server"], "first_attempt_lag_ms");
    is_measured(&report, "ratio");
}

#[test]
fn every_page_is_timed_with_a_small_and_a_large_store() {
    let report = document(bench("--scenario pages --events 300 --rounds 1 --json"));
    let pages = &report["scenarios"][0];
    assert_eq!((&pages["few"], &pages["many"]), (&100.into(), &300.into()));
    let pages = pages["pages"].as_array().expect("a list");
    assert!(pages.len() >= 20, "only {} pages", pages.len());
    for page in pages {
        for name in ["few_ms", "many_ms", "ratio"] {
            is_measured(page, name);
        }
        assert!(page["bytes"].as_u64() > Some(500), "{page}");
    }
}

#[test]
fn receivers_that_fail_in_part_are_compared_with_a_clean_one() {
    let report = document(bench(
        "--scenario partial-failure --events 2000 --seed 7 --json",
    ));
    let scenario = &report["scenarios"][0];
    assert_eq!(scenario["name"], "partial-failure");
    assert_eq!(
        (&scenario["seed"], &scenario["seconds"]),
        (&7.into(), &2.0.into())
    );
    let rows = scenario["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 12);
    let row = |receiver: &str| {
        let found = rows.iter().find(|row| row["receiver"] == receiver);
        found.unwrap_or_else(|| panic!("no {receiver} in {rows:?}"))
    };
    let count = |row: &Value, name: &str| row["counts"][name].as_u64().expect("a count");
    for row in rows {
        assert!(count(row, "requests") > 0, "{row}");
        let misses = row["misses"].as_array().expect("a list");
        assert_eq!(row["is_met"], misses.is_empty(), "{row}");
        assert_eq!(row["counts"]["status"], "enabled", "{row}");
        assert!(row["health"]["last"]["breaker"].is_object(), "{row}");
    }
    let clean = row("full speed, clean");
    assert_eq!(count(clean, "refused"), 0);
    assert_eq!(clean["is_met"], true, "{clean}");
    let failing = row("full speed, 20 % 503");
    let share = failing["refused_share"].as_f64().expect("a share");
    assert!((0.1..0.3).contains(&share), "{failing}");
    is_measured(failing, "ratio");
    // The wave lasts longer than this measurement, so that only what tripped the breaker was sent.
    let wave = row("403 for 3 s");
    assert_eq!(count(wave, "offered"), 500);
    assert!((100..=110).contains(&count(wave, "refused")), "{wave}");
    assert_eq!((count(wave, "delivered"), count(wave, "trips")), (0, 1));
    assert_eq!(wave["is_met"], false, "{wave}");
    let limited = row("20/s, 429 above 10/s");
    // Two seconds touch at most three seconds of the clock.
    assert!(count(limited, "delivered") <= 30, "{limited}");
}

#[test]
fn the_neighbour_of_hostile_callers_is_measured_beside_each_attack() {
    let report = document(bench("--scenario hostile-callers --events 1000 --json"));
    let scenario = &report["scenarios"][0];
    let attacks = scenario["attacks"].as_array().expect("a list");
    let names: Vec<&str> = attacks
        .iter()
        .filter_map(|it| it["attack"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "quiet",
            "large_batches",
            "excessive_batches",
            "unread_responses",
            "unfinished_bodies",
            "tenant_deletion"
        ]
    );
    for attack in attacks {
        assert_eq!(attack["neighbour"]["requests"], 100, "{attack}");
        is_measured(&attack["neighbour"]["accept_latency_ms"], "p99");
    }
    assert_eq!(attacks[0]["neighbour"]["refused"], 0, "{attacks:?}");
    assert!(
        attacks[1]["hostile_accepted"].as_u64() > Some(0),
        "{attacks:?}"
    );
    assert_eq!(attacks[5]["hostile_accepted"], 1, "{attacks:?}");
}

#[test]
fn rows_of_an_outbox_are_measured() {
    let database = posthaste_testbed::Database::empty();
    let arguments = format!(
        "--scenario outbox --events 400 --rate 400/s --store {} --json",
        database.url()
    );
    let report = document(bench(&arguments));
    let outbox = &report["scenarios"][0];
    assert_eq!(outbox["name"], "outbox");
    assert_eq!(
        (&outbox["paced_rows"], &outbox["rows"]),
        (&400.into(), &400.into())
    );
    for name in ["lag_ms", "read_rows_per_second", "deliveries_per_second"] {
        is_measured(outbox, name);
    }
}
