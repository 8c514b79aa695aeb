//! The policies in the documents are valid, and the commands about policies print what the documents show.

use std::fs;

use tempfile::TempDir;

use super::program::run_in;
use super::{blocks, document};

/// A command line of a document, and the output that it shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Example {
    typed: String,
    shown: Vec<String>,
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

/// Creates a folder with the first policy of the document, under the name that its examples use. Each test has its own: tests
/// run at the same time.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let policies = blocks(&document("docs/policies.md"), "toml");
    fs::write(folder.path().join("policy.toml"), &policies[0]).expect("a file");
    folder
}

#[test]
fn every_example_runs_and_prints_what_is_shown() {
    let folder = folder();
    for (path, least) in [("README.md", 1), ("docs/policies.md", 5)] {
        let mut count = 0;
        for example in examples(&document(path)) {
            let Some((input, arguments)) = invocation(&example.typed) else {
                continue;
            };
            let output = run_in(folder.path(), &arguments, &input);
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
            count += 1;
        }
        assert!(count >= least, "{path} has lost its examples: {count}");
    }
}

#[test]
fn every_policy_of_the_document_is_valid() {
    let folder = folder();
    let text = document("docs/policies.md");
    let mut count = 0;
    for language in ["toml", "json"] {
        for policy in blocks(&text, language) {
            let file = format!("policy-{count}.{language}");
            fs::write(folder.path().join(&file), &policy).expect("a file");
            let arguments = ["policy", "explain", "--file", &file].map(str::to_owned);
            let output = run_in(folder.path(), &arguments, "");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{policy}\n{errors}");
            count += 1;
        }
    }
    assert!(count >= 3, "the document has lost its policies: {count}");
}

/// The charts of the documents, and the commands that draw them.
const CHARTS: [(&str, &str); 2] = [
    (
        "docs/images/outage.svg",
        "policy simulate --pending 10000 --outage 30m --capacity 50/s --rate 50/s --svg -",
    ),
    ("docs/images/recommended.svg", "policy explain --svg -"),
];

#[test]
fn charts_of_the_documents_are_current() {
    let folder = folder();
    for (path, command) in CHARTS {
        let output = run_in(folder.path(), &shell_words(command), "");
        let drawn = String::from_utf8(output.stdout).expect("text");
        assert!(
            document(path).trim_end() == drawn.trim_end(),
            "{path} differs from the output of `posthaste {command}`"
        );
    }
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
