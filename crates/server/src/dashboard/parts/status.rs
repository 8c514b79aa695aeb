//! States, told by word, shape and colour together.

use maud::{Markup, html};

/// How good or bad a state is. It decides the colour and the shape, never the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dashboard) enum Mood {
    /// As it should be.
    Good,
    /// Something is going on.
    Busy,
    /// Worth a look.
    Warning,
    /// Somebody must do something.
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

    /// A shape that can be told apart without colour.
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

/// A state.
pub(in crate::dashboard) fn badge(mood: Mood, word: &str) -> Markup {
    html! { span class={ "badge " (mood.class()) } { span aria-hidden="true" { (mood.sign()) } " " (word) } }
}

/// The status of a delivery, as the API names it.
pub(in crate::dashboard) fn delivery_badge(status: &str) -> Markup {
    let mood = match status {
        "succeeded" => Mood::Good,
        "pending" | "in_progress" => Mood::Busy,
        "retrying" | "held" => Mood::Warning,
        "failed" => Mood::Bad,
        // Called off, or a word of a later version.
        _ => Mood::Quiet,
    };
    badge(mood, &in_words(status))
}

/// A name of the API's as people write it: `in_progress` is "in progress".
pub(in crate::dashboard) fn in_words(name: &str) -> String {
    name.replace('_', " ")
}
