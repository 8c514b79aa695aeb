//! A `curl` command that repeats a delivery by hand.
//!
//! The command is meant to be pasted into a shell, and its parts come from outside. So every word is in single
//! quotes, and a payload with control characters is read from a file.

use super::payload::Payload;

/// Maximum size of a payload that is part of the command, in bytes.
const MAX_INLINE_BYTES: usize = 8 << 10;
/// File that the payload is read from, if it is not part of the command.
pub(super) const PAYLOAD_FILE: &str = "payload.bin";

/// A request to repeat.
pub(super) struct CurlRequest<'a> {
    /// Method of the request.
    pub(super) method: &'a str,
    /// URL of the endpoint or of the one-off request.
    pub(super) url: &'a str,
    /// Headers of the request.
    pub(super) headers: Vec<(&'a str, String)>,
    /// Payload of the event.
    pub(super) payload: &'a Payload,
}

impl CurlRequest<'_> {
    /// Returns whether the payload has to be in a file.
    pub(super) fn needs_file(&self) -> bool {
        match self.payload {
            Payload::Bytes(_) => true,
            Payload::Json(text) | Payload::Text(text) => {
                let is_unsafe = |character: char| character.is_control() && character != '\n';
                text.len() > MAX_INLINE_BYTES || text.chars().any(is_unsafe)
            }
        }
    }

    /// Returns the command.
    pub(super) fn command(&self) -> String {
        let mut lines = vec![format!(
            "curl --globoff --request {} {}",
            self.method,
            quoted(self.url)
        )];
        for (name, value) in &self.headers {
            lines.push(format!("--header {}", quoted(&format!("{name}: {value}"))));
        }
        if self.payload.len() == 0 {
            return lines.join(" \\\n  ");
        }
        lines.push(match self.payload {
            Payload::Json(text) | Payload::Text(text) if !self.needs_file() => {
                // Unlike `--data`, it does not treat a leading `@` as a file name.
                format!("--data-raw {}", quoted(text))
            }
            Payload::Json(_) | Payload::Text(_) | Payload::Bytes(_) => {
                format!("--data-binary @{PAYLOAD_FILE}")
            }
        });
        lines.join(" \\\n  ")
    }
}

/// Quotes a word for a POSIX shell. Within single quotes only the closing quote has a meaning.
fn quoted(text: &str) -> String {
    let plain: String = text
        .chars()
        .filter(|character| !character.is_control() || *character == '\n')
        .collect();
    format!("'{}'", plain.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(payload: &Payload) -> CurlRequest<'_> {
        CurlRequest {
            method: "POST",
            url: "https://example.com/a?b=[1]&c='$(reboot)'",
            headers: vec![
                ("webhook-id", "dlv_1".to_owned()),
                ("x", "`id` \"$HOME\" !".to_owned()),
            ],
            payload,
        }
    }

    /// Splits a command into words, as a shell does.
    fn shell_words(command: &str) -> Vec<String> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut is_quoted = false;
        let mut characters = command.chars();
        while let Some(character) = characters.next() {
            match character {
                '\'' => {
                    is_quoted = !is_quoted;
                    word.get_or_insert_default();
                }
                other if is_quoted => word.get_or_insert_default().push(other),
                '\\' => match characters.next() {
                    Some('\n') => {}
                    other => word.get_or_insert_default().extend(other),
                },
                ' ' | '\n' => words.extend(word.take()),
                special if "$`\"!&;|<>(){}[]*?#~".contains(special) => {
                    panic!("{special} outside of quotes: {command}")
                }
                other => word.get_or_insert_default().push(other),
            }
        }
        assert!(!is_quoted, "every quote is closed");
        words.extend(word);
        words
    }

    #[test]
    fn a_shell_parses_the_command_into_the_intended_words() {
        let payload = Payload::Json("{\"it's\": \"$(rm -rf ~)\",\n \"@\": 1}".to_owned());
        let request = request(&payload);
        let words = shell_words(&request.command());
        let expected = [
            "curl",
            "--globoff",
            "--request",
            "POST",
            "https://example.com/a?b=[1]&c='$(reboot)'",
            "--header",
            "webhook-id: dlv_1",
            "--header",
            "x: `id` \"$HOME\" !",
            "--data-raw",
            "{\"it's\": \"$(rm -rf ~)\",\n \"@\": 1}",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn control_characters_binary_and_large_payloads_are_read_from_a_file() {
        for payload in [
            Payload::Text("\u{1b}[2J\u{3}".to_owned()),
            Payload::Bytes(vec![0xff]),
            Payload::Json("1".repeat(MAX_INLINE_BYTES + 1)),
        ] {
            let command = request(&payload).command();
            assert_eq!(
                shell_words(&command).last().expect("the command has words"),
                "@payload.bin"
            );
        }
    }
}
