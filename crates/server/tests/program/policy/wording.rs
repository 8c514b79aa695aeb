//! The text of answers: width, numbers, and special cases.

use super::fixture::{SIMULATE, parsed, program, run, stdout};

#[test]
fn the_width_follows_the_terminal_up_to_a_hundred() {
    for (columns, most) in [("70", 70), ("100", 100), ("400", 100), ("rubbish", 80)] {
        for line in ["policy explain", SIMULATE] {
            let output = program()
                .args(line.split(' '))
                .env("COLUMNS", columns)
                .output();
            let text = stdout(output.expect("the program runs"));
            let widest = text.lines().map(|line| line.chars().count()).max();
            let widest = widest.expect("lines");
            assert!(
                widest <= most && widest > most - 12,
                "{columns}: {widest}\n{text}"
            );
        }
    }
}

#[test]
fn a_narrow_terminal_gets_lines_of_sixty_with_nothing_cut() {
    let slow = "policy simulate --pending 1000000 --outage 30d --capacity 0.5/s --preset brisk";
    let lines = [
        "policy explain",
        "policy explain --preset swift",
        SIMULATE,
        slow,
    ];
    for (line, columns) in lines.iter().flat_map(|line| [(line, "40"), (line, "60")]) {
        let output = program()
            .args(line.split(' '))
            .env("COLUMNS", columns)
            .output();
        let text = stdout(output.expect("the program runs"));
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(60), "{columns}\n{text}");
        assert!(!text.contains('…'), "{text}");
    }
}

#[test]
fn rates_are_printed_as_given() {
    let text = stdout(run(
        "policy simulate --pending 5 --outage 1m --capacity 90/m --rate 10/m",
    ));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("then capacity 1.5/s."), "{text}");
    assert!(text.contains("10 in flight, 10/m, burst 200"), "{text}");
    let json = parsed(&stdout(run(
        "policy simulate --pending 5 --outage 1m --capacity 1.5/s --json",
    )));
    assert_eq!(json["capacity_per_second"], 1.5);
}

#[test]
fn different_times_are_printed_differently() {
    let text = stdout(run(
        "policy simulate --pending 5000 --outage 1d --capacity 50/s",
    ));
    let row = text.lines().find(|line| line.contains("from the start"));
    let row = row.expect("a row").split("start").nth(1).expect("cells");
    assert!(row.trim().starts_with("1d "), "{row}");
    assert!(text.contains("receiver down for 1d, then"), "{text}");
}

#[test]
fn one_delivery_and_no_outage_have_correct_grammar() {
    let text = stdout(run(
        "policy simulate --pending 1 --outage 5s --capacity 50/s",
    ));
    assert!(text.contains("posthaste delivered the delivery"), "{text}");
    assert!(
        !text.contains("all 1 ") && !text.contains("every 1m"),
        "{text}"
    );
    let text = stdout(run(
        "policy simulate --pending 200 --outage 0s --capacity 50/s",
    ));
    assert!(!text.contains("recover"), "{text}");
    let picture = stdout(run(
        "policy simulate --pending 200 --outage 0s --capacity 50/s --svg -",
    ));
    assert!(!picture.contains("recover") && !picture.contains("outage began"));
}

#[test]
fn a_simulation_without_a_rate_limit_recommends_one() {
    let line = "policy simulate --pending 1000 --outage 5m --capacity 10/s";
    let text = stdout(run(line))
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(text.contains("With --rate 10/s"), "{text}");
    let text = stdout(run(&format!("{line} --rate 5/s")));
    assert!(!text.contains("With --rate"), "{text}");
}
