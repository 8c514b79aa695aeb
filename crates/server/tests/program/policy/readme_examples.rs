//! Runs the examples of the README, so that it stays correct.

use std::fs;
use std::path::{Path, PathBuf};

use posthaste_core::address::{Destination, EgressRules};

use super::fixture::{run_in, scratch};

/// A command line of the README, and the output that it shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Example {
    typed: String,
    shown: Vec<String>,
}

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    fs::read_to_string(path).expect("the README")
}

/// Returns the code blocks in this language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let begun = text.split(&fence).skip(1);
    begun
        .map(|block| block.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

fn examples(text: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    for block in blocks(text, "console") {
        for line in block.lines() {
            if let Some(typed) = line.strip_prefix("$ ") {
                found.push(Example {
                    typed: typed.to_owned(),
                    shown: Vec::new(),
                });
            } else if let Some(example) = found.last_mut() {
                example.shown.push(line.to_owned());
            }
        }
    }
    found
}

/// Splits a command line into words as a shell does, up to a comment. A pipe is a word.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(character),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => return words,
            (None, ' ') => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// Returns the input and the arguments of the program. `None` if the line runs another program.
fn invocation(line: &str) -> Option<(String, Vec<String>)> {
    let words = shell_words(line);
    let (input, command) = match words.iter().position(|word| word == "|") {
        Some(pipe) if words[0] == "echo" => (
            format!("{}\n", words[1..pipe].join(" ")),
            &words[pipe + 1..],
        ),
        Some(_) => return None,
        None => (String::new(), &words[..]),
    };
    let rest = ["posthaste", "cargo run --release --"]
        .into_iter()
        .find_map(|program| {
            let program: Vec<&str> = program.split(' ').collect();
            let begins =
                command.len() >= program.len() && command.iter().zip(&program).all(|(a, b)| a == b);
            begins.then(|| command[program.len()..].to_vec())
        });
    Some((input, rest?))
}

/// Creates a folder with the policy that the README shows.
fn folder() -> PathBuf {
    let folder = scratch("readme");
    fs::create_dir_all(&folder).expect("a folder");
    let policy = blocks(&readme(), "toml").into_iter().next();
    fs::write(folder.join("policy.toml"), policy.expect("a policy")).expect("a file");
    folder
}

#[test]
fn every_example_of_this_program_runs() {
    let folder = folder();
    let mut ran = 0;
    for example in examples(&readme()) {
        let Some((input, arguments)) = invocation(&example.typed) else {
            continue;
        };
        let output = run_in(&folder, &arguments, &input);
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8(printed).expect("text");
        let fails = example.shown.iter().any(|line| line.starts_with("error:"));
        let code = if fails { 2 } else { 0 };
        assert_eq!(
            output.status.code(),
            Some(code),
            "{}\n{printed}",
            example.typed
        );
        // An ellipsis stands for omitted output.
        for piece in example.shown.iter().flat_map(|line| line.split('…')) {
            assert!(
                printed.contains(piece.trim()),
                "{}: {piece}\n{printed}",
                example.typed
            );
        }
        ran += 1;
    }
    assert!(ran >= 4, "the README has lost its examples: {ran}");
}

#[test]
fn the_receiver_of_the_quick_start_is_allowed_by_the_egress_rules() {
    let rules = EgressRules {
        allow_networks: vec!["127.0.0.0/8".parse().expect("a network")],
        allow_http: true,
        ..EgressRules::default()
    };
    let readme = readme();
    let urls = readme.split("\"url\": \"").skip(1);
    let mut count = 0;
    for url in urls.filter_map(|rest| rest.split('"').next()) {
        let destination = Destination::parse(url, &rules);
        assert!(destination.is_ok(), "{url}: {destination:?}");
        count += 1;
    }
    assert!(count >= 1, "the README has lost its tour");
}

#[test]
fn command_lines_are_split_like_a_shell() {
    let invoked = |line: &str| {
        let (input, arguments) = invocation(line)?;
        Some((input, arguments.join("|")))
    };
    let some = |input: &str, arguments: &str| Some((input.to_owned(), arguments.to_owned()));
    assert_eq!(
        invoked("posthaste policy explain   # why"),
        some("", "policy|explain")
    );
    assert_eq!(
        invoked("cargo run --release -- policy \"a b\""),
        some("", "policy|a b")
    );
    assert_eq!(
        invoked("echo '{\"a\": 1}' | posthaste x --file -"),
        some("{\"a\": 1}\n", "x|--file|-")
    );
    for other in [
        "cargo run --release -p posthaste-sim -- 42",
        "scripts/test",
        "ls | posthaste x",
    ] {
        assert_eq!(invoked(other), None, "{other}");
    }
}
