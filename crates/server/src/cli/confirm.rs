//! Asks before a deletion.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::cli::error::CommandError;

/// Maximum length of an answer that is read.
const MAX_ANSWER_BYTES: u64 = 1_024;

/// Asks on standard error whether to continue. Without a terminal `--yes` is required.
pub fn confirm(question: &str) -> Result<(), CommandError> {
    let input = io::stdin();
    if !input.is_terminal() {
        return Err(CommandError::Input(format!(
            "{question}: pass --yes to confirm"
        )));
    }
    // If the question cannot be printed, no answer is expected.
    let _ = write!(io::stderr(), "{question}. Continue? [y/N] ");
    match is_yes(input.lock()) {
        true => Ok(()),
        false => Err(CommandError::Input("not confirmed".to_owned())),
    }
}

/// Reads an answer. Everything but `y` and `yes` means no.
fn is_yes(input: impl BufRead) -> bool {
    let mut answer = String::new();
    let read = input.take(MAX_ANSWER_BYTES).read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_y_and_yes_confirm() {
        for yes in ["y\n", "Yes\n", " YES \r\n", "y"] {
            assert!(is_yes(yes.as_bytes()), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "no\n", "yep\n", "delete\n"] {
            assert!(!is_yes(no.as_bytes()), "{no:?}");
        }
        assert!(!is_yes(&b"\xff\xfe\n"[..]));
    }
}
