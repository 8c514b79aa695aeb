//! Status badges. Word, symbol and colour together show the status.

use maud::{Markup, html};

/// The kind of a badge: the severity of the status. It decides the colour and the symbol, never the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadgeKind {
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

impl BadgeKind {
    fn class(self) -> &'static str {
        match self {
            BadgeKind::Good => "good",
            BadgeKind::Busy => "busy",
            BadgeKind::Warning => "warning",
            BadgeKind::Bad => "bad",
            BadgeKind::Quiet => "quiet",
        }
    }

    /// A symbol that can be distinguished without colour.
    fn symbol(self) -> &'static str {
        match self {
            BadgeKind::Good => "✓",
            BadgeKind::Busy => "→",
            BadgeKind::Warning => "!",
            BadgeKind::Bad => "✕",
            BadgeKind::Quiet => "–",
        }
    }
}

/// A badge with a status.
pub(crate) fn badge(kind: BadgeKind, text: &str) -> Markup {
    html! { span class={ "badge " (kind.class()) } { span aria-hidden="true" { (kind.symbol()) } " " (text) } }
}

/// A badge with the status of a delivery, as the API names it.
pub(crate) fn delivery_badge(status: &str) -> Markup {
    let kind = match status {
        "succeeded" => BadgeKind::Good,
        "pending" | "in_progress" => BadgeKind::Busy,
        "retrying" | "held" => BadgeKind::Warning,
        "failed" => BadgeKind::Bad,
        // Cancelled, or a status of a later version.
        _ => BadgeKind::Quiet,
    };
    badge(kind, &humanize(status))
}

/// Converts an API name to words: `in_progress` becomes "in progress".
pub(crate) fn humanize(name: &str) -> String {
    name.replace('_', " ")
}
