//! What people wrote, told back to them where that helps.
//!
//! A slip is seen at once when it is shown. But what stands in the wrong place may be a secret, and
//! messages end up in logs and tickets: so only what is too short to be one is shown, and nothing fills
//! an answer.

/// The longest text that is shown.
pub const MAX_QUOTED_CHARS: usize = 16;

/// The text in quotes if it is short, and otherwise words that stand for it.
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
    fn what_is_short_is_shown_and_nothing_else_is() {
        assert_eq!(quoted("10 parsecs"), "\"10 parsecs\"");
        assert_eq!(quoted("größe\n"), "\"größe\\n\"");
        let long = "é".repeat(MAX_QUOTED_CHARS);
        assert!(quoted(&long).contains(&long));
        assert_eq!(quoted(&format!("{long}x")), "what is written");
    }
}
