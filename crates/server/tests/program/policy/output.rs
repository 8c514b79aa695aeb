//! Output of the policy commands: text, tables, charts and JSON.

use std::fs;

use posthaste_charts::format;
use posthaste_core::forecast::{Forecast, OutageScenario, SenderOutcome, forecast};
use posthaste_core::lane::RateLimit;
use posthaste_core::policy::{Preset, RetryPolicy};
use posthaste_core::time::Span;
use serde_json::{Value, json};

use super::fixture::{SIMULATE, file, long_policy, parsed, run, run_with_input, scratch, stdout};

#[test]
fn explain_prints_text_a_table_and_a_chart() {
    let text = stdout(run("policy explain"));
    assert!(
        text.starts_with("recommended: a schedule of 8, ±20 %\n\nFirst attempt immediately;"),
        "{text}"
    );
    let squeezed: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert!(squeezed.contains(&"attempt delay before earliest expected latest".to_owned()));
    assert!(
        squeezed.contains(&"6 30m 34m 8s 42m 40s 51m 12s".to_owned()),
        "{text}"
    );
    assert_eq!(squeezed.iter().filter(|line| line.contains("│")).count(), 9);
    assert!(!text.contains('\u{1b}'), "no colours into a pipe");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert_eq!(text, stdout(run("policy explain --preset recommended")));
}

/// The library's explanation, with the explained policy.
fn explained(policy: &RetryPolicy, preset: Option<Preset>) -> Value {
    let mut expected = serde_json::to_value(policy.explain()).expect("JSON");
    expected["policy"] = serde_json::to_value(policy).expect("JSON");
    if let Some(preset) = preset {
        expected["policy"]["preset"] = preset.name().into();
    }
    expected
}

#[test]
fn explain_prints_the_library_s_explanation_as_json() {
    for preset in Preset::ALL {
        let line = format!("policy explain --preset {} --json", preset.name());
        let printed = parsed(&stdout(run(&line)));
        assert_eq!(printed, explained(&preset.policy(), Some(preset)));
        assert_eq!(
            RetryPolicy::from_json(&printed["policy"]),
            Ok(preset.policy()),
            "the policy can be used again"
        );
    }
    let json = parsed(&stdout(run("policy explain --json")));
    let second =
        json!({"number": 2, "earliest_ms": 8000, "expected_ms": 10000, "latest_ms": 12000});
    assert_eq!(json["attempts"][1], second);
    assert_eq!(json["gives_up_ms"], 149_952_000);
    assert_eq!(json["policy"]["preset"], "recommended");
    let brisk = parsed(&stdout(run("policy explain --preset brisk --json")));
    let limited = &brisk["verdicts"][1];
    assert_eq!(limited["on"], json!(["409", "425", "dns"]));
    assert_eq!(
        (&limited["then"], &limited["limit"]),
        (&json!("retry"), &json!(3))
    );
}

#[test]
fn a_policy_is_read_from_json_and_toml_and_standard_input() {
    let document = json!({
        "backoff": {"kind": "exponential", "base": "1s", "factor": 2.0, "cap": "1h"},
        "jitter": {"kind": "full"},
        "max_attempts": 5,
    });
    let toml = "max_attempts = 5\n[backoff]\nkind = \"exponential\"\nbase = \"1s\"\nfactor = 2\n\
                cap = \"1h\"\n[jitter]\nkind = \"full\"\n";
    let policy = RetryPolicy::from_json(&document).expect("a policy");
    let expected = explained(&policy, None);
    let json = document.to_string();
    for path in [
        file("good.json", &json),
        file("good.toml", toml),
        file("good-json", &json),
        file("good-toml", toml),
    ] {
        assert_eq!(
            parsed(&stdout(run(&format!(
                "policy explain --json --file {path}"
            )))),
            expected,
            "{path}"
        );
    }
    for input in [&json[..], toml] {
        assert_eq!(
            parsed(&stdout(run_with_input(
                "policy explain --json --file -",
                input
            ))),
            expected,
            "{input}"
        );
    }
    let text = stdout(run_with_input("policy explain --file -", toml));
    let heading = "standard input: exponential, base 1s, factor 2, cap 1h, full jitter\n";
    assert!(text.starts_with(heading), "{text}");
}

#[test]
fn charts_are_written_to_files_and_to_standard_output() {
    for (line, name) in [
        ("policy explain", "explain.svg"),
        (SIMULATE, "simulate.svg"),
    ] {
        let path = scratch(name);
        let to_file = format!("{line} --svg {}", path.display());
        let output = run(&to_file);
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout.is_empty(), "the chart replaces the text");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(printed, format!("wrote {}\n", path.display()));
        let picture = fs::read_to_string(&path).expect("a picture");
        assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"));
        assert_eq!(stdout(run(&format!("{line} --svg -"))), picture);
    }
}

#[test]
fn simulate_compares_posthaste_with_a_naive_sender() {
    let text = stdout(run(
        "policy simulate --pending 10000 --outage 30m --capacity 50/s",
    ));
    let squeezed: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let outage = Span::from_mins(30);
    let Forecast { posthaste, naive } = forecast(&OutageScenario {
        policy: Preset::Recommended.policy(),
        pending: 10_000,
        outage,
        capacity_per_second: 50.0,
        max_in_flight: 10,
        rate: RateLimit::default(),
        seed: 1,
    });
    let row = |name: &str, of: &dyn Fn(&SenderOutcome) -> String| {
        let row = format!("{name} {} {}", of(&posthaste), of(&naive));
        assert!(squeezed.contains(&row), "{row}\n{text}");
    };
    let since_recovery =
        |course: &SenderOutcome| format::duration(course.drained_ms - outage.as_millis());
    row("attempts", &|c| format::count(c.attempts));
    row("delivered", &|c| format::count(c.delivered));
    row("dead-lettered", &|c| format::count(c.dead_lettered));
    row("peak after recovery", &|c| {
        format!("{}/s", format::count(c.peak_per_second))
    });
    row("time to drain, from the start", &|c| {
        format::duration(c.drained_ms)
    });
    row("time to drain, from recovery", &since_recovery);
    assert!(squeezed.contains(&"posthaste naive".to_owned()), "{text}");
    assert!(
        text.contains("posthaste delivered all 10,000 within "),
        "{text}"
    );
    assert!(text.contains("receiver down for 30m"), "{text}");
    assert!(!text.contains('\u{1b}'));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

fn assert_course(printed: &Value, course: &SenderOutcome) {
    assert_eq!(printed["attempts"], course.attempts);
    assert_eq!(printed["delivered"], course.delivered);
    assert_eq!(printed["dead_lettered"], course.dead_lettered);
    assert_eq!(printed["peak_arrivals_per_second"], course.peak_per_second);
    assert_eq!(printed["drained_ms"], course.drained_ms);
    let series = printed["series"].as_array().expect("a series");
    assert!(!series.is_empty() && series.len() <= 300);
    let sum = |field: &str| -> u64 {
        series
            .iter()
            .map(|b| b[field].as_u64().expect("a count"))
            .sum()
    };
    assert_eq!(sum("arrivals"), course.attempts);
    let failed: u64 = course.arrivals.values().map(|seen| seen.failed).sum();
    assert_eq!(sum("failed"), failed);
    assert!(sum("peak_failed") <= failed);
    let busiest = series.iter().map(|b| b["peak_per_second"].as_u64()).max();
    assert_eq!(
        busiest,
        Some(course.arrivals.values().map(|seen| seen.total).max())
    );
    for pair in series.windows(2) {
        assert_eq!(pair[0]["to_ms"], pair[1]["from_ms"]);
    }
}

#[test]
fn simulate_prints_the_library_s_recovery_as_json() {
    let scenario = OutageScenario {
        policy: Preset::Brisk.policy(),
        pending: 3_000,
        outage: Span::from_mins(20),
        capacity_per_second: 20.0,
        max_in_flight: 4,
        rate: RateLimit {
            per_second: 15.0,
            burst: 30,
        },
        seed: 7,
    };
    let forecast = forecast(&scenario);
    let text = stdout(run(
        "policy simulate --preset brisk --pending 3000 --outage 20m --capacity 1200/m \
         --max-in-flight 4 --rate 15 --burst 30 --seed 7 --json",
    ));
    let printed = parsed(&text);
    assert_eq!(printed["pending"], 3_000);
    assert_eq!(printed["outage_ms"], 1_200_000);
    assert_eq!(printed["capacity_per_second"], 20.0);
    let mut policy = serde_json::to_value(&scenario.policy).expect("JSON");
    policy["preset"] = "brisk".into();
    assert_eq!(printed["policy"], policy);
    assert_eq!(
        printed["limits"],
        json!({"max_in_flight": 4, "rate_limit": {"per_second": 15.0, "burst": 30}})
    );
    assert_eq!(printed["seed"], 7);
    assert_course(&printed["posthaste"], &forecast.posthaste);
    assert_course(&printed["naive"], &forecast.naive);
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let with = |seed: u32| stdout(run(&format!("{SIMULATE} --json --seed {seed}")));
    assert_eq!(with(3), with(3));
    assert_ne!(parsed(&with(3))["posthaste"], parsed(&with(4))["posthaste"]);
    assert_eq!(stdout(run(&format!("{SIMULATE} --json"))), with(1));
}

#[test]
fn an_empty_scenario_and_a_long_outage_are_reported() {
    let text = stdout(run("policy simulate --pending 0 --outage 0s --capacity 1"));
    assert!(
        text.contains("Nothing was pending, so nothing was sent."),
        "{text}"
    );
    let text = stdout(run(
        "policy simulate --preset brisk --pending 10 --outage 30d --capacity 1",
    ));
    assert!(
        text.contains("posthaste dead-lettered all 10 before the receiver was back"),
        "{text}"
    );
}

#[test]
fn a_thousand_attempts_are_shortened() {
    let path = long_policy("thousand.json");
    let text = stdout(run(&format!("policy explain --file {path}")));
    assert!(text.lines().count() < 90, "{text}");
    assert!(text.contains("… 961 more"), "{text}");
    let json = parsed(&stdout(run(&format!(
        "policy explain --json --file {path}"
    ))));
    assert_eq!(json["attempts"].as_array().map(Vec::len), Some(1_000));
}

#[test]
fn help_shows_examples_and_version_prints_the_version() {
    for (line, example) in [
        (
            "policy explain --help",
            "posthaste policy explain --preset swift",
        ),
        (
            "policy simulate --help",
            "--pending 10000 --outage 30m --capacity 50/s --svg outage.svg",
        ),
    ] {
        let text = stdout(run(line));
        let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("Examples:") && text.contains(example),
            "{text}"
        );
        assert!(
            squeezed.contains("recommended, patient, swift, steady, brisk"),
            "{text}"
        );
        assert!(squeezed.contains("instead of text"), "{text}");
    }
    let version = format!("posthaste {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(stdout(run("--version")), version);
    for line in ["policy", "--help"] {
        let output = run(line);
        let printed = [output.stdout, output.stderr].concat();
        assert!(String::from_utf8_lossy(&printed).contains("Usage: posthaste"));
    }
    assert_eq!(run("policy").status.code(), Some(2));
}
