//! The command lines in the documents: every command and every flag exists.

use std::collections::BTreeMap;
use std::fs;

use super::program::program;
use super::{blocks, document, repository};

/// Returns the documents that users and operators read.
fn documents() -> Vec<String> {
    let mut found = vec!["README.md".to_owned(), "examples/README.md".to_owned()];
    for entry in fs::read_dir(repository().join("docs")).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_str().expect("a plain name");
        if name.ends_with(".md") {
            found.push(format!("docs/{name}"));
        }
    }
    found
}

/// Returns the command lines of this program in a document: whole lines of shell blocks, and code in the text.
fn command_lines(text: &str) -> Vec<String> {
    let languages = ["sh", "bash", "console"];
    let shell = languages.iter().flat_map(|language| blocks(text, language));
    let mut found: Vec<String> = shell
        .flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|line| {
            let (_, command) = line.split_once("posthaste ")?;
            let before = line.strip_suffix(command)?;
            let is_program = before == "posthaste "
                || before.ends_with("$ posthaste ")
                || before.ends_with("| posthaste ")
                || before.ends_with("… posthaste ");
            is_program.then(|| command.to_owned())
        })
        .collect();
    let inline = text.split('`').skip(1).step_by(2);
    found.extend(
        inline
            .filter(|code| !code.contains('\n'))
            .filter_map(|code| code.strip_prefix("posthaste ").map(str::to_owned)),
    );
    found
}

/// The output of `--help`, by command.
#[derive(Default)]
struct Helps(BTreeMap<Vec<String>, Option<String>>);

impl Helps {
    /// Returns the help of a command. `None` if there is no such command.
    fn of(&mut self, command: &[String]) -> Option<&str> {
        let help = self.0.entry(command.to_vec()).or_insert_with(|| {
            let output = program().args(command).arg("--help").output();
            let output = output.expect("the program runs");
            let help = String::from_utf8(output.stdout).expect("text");
            output.status.success().then_some(help)
        });
        help.as_deref()
    }

    /// Returns the help that applies to a command line: of two words if the second is a command too.
    fn for_line(&mut self, words: &[&str]) -> Option<String> {
        let is_name = |word: &&&str| {
            word.chars()
                .all(|character| character.is_ascii_lowercase() || character == '-')
                && !word.starts_with('-')
        };
        let names = words.iter().take(2).take_while(is_name);
        let mut command: Vec<String> = names.map(|word| (*word).to_owned()).collect();
        while !command.is_empty() {
            if let Some(help) = self.of(&command) {
                return Some(help.to_owned());
            }
            command.pop();
        }
        None
    }
}

/// Returns the unknown command or the unknown flags of a command line.
fn mistakes(helps: &mut Helps, line: &str) -> Vec<String> {
    let line = line.split(" #").next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some(help) = helps.for_line(&words) else {
        return vec![format!("no command `posthaste {line}`")];
    };
    let flags = words.iter().take_while(|word| **word != "|");
    let flags = flags.map(|word| word.split('=').next().unwrap_or_default());
    flags
        .filter(|flag| flag.starts_with("--") && !help.contains(flag))
        .map(|flag| format!("`posthaste {line}`: no flag {flag}"))
        .collect()
}

#[test]
fn every_command_and_flag_in_the_documents_exists() {
    let mut helps = Helps::default();
    let mut found = Vec::new();
    let mut count = 0;
    for path in documents() {
        for line in command_lines(&document(&path)) {
            let mistakes = mistakes(&mut helps, &line);
            found.extend(mistakes.iter().map(|mistake| format!("{path}: {mistake}")));
            count += 1;
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(count > 30, "only {count} command lines were found");
    assert_eq!(mistakes(&mut helps, "serve --no-such-flag").len(), 1);
    assert_eq!(mistakes(&mut helps, "no-such-command").len(), 1);
}

#[test]
fn command_lines_are_found_in_blocks_and_in_the_text() {
    let text = "Run `posthaste a b` or `x posthaste`.\n```sh\nposthaste c --d   # e\nA=… posthaste f\nls posthaste g\n```\n";
    assert_eq!(command_lines(text), ["c --d   # e", "f", "a b"]);
}
