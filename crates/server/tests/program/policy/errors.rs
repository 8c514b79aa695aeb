//! Errors of the policy commands, with their texts and exit codes.

use std::fs;
use std::process::Stdio;

use super::fixture::{
    SIMULATE, error_message, file, long_policy, program, run, run_with_input, scratch,
};

#[test]
fn wrong_usage_is_reported_with_a_correction() {
    let simulate = |more: &str| format!("policy simulate {more}");
    let cases = [
        (
            "policy explain --preset eager".to_owned(),
            &["eager", "recommended, patient, swift, steady, brisk"][..],
        ),
        (
            "policy explain --preset swift --file p.json".to_owned(),
            &["--preset", "--file", "cannot be used with"],
        ),
        (
            "policy explain --json --svg -".to_owned(),
            &["--json", "--svg", "cannot be used with"],
        ),
        (
            format!("{SIMULATE} --json --svg -"),
            &["--json", "--svg", "cannot be used with"],
        ),
        (
            simulate("--pending 1 --capacity 1"),
            &["--outage <DURATION>"],
        ),
        (simulate("--outage 1m --capacity 1"), &["--pending <COUNT>"]),
        (simulate("--outage 1m --pending 1"), &["--capacity <RATE>"]),
        (
            simulate("--pending 1000001 --outage 1m --capacity 1"),
            &["--pending", "must be a whole number from 0 to 1000000"],
        ),
        (
            simulate("--pending -5 --outage 1m --capacity 1"),
            &["--pending", "must be a whole number from 0 to 1000000"],
        ),
        (
            simulate("--pending 1 --outage 31d --capacity 1"),
            &["--outage", "at most 30d, not 31d"],
        ),
        (
            simulate("--pending 1 --outage 30 --capacity 1"),
            &["--outage", "ms, s, m, h or d"],
        ),
        (
            simulate("--pending 1 --outage 1m --capacity fast"),
            &["--capacity", "\"50/s\"", "\"600/m\""],
        ),
        (
            simulate("--pending 1 --outage 1m --capacity 0"),
            &["--capacity", "from 0.001/s to 1000000/s"],
        ),
        (
            simulate("--pending 1 --outage 1m --capacity 1 --rate 0"),
            &["--rate", "from 0.0001/s to 100000/s"],
        ),
        (
            simulate("--pending 1 --outage 1m --capacity 1 --max-in-flight 0"),
            &["--max-in-flight", "must be a whole number from 1 to 1000"],
        ),
        (
            simulate("--pending 1 --outage 1m --capacity 1 --burst 0"),
            &["--burst", "must be a whole number from 1 to 100000"],
        ),
        (
            simulate("--pending 1 --outage 1m --capacity 1 --seed x"),
            &[
                "--seed",
                "must be a whole number from 0 to 18446744073709551615",
            ],
        ),
        ("policy predict".to_owned(), &["predict"]),
    ];
    for (line, parts) in cases {
        let text = error_message(run(&line), 2);
        for part in parts {
            assert!(text.contains(part), "{line}: {part}\n{text}");
        }
    }
}

/// A value that starts with a hyphen is an invalid value, not an unknown argument.
#[test]
fn wrong_numbers_are_reported_with_the_valid_range() {
    for (argument, value, right) in [
        (
            "--pending",
            "1.5",
            "must be a whole number from 0 to 1000000",
        ),
        (
            "--pending",
            "10,000",
            "must be a whole number from 0 to 1000000",
        ),
        (
            "--pending",
            "-1",
            "must be a whole number from 0 to 1000000",
        ),
        (
            "--seed",
            "abc",
            "must be a whole number from 0 to 18446744073709551615",
        ),
        (
            "--seed",
            "-1",
            "must be a whole number from 0 to 18446744073709551615",
        ),
        ("--burst", "-1", "must be a whole number from 1 to 100000"),
        (
            "--max-in-flight",
            "-1",
            "must be a whole number from 1 to 1000",
        ),
        (
            "--capacity",
            "-5/s",
            "not a rate: write a number and a unit",
        ),
        ("--rate", "-5/s", "not a rate: write a number and a unit"),
        ("--outage", "-5m", "\"-5m\" is not a duration"),
    ] {
        let mut line = vec!["policy", "simulate"];
        for (name, value) in [("--pending", "1"), ("--outage", "1m"), ("--capacity", "1")] {
            if name != argument {
                line.extend([name, value]);
            }
        }
        line.extend([argument, value]);
        let text = error_message(program().args(line).output().expect("the program runs"), 2);
        let expected = format!("invalid value '{value}' for '{argument} <");
        assert!(text.contains(&expected) && text.contains(right), "{text}");
    }
}

#[test]
fn json_that_is_not_an_object_is_refused() {
    for (input, shape) in [
        ("[]", "a list"),
        ("\"swift\"", "a string"),
        ("5", "a number"),
        ("true", "a boolean"),
        ("null", "null"),
    ] {
        let text = error_message(run_with_input("policy explain --file -", input), 2);
        let expected =
            "error: standard input is not a retry policy\npolicy: must be an object, not ";
        assert!(text.starts_with(expected), "{input}: {text}");
        assert!(text.trim_end().ends_with(shape), "{input}: {text}");
    }
    let text = error_message(run_with_input("policy explain --file -", "[1, 2"), 2);
    assert!(text.contains("is not valid JSON: EOF"), "{text}");
}

#[test]
fn an_unknown_unit_is_not_a_duration() {
    let mut command = program();
    command.args(["policy", "simulate", "--pending", "1", "--capacity", "1"]);
    let output = command
        .args(["--outage", "10 parsecs"])
        .output()
        .expect("the program runs");
    let text = error_message(output, 2);
    assert!(text.contains("\"10 parsecs\" is not a duration"), "{text}");
    assert!(text.contains("\"250ms\", \"30s\", \"10m\""), "{text}");
}

#[test]
fn every_policy_error_is_printed_on_its_own_line() {
    let json = r#"{"backoff": {"kind": "exponential", "base": "10 parsecs", "factor": 0.5},
        "jitter": {"kind": "some"}, "max_attempts": 0, "retries": 5}"#;
    let toml = "max_attempts = 0\nretries = 5\n[backoff]\nkind = 'exponential'\nbase = '10 parsecs'\n\
                factor = 0.5\n[jitter]\nkind = 'some'\n";
    for path in [file("bad.json", json), file("bad.toml", toml)] {
        let simulate = format!("{SIMULATE} --file {path}");
        for line in [format!("policy explain --json --file {path}"), simulate] {
            let text = error_message(run(&line), 2);
            let mut lines = text.lines();
            assert_eq!(
                lines.next(),
                Some(&*format!("error: {path} is not a retry policy"))
            );
            let fields: Vec<&str> = lines
                .map(|l| l.split(": ").next().expect("a field"))
                .collect();
            assert_eq!(
                fields,
                [
                    "backoff.base",
                    "backoff.factor",
                    "jitter.kind",
                    "max_attempts",
                    "retries"
                ],
                "{text}"
            );
            assert!(
                text.contains("\nmax_attempts: must be a whole number from 1 to 1000\n"),
                "{text}"
            );
            assert!(text.contains("\"10 parsecs\" is not a duration"), "{text}");
        }
    }
    let text = error_message(
        run_with_input("policy explain --file -", "{\"preset\": \"eager\"}"),
        2,
    );
    assert!(
        text.contains("\npreset: \"eager\" is not a preset; presets: recommended,"),
        "{text}"
    );
}

#[test]
fn a_malformed_file_is_reported_with_format_and_position() {
    for (path, expected) in [
        (
            file("broken.json", "{\n  \"preset\": swift\n}"),
            "is not valid JSON: expected value at line 2 column 13",
        ),
        (
            file("broken.toml", "preset = 'swift'\nmax_attempts 4\n"),
            "at line 2 column 1",
        ),
        (
            file("json.toml", "{\"preset\": \"swift\"}"),
            "is not valid TOML: ",
        ),
        (
            file("toml.json", "preset = 'swift'"),
            "is not valid JSON: expected value at line 1 column 1",
        ),
        (
            file(
                "twice.json",
                "{\"preset\": \"swift\",\n \"preset\": \"brisk\"}",
            ),
            "is not valid JSON: \"preset\" occurs twice at line 2 column ",
        ),
        (file("broken-brace", "{\"preset\""), "is not valid JSON: "),
        (file("broken-plain", "preset: swift"), "is not valid TOML: "),
        (
            file("latin.json", b"{\"preset\": \"\xe9\"}"),
            "is not valid UTF-8",
        ),
        (
            file("list.json", "[]"),
            "\npolicy: must be an object, not a list",
        ),
        (file("empty.json", ""), "is not valid JSON: EOF"),
        (file("empty.toml", ""), "\nbackoff: is required"),
        (
            file("large.json", " ".repeat(1024 * 1024 + 1)),
            "is too large: a policy has at most 1 MiB",
        ),
        (scratch("absent.json").display().to_string(), "cannot read "),
        (env!("CARGO_TARGET_TMPDIR").to_owned(), "cannot read "),
    ] {
        let text = error_message(run(&format!("policy explain --file {path}")), 2);
        assert!(text.contains(expected), "{path}: {text}");
        assert!(text.contains(&path), "{text}");
    }
}

#[test]
fn a_chart_that_cannot_be_written_is_a_failure() {
    let path = scratch("no-such-folder").join("picture.svg");
    for line in ["policy explain", SIMULATE] {
        let text = error_message(run(&format!("{line} --svg {}", path.display())), 1);
        assert!(
            text.contains("cannot write ") && text.contains("picture.svg: "),
            "{text}"
        );
    }
}

#[test]
fn a_closed_output_pipe_is_not_a_failure() {
    let path = long_policy("unread.json");
    for line in [
        "policy explain --json --file",
        "policy explain --file",
        "policy explain --svg - --file",
    ] {
        let mut child = program()
            .args(line.split(' '))
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("the process ends");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
        assert_eq!(output.status.code(), Some(0), "{line}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("a device");
    let output = program().args(["policy", "explain"]).stdout(full).output();
    let text = error_message(output.expect("the program runs"), 1);
    assert!(text.contains("cannot print the response"), "{text}");
}
