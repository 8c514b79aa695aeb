//! A parsed page. [`HtmlPage::of`] also checks what all pages have in common: one heading, no inline script or style, a
//! label for every field, and unique ids.

use std::collections::BTreeSet;

use http::{HeaderMap, StatusCode};

use super::kit::Answer;

/// A response to a page request.
pub(crate) struct HtmlPage {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) html: String,
}

/// A part of the HTML.
enum HtmlToken<'a> {
    /// `<name attributes>`.
    Open(&'a str, Vec<(&'a str, String)>),
    /// `</name>`.
    Close(&'a str),
    Text(String),
}

impl HtmlPage {
    /// Reads a response and checks the rules for all pages.
    pub(crate) fn of(answer: Answer) -> HtmlPage {
        let seen = HtmlPage {
            status: answer.status,
            headers: answer.headers,
            html: String::from_utf8(answer.bytes.to_vec()).expect("text"),
        };
        if seen.status != StatusCode::SEE_OTHER {
            seen.check_common_rules();
        }
        seen
    }

    /// The visible text, with single spaces.
    pub(crate) fn text(&self) -> String {
        text_of(&self.html)
    }

    /// The visible text of a section.
    #[track_caller]
    pub(crate) fn section(&self, id: &str) -> String {
        text_of(self.section_html(id))
    }

    /// The HTML of a section, up to the next one.
    #[track_caller]
    pub(crate) fn section_html(&self, id: &str) -> &str {
        let start = format!("<div class=\"section\" id=\"{id}\"");
        let (_, rest) = self
            .html
            .split_once(&start)
            .unwrap_or_else(|| panic!("no section {id}: {}", self.text()));
        let (_, rest) = rest.split_once('>').expect("a tag ends");
        let end = rest.find("<div class=\"section\" id=\"");
        let end = end.or_else(|| rest.find("</main>")).unwrap_or(rest.len());
        &rest[..end]
    }

    /// Checks that the text of the page contains these words.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> &HtmlPage {
        let text = self.text();
        assert!(text.contains(words), "no {words:?} in: {text}");
        self
    }

    /// Checks that neither the text nor the HTML contains these words.
    #[track_caller]
    pub(crate) fn assert_no_text(&self, words: &str) -> &HtmlPage {
        let text = self.text();
        assert!(!text.contains(words), "{words:?} in: {text}");
        assert!(!self.html.contains(words), "{words:?} in: {}", self.html);
        self
    }

    /// Returns every link as URL and text.
    pub(crate) fn links(&self) -> Vec<(String, String)> {
        let mut links: Vec<(String, String)> = Vec::new();
        let mut inside = false;
        for piece in pieces(&self.html) {
            match piece {
                HtmlToken::Open("a", attributes) => {
                    links.push((
                        value(&attributes, "href").unwrap_or_default(),
                        String::new(),
                    ));
                    inside = true;
                }
                HtmlToken::Close("a") => inside = false,
                HtmlToken::Text(text) if inside => links.last_mut().expect("a link").1 += &text,
                HtmlToken::Open(..) | HtmlToken::Close(_) | HtmlToken::Text(_) => {}
            }
        }
        for link in &mut links {
            link.1 = plain(&link.1);
        }
        links
    }

    /// Returns the URL of the link with this text.
    #[track_caller]
    pub(crate) fn link(&self, words: &str) -> String {
        let links = self.links();
        let found = links.iter().find(|(_, text)| text == words);
        found
            .unwrap_or_else(|| panic!("no link {words:?} in {links:?}"))
            .0
            .clone()
    }

    /// Returns the target of each form, in order.
    pub(crate) fn forms(&self) -> Vec<String> {
        let pieces = pieces(&self.html);
        let action = |piece| match piece {
            HtmlToken::Open("form", attributes) => value(&attributes, "action"),
            HtmlToken::Open(..) | HtmlToken::Close(_) | HtmlToken::Text(_) => None,
        };
        pieces.into_iter().filter_map(action).collect()
    }

    /// Returns the value of the field with this name: of an input, a textarea or a select.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> String {
        let mut within: Option<&str> = None;
        let mut text = String::new();
        for piece in pieces(self.content()) {
            match piece {
                HtmlToken::Open(tag @ ("input" | "textarea" | "select"), attributes)
                    if value(&attributes, "name").as_deref() == Some(name) =>
                {
                    if tag == "input" {
                        return value(&attributes, "value").unwrap_or_default();
                    }
                    within = Some(tag);
                }
                HtmlToken::Open("option", attributes)
                    if within == Some("select") && value(&attributes, "selected").is_some() =>
                {
                    return value(&attributes, "value").unwrap_or_default();
                }
                HtmlToken::Close(tag) if within == Some(tag) => return text,
                HtmlToken::Text(more) if within == Some("textarea") => text += &more,
                HtmlToken::Open(..) | HtmlToken::Close(_) | HtmlToken::Text(_) => {}
            }
        }
        panic!("no field {name}: {}", self.html)
    }

    /// Returns the error message of the field with this name.
    #[track_caller]
    pub(crate) fn wrong(&self, name: &str) -> String {
        let said = pieces(self.content())
            .into_iter()
            .find_map(|piece| match piece {
                HtmlToken::Open("input" | "textarea" | "select", attributes)
                    if value(&attributes, "name").as_deref() == Some(name) =>
                {
                    let is_wrong = value(&attributes, "aria-invalid").as_deref() == Some("true");
                    is_wrong.then(|| value(&attributes, "aria-describedby").unwrap_or_default())
                }
                HtmlToken::Open(..) | HtmlToken::Close(_) | HtmlToken::Text(_) => None,
            });
        let ids = said.unwrap_or_else(|| panic!("{name} is right, or not there"));
        let texts = ids.split(' ').filter_map(|id| {
            let (_, rest) = self.content().split_once(&format!("id=\"{id}\""))?;
            let rest = rest.split_once('>')?.1;
            Some(text_of(&rest[..rest.find("</").unwrap_or(rest.len())]))
        });
        texts.collect::<Vec<_>>().join(" ")
    }

    /// Returns the URL of the redirect after a form.
    #[track_caller]
    pub(crate) fn redirect(&self) -> String {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.text());
        let location = self.headers["location"].to_str().expect("a text");
        location.to_owned()
    }

    /// The main content, without the navigation around it, which has its own form.
    fn content(&self) -> &str {
        self.html
            .find("<main")
            .map_or(&self.html, |start| &self.html[start..])
    }

    fn check_common_rules(&self) {
        let html = &self.html;
        let mut headings = 0;
        let mut ids = BTreeSet::new();
        let mut labelled = BTreeSet::new();
        let mut fields = Vec::new();
        let mut in_label = 0;
        for piece in pieces(html) {
            match piece {
                HtmlToken::Open(tag, attributes) => {
                    headings += usize::from(tag == "h1");
                    in_label += usize::from(tag == "label");
                    assert_ne!(tag, "style", "a style of its own: {html}");
                    let source = value(&attributes, "src");
                    assert!(tag != "script" || source.is_some(), "inline script: {html}");
                    for (name, _) in &attributes {
                        assert!(
                            *name != "style" && !name.starts_with("on"),
                            "{name}: {html}"
                        );
                    }
                    if let Some(id) = value(&attributes, "id") {
                        assert!(ids.insert(id.clone()), "{id} is there twice: {html}");
                    }
                    labelled.extend(value(&attributes, "for"));
                    let kind = value(&attributes, "type").unwrap_or_default();
                    let is_field = matches!(tag, "input" | "select" | "textarea");
                    let is_seen = kind != "hidden" && kind != "submit";
                    let named = in_label > 0 || value(&attributes, "aria-label").is_some();
                    if is_field && is_seen && !named {
                        fields.push(value(&attributes, "id").unwrap_or_default());
                    }
                }
                HtmlToken::Close("label") => in_label -= 1,
                HtmlToken::Close(_) | HtmlToken::Text(_) => {}
            }
        }
        assert_eq!(headings, 1, "one heading: {html}");
        for field in fields {
            assert!(labelled.contains(&field), "{field:?} has no label: {html}");
        }
    }
}

fn value(attributes: &[(&str, String)], name: &str) -> Option<String> {
    let found = attributes.iter().find(|(given, _)| *given == name);
    found.map(|(_, value)| value.clone())
}

fn text_of(html: &str) -> String {
    let mut text = String::new();
    for piece in pieces(html) {
        match piece {
            HtmlToken::Text(more) => text += &more,
            // Inline elements do not separate words. All other elements do.
            HtmlToken::Open(tag, _) | HtmlToken::Close(tag) => {
                if !matches!(
                    tag,
                    "a" | "b" | "code" | "em" | "span" | "strong" | "time" | "tspan"
                ) {
                    text.push(' ');
                }
            }
        }
    }
    plain(&text)
}

fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&amp;", "&")
}

/// Splits a page into its parts. Our pages escape text, so that `<` always starts a tag.
fn pieces(html: &str) -> Vec<HtmlToken<'_>> {
    let mut pieces = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        if start > 0 {
            pieces.push(HtmlToken::Text(unescaped(&rest[..start])));
        }
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        pieces.push(match tag.strip_prefix('/') {
            Some(name) => HtmlToken::Close(name),
            None => opened(tag),
        });
    }
    pieces.push(HtmlToken::Text(unescaped(rest)));
    pieces
}

fn opened(tag: &str) -> HtmlToken<'_> {
    let tag = tag.strip_suffix('/').unwrap_or(tag);
    let end = tag.find(char::is_whitespace).unwrap_or(tag.len());
    let (name, mut rest) = tag.split_at(end);
    let mut attributes = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return HtmlToken::Open(name, attributes);
        }
        let end = rest
            .find(|c: char| c == '=' || c.is_whitespace())
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        match after.strip_prefix("=\"") {
            Some(value) => {
                let end = value.find('"').expect("a quote ends");
                attributes.push((name, unescaped(&value[..end])));
                rest = &value[end + 1..];
            }
            None => {
                attributes.push((name, String::new()));
                rest = after;
            }
        }
    }
}
