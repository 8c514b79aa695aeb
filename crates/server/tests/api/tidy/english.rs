//! Checks of the English: STYLE.md, section English, as far as a program can check it.
//!
//! Comments and strings of Rust files are read apart from the code, in which a name may be anything. All other text files
//! (documents, settings, scripts, pages) are checked as a whole.

use std::path::Path;

use super::text_files;

/// Question words that no doc comment starts with: it starts with the thing or a verb.
const QUESTION_WORDS: [&str; 9] = [
    "What", "Who", "Whose", "How", "Whether", "Where", "Which", "Nobody", "Whoever",
];
/// Words that leave out the actor, and a word for which there is a usual one.
const BANNED_WORDS: [&str; 10] = [
    "nobody",
    "whoever",
    "whomever",
    "somebody",
    "everybody",
    "anybody",
    "mend",
    "mends",
    "mended",
    "mending",
];
/// Texts of others that contain such a word.
const QUOTED: [(&str, &str); 3] = [
    (
        "It's a Secret to Everybody",
        "the secret in GitHub's test vectors",
    ),
    ("user=nobody", "a user of the operating system"),
    (
        "Nobody knows this mailbox",
        "the answer of a mail server in the tests",
    ),
];
/// Files that are not checked.
const UNCHECKED: [(&str, &str); 2] = [
    (
        "crates/server/tests/api/tidy/english.rs",
        "it lists the words",
    ),
    ("STYLE.md", "it lists the words"),
];

/// Returns true if a text contains a banned word outside quotations.
fn has_banned_word(text: &str) -> bool {
    let mut text = text.to_owned();
    for (quoted, _) in QUOTED {
        text = text.replace(quoted, "");
    }
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| BANNED_WORDS.contains(&word.to_ascii_lowercase().as_str()))
}

/// The comments and the strings of a Rust file, each line of them with its number.
#[derive(Default)]
struct RustText {
    comments: Vec<(usize, String)>,
    strings: Vec<(usize, String)>,
}

impl RustText {
    fn of(source: &str) -> RustText {
        let mut found = RustText::default();
        let (mut rest, mut line) = (source, 1);
        while let Some(start) = rest.find(['"', '/', '\'', 'r']) {
            line += newlines(&rest[..start]);
            let joined = rest[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            rest = &rest[start..];
            let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
            let length = if rest.starts_with("//") {
                let end = rest.find('\n').unwrap_or(rest.len());
                found.comments.push((line, rest[..end].to_owned()));
                end
            } else if rest.starts_with('"') {
                let end = end_of_string(rest);
                found.add_string(line, &rest[1..end]);
                end + 1
            } else if rest.starts_with('r') && !joined && rest[1 + hashes..].starts_with('"') {
                let begin = hashes + 2;
                let close = format!("\"{}", "#".repeat(hashes));
                let end = rest[begin..]
                    .find(&close)
                    .map_or(rest.len(), |end| begin + end);
                found.add_string(line, &rest[begin..end]);
                (end + close.len()).min(rest.len())
            } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
                // A character that is a quotation mark or escaped.
                rest[2..].find('\'').map_or(rest.len(), |end| end + 3)
            } else {
                1
            };
            line += newlines(&rest[..length]);
            rest = &rest[length..];
        }
        found
    }

    /// Adds the lines of a string, unless it is a single word, which is data.
    fn add_string(&mut self, line: usize, text: &str) {
        if !text.trim().contains(' ') {
            return;
        }
        let lines = text.lines().enumerate();
        self.strings
            .extend(lines.map(|(number, text)| (line + number, text.to_owned())));
    }

    /// Returns the lines that break a rule.
    fn errors(&self) -> Vec<(usize, &str)> {
        let mut found = Vec::new();
        let mut last = (0, "");
        for (line, comment) in &self.comments {
            let text = comment.trim_start_matches(['/', '!']);
            let marker = &comment[..comment.len() - text.len()];
            let starts_doc = marker.len() == 3 && last != (line - 1, marker);
            let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            let first = words.find(|word| !word.is_empty()).unwrap_or_default();
            if has_banned_word(text) || (starts_doc && QUESTION_WORDS.contains(&first)) {
                found.push((*line, comment.as_str()));
            }
            last = (*line, marker);
        }
        let strings = self.strings.iter();
        let strings = strings.filter(|(_, text)| has_banned_word(text));
        found.extend(strings.map(|(line, text)| (*line, text.as_str())));
        found
    }
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

/// Returns the index of the quotation mark that ends the string at the start of a text.
fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, character)| {
        let ends = *character == '"' && !is_escaped;
        is_escaped = *character == '\\' && !is_escaped;
        ends
    });
    end.map_or(text.len() - 1, |(index, _)| index)
}

#[test]
fn comments_strings_and_documents_follow_the_style() {
    let mut found = Vec::new();
    for (path, text) in text_files() {
        if UNCHECKED.iter().any(|(file, _)| path == Path::new(file)) {
            continue;
        }
        let mut error = |line: usize, text: &str| {
            found.push(format!("{}:{line}: {}", path.display(), text.trim()));
        };
        if path.extension().is_some_and(|extension| extension == "rs") {
            for (line, text) in RustText::of(&text).errors() {
                error(line, text);
            }
        } else {
            let lines = text.lines().enumerate();
            for (number, line) in lines.filter(|(_, line)| has_banned_word(line)) {
                error(number + 1, line);
            }
        }
    }
    assert!(
        found.is_empty(),
        "STYLE.md, section English:\n{}",
        found.join("\n")
    );
}

#[test]
fn unclear_comments_and_strings_are_found() {
    let lines = |source: &str| -> Vec<usize> {
        let text = RustText::of(source);
        text.errors().into_iter().map(|(line, _)| line).collect()
    };
    let none: [usize; 0] = [];
    // Openings of doc comments.
    assert_eq!(lines("/// What is kept.\nstruct Kept;"), [1]);
    assert_eq!(
        lines("//! Retention.\n\n/// How long.\nconst A: u8 = 1;"),
        [3]
    );
    assert_eq!(
        lines("/// Returns the owner,\n/// Which may be none.\n// How it works.\n"),
        none
    );
    // Words.
    assert_eq!(lines("    // Asked by whoever reads it.\n"), [1]);
    assert_eq!(lines("let nobody = \"nobody\"; // the user"), none);
    assert_eq!(lines("// \"quoted\nf(\"a\", \"Somebody waits\");"), [2]);
    assert_eq!(
        lines("f(\n    \"one line, \\\n     nobody waits\",\n);"),
        [3]
    );
    assert_eq!(
        lines("f('\"', \"a \\\" nobody\"); g('\\'', b'\"', \"b\");"),
        [1]
    );
    assert_eq!(lines("r#\"a \"quoted\n somebody\"#; // fine"), [2]);
    assert_eq!(
        lines("for r in x {} let other: &'a str = \"to mend it\";"),
        [1]
    );
    assert_eq!(lines("f(\"It's a Secret to Everybody\");"), none);
    assert!(has_banned_word("# Nobody gets it") && !has_banned_word("a mendable one"));
}
