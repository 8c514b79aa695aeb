//! Search in the documentation: sections of guides, routes and errors that contain all words.

use std::sync::OnceLock;

use super::frame::Frame;
use super::guides::{self, GUIDES};
use super::markup::{escape, put};
use super::{ERRORS_PATH, REFERENCE_PATH, SEARCH_PATH, guide_path};
use crate::code::Code;
use crate::routes;

/// Maximum length of a query, in characters.
const MAX_QUERY_CHARS: usize = 200;
/// Maximum number of results.
const MAX_RESULTS: usize = 40;
/// Characters of text around the first match.
const SNIPPET_CHARS: usize = 180;

/// A part of the documentation that can be found.
struct Target {
    link: String,
    /// The page that it belongs to.
    page: &'static str,
    title: String,
    text: String,
    /// Title and text in lower case.
    lower: (String, String),
}

impl Target {
    fn new(link: String, page: &'static str, title: String, text: String) -> Target {
        Target {
            lower: (title.to_lowercase(), text.to_lowercase()),
            link,
            page,
            title,
            text,
        }
    }
}

/// Returns everything that can be found. Made once.
fn targets() -> &'static [Target] {
    static TARGETS: OnceLock<Vec<Target>> = OnceLock::new();
    TARGETS.get_or_init(|| {
        let mut targets = Vec::new();
        for guide in &GUIDES {
            for section in guides::sections(guide) {
                let link = format!("{}#{}", guide_path(guide.name), section.anchor);
                targets.push(Target::new(link, guide.title, section.title, section.text));
            }
        }
        for route in routes::all() {
            targets.push(Target::new(
                format!("{REFERENCE_PATH}#{}", route.name),
                "HTTP API",
                format!("{} {}", route.verb.as_str(), route.path),
                route.summary.to_owned(),
            ));
        }
        for code in Code::ALL {
            targets.push(Target::new(
                format!("{ERRORS_PATH}#{}", code.as_str()),
                "Errors",
                code.as_str().to_owned(),
                format!("{}. {}", code.title(), code.remedy()),
            ));
        }
        targets
    })
}

/// Returns the page with the results of a search.
pub(super) fn page(query: &str) -> String {
    let query: String = query.chars().take(MAX_QUERY_CHARS).collect();
    let lower = query.to_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let mut html = String::from("<h1>Search</h1>");
    let found = find(&words);
    match (words.is_empty(), found.is_empty()) {
        (true, _) => html.push_str("<p>Enter one or more words.</p>"),
        (false, true) => html.push_str("<p>No results. Try fewer or different words.</p>"),
        (false, false) => put_results(&mut html, &found, &words),
    }
    Frame {
        title: "Search · posthaste",
        path: SEARCH_PATH,
        contents: &[],
        query: &query,
    }
    .around(&html)
}

/// Returns the targets that contain all words, those with all of them in the title first.
fn find(words: &[&str]) -> Vec<&'static Target> {
    if words.is_empty() {
        return Vec::new();
    }
    let has_all = |text: &str| words.iter().all(|word| text.contains(word));
    let mut found: Vec<(bool, &Target)> = targets()
        .iter()
        .filter_map(|target| {
            let (title, text) = &target.lower;
            let is_in_title = has_all(title);
            let either = |word: &&str| title.contains(*word) || text.contains(*word);
            (is_in_title || words.iter().all(either)).then_some((!is_in_title, target))
        })
        .collect();
    found.sort_by_key(|(rank, _)| *rank);
    found.truncate(MAX_RESULTS);
    found.into_iter().map(|(_, target)| target).collect()
}

fn put_results(html: &mut String, found: &[&Target], words: &[&str]) {
    html.push_str("<ul class=\"found\">");
    for target in found {
        put(
            html,
            format_args!(
                "<li><a href=\"{}\">{}</a> <span class=\"quiet\">{}</span><br>{}</li>",
                escape(&target.link),
                escape(&target.title),
                escape(target.page),
                escape(&snippet(target, words))
            ),
        );
    }
    html.push_str("</ul>");
}

/// Returns the text around the first match.
fn snippet(target: &Target, words: &[&str]) -> String {
    let lower = &target.lower.1;
    let at = words.iter().filter_map(|word| lower.find(word)).min();
    let before = at.map_or(0, |at| lower[..at].chars().count());
    let skipped = before.saturating_sub(SNIPPET_CHARS / 3);
    let text: String = target
        .text
        .chars()
        .skip(skipped)
        .take(SNIPPET_CHARS)
        .collect();
    let begin = if skipped > 0 { "…" } else { "" };
    let is_cut = target.text.chars().nth(skipped + SNIPPET_CHARS).is_some();
    let end = if is_cut { "…" } else { "" };
    let words: Vec<&str> = text.split_whitespace().collect();
    format!("{begin}{}{end}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_routes_and_errors_are_found() {
        for (query, link) in [
            ("queue_age", "/docs/operations#queue_age"),
            ("restore backup", "/docs/operations#backup-and-restore"),
            ("/replays/preview", "/docs#preview_replay"),
            ("idempotency_conflict", "/docs/errors#idempotency_conflict"),
        ] {
            let page = page(query);
            assert!(
                page.contains(&format!("href=\"{link}\"")),
                "{query}: {page}"
            );
        }
        assert!(page("no-such-word-anywhere").contains("No results"));
        assert!(page("  ").contains("Enter one or more words"));
    }

    #[test]
    fn query_is_escaped_and_bounded() {
        let page = page(&format!("\"><script>{}", "x".repeat(10_000)));
        assert!(!page.contains("<script>"), "{page}");
        assert!(page.len() < 20_000, "{}", page.len());
    }
}
