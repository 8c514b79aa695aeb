//! Quotes user input in error messages.
//!
//! Showing a wrong value helps the user to find the error. But the value may be a secret, and messages end up in
//! logs and tickets. So only text that is too short to be a secret is shown, which also limits the length of the
//! message.

/// Maximum length of a text that is quoted, in characters.
pub const MAX_QUOTED_CHARS: usize = 16;

/// Returns the text in quotes if it is short, and otherwise a placeholder.
pub fn quoted(text: &str) -> String {
    match text.chars().nth(MAX_QUOTED_CHARS) {
        None => format!("{text:?}"),
        Some(_) => "what is written".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_text_is_quoted() {
        assert_eq!(quoted("10 parsecs"), "\"10 parsecs\"");
        assert_eq!(quoted("größe\n"), "\"größe\\n\"");
        let long = "é".repeat(MAX_QUOTED_CHARS);
        assert!(quoted(&long).contains(&long));
        assert_eq!(quoted(&format!("{long}x")), "what is written");
    }
}
