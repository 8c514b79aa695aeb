//! The result tables of `docs/security.md`, which these tests write and compare.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Environment variable that makes the tests write the tables instead of comparing them.
const WRITE: &str = "POSTHASTE_WRITE_DOCS";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md")
}

/// A table of results.
pub(crate) struct Table {
    section: &'static str,
    lines: Vec<String>,
}

impl Table {
    /// Creates an empty table for a section of the page.
    pub(crate) fn new(section: &'static str, columns: &[&str]) -> Table {
        let rule = columns.iter().map(|_| "---").collect::<Vec<_>>().join("|");
        let head = format!("| {} |", columns.join(" | "));
        Table {
            section,
            lines: vec![head, format!("|{rule}|")],
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: &[String]) {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        self.lines.push(format!("| {} |", cells.join(" | ")));
    }

    /// Compares the table with the page, or writes it there.
    pub(crate) fn publish(&self) {
        let file = File::open(page()).expect("docs/security.md");
        // Several tests write to the same page.
        file.lock().expect("it can be locked");
        let text = fs::read_to_string(page()).expect("it is text");
        let opening = format!("<!-- results: {} -->\n", self.section);
        let (before, rest) = text
            .split_once(&opening)
            .unwrap_or_else(|| panic!("docs/security.md has no {opening}"));
        let (written, after) = rest.split_once("<!-- end -->").expect("an end");
        let table: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        if env::var_os(WRITE).is_some() {
            let text = format!("{before}{opening}{table}<!-- end -->{after}");
            fs::write(page(), text).expect("it can be written");
            return;
        }
        if written == table {
            return;
        }
        let differs = |line: &&String| !written.lines().any(|old| old == line.as_str());
        let news: Vec<&str> = self.lines.iter().filter(differs).map(|l| &**l).collect();
        panic!(
            "docs/security.md, section {}, no longer tells the truth.\n\nRows that differ:\n{}\n\n\
             The whole section (or set {WRITE}=1 to write it):\n{table}",
            self.section,
            news.join("\n"),
        );
    }
}

/// Formats text as code, with invisible characters escaped.
pub(crate) fn code(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let mut shown = String::new();
    for (nth, character) in text.chars().enumerate() {
        let at_an_edge = nth == 0 || nth == last;
        let is_hidden = matches!(
            character,
            '\u{80}'..='\u{a0}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
            | '\u{2060}'..='\u{206f}' | '\u{3000}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{fff0}'..='\u{ffff}'
        ) || character.is_control()
            || (character.is_whitespace() && (character != ' ' || at_an_edge));
        if is_hidden {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    // Text with a backtick needs two backticks around it.
    match shown.contains('`') {
        true => format!("`` {shown} ``"),
        false => format!("`{shown}`"),
    }
}
