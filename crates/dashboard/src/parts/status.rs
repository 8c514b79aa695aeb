//! Status badges. Word, symbol and colour together show the status.

use maud::{Markup, html};

/// Severity of a status. It decides the colour and the symbol, never the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Normal.
    Good,
    /// In progress.
    Busy,
    /// Should be looked at.
    Warning,
    /// Needs action.
    Bad,
    /// Neither good nor bad.
    Quiet,
}

impl Mood {
    fn class(self) -> &'static str {
        match self {
            Mood::Good => "good",
            Mood::Busy => "busy",
            Mood::Warning => "warning",
            Mood::Bad => "bad",
            Mood::Quiet => "quiet",
        }
    }

    /// A symbol that can be distinguished without colour.
    fn sign(self) -> &'static str {
        match self {
            Mood::Good => "✓",
            Mood::Busy => "→",
            Mood::Warning => "!",
            Mood::Bad => "✕",
            Mood::Quiet => "–",
        }
    }
}

/// A badge with a status.
pub(crate) fn badge(mood: Mood, word: &str) -> Markup {
    html! { span class={ "badge " (mood.class()) } { span aria-hidden="true" { (mood.sign()) } " " (word) } }
}

/// A badge with the status of a delivery, as the API names it.
pub(crate) fn delivery_badge(status: &str) -> Markup {
    let mood = match status {
        "succeeded" => Mood::Good,
        "pending" | "in_progress" => Mood::Busy,
        "retrying" | "held" => Mood::Warning,
        "failed" => Mood::Bad,
        // Cancelled, or a status of a later version.
        _ => Mood::Quiet,
    };
    badge(mood, &in_words(status))
}

/// Converts an API name to words: `in_progress` becomes "in progress".
pub(crate) fn in_words(name: &str) -> String {
    name.replace('_', " ")
}
