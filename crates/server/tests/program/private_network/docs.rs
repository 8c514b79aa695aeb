//! The result tables in `docs/security`, which these tests write and compare. Each table has a page of its own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Environment variable that makes the tests write the tables instead of comparing them.
const WRITE: &str = "POSTHASTE_WRITE_DOCS";
/// Separates the head of a page, which people write, from the table.
const TABLE_BELOW: &str = "<!-- results -->\n";

/// A table of results.
pub(crate) struct Table {
    page: &'static str,
    test: &'static str,
    lines: Vec<String>,
}

impl Table {
    /// Creates an empty table for the page `docs/security/{page}.md`. `module` is the module path of the test.
    pub(crate) fn new(page: &'static str, module: &'static str, columns: &[&str]) -> Table {
        let rule = columns.iter().map(|_| "---").collect::<Vec<_>>().join("|");
        let head = format!("| {} |", columns.join(" | "));
        let (_program, test) = module.split_once("::").expect("a module of this program");
        Table {
            page,
            test,
            lines: vec![head, format!("|{rule}|")],
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: &[String]) {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        self.lines.push(format!("| {} |", cells.join(" | ")));
    }

    fn path(&self) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security");
        folder.join(format!("{}.md", self.page))
    }

    /// Compares the table with its page, or writes it there.
    pub(crate) fn publish(&self) {
        let name = format!("docs/security/{}.md", self.page);
        let text = fs::read_to_string(self.path()).unwrap_or_else(|why| panic!("{name}: {why}"));
        let (head, written) = text
            .split_once(TABLE_BELOW)
            .unwrap_or_else(|| panic!("{name} has no line {TABLE_BELOW}"));
        assert!(
            head.contains(self.test),
            "the head of {name} must name the test that writes it, {}",
            self.test
        );
        let table: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        if env::var_os(WRITE).is_some() {
            let text = format!("{head}{TABLE_BELOW}{table}");
            fs::write(self.path(), text).expect("it can be written");
            return;
        }
        if written == table {
            return;
        }
        let differs = |line: &&String| !written.lines().any(|old| old == line.as_str());
        let changed_lines: Vec<&str> = self.lines.iter().filter(differs).map(|l| &**l).collect();
        panic!(
            "{name} differs from the results.\n\nRows that differ:\n{}\n\n\
             The whole table (or set {WRITE}=1 to write it):\n{table}",
            changed_lines.join("\n"),
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
