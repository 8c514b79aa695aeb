//! A page as somebody sees it. Whatever page it is, it keeps what all pages promise: one heading, no
//! script and no style of its own, a label for every field, each id once.

use std::collections::BTreeSet;

use http::{HeaderMap, StatusCode};

use super::kit::Answer;

/// What came back to a browser.
pub(crate) struct Seen {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) html: String,
}

/// A piece of a page.
enum Piece<'a> {
    /// `<name attributes>`.
    Open(&'a str, Vec<(&'a str, String)>),
    /// `</name>`.
    Close(&'a str),
    Text(String),
}

impl Seen {
    /// Looks at an answer, and checks what every page promises.
    pub(crate) fn of(answer: Answer) -> Seen {
        let seen = Seen {
            status: answer.status,
            headers: answer.headers,
            html: String::from_utf8(answer.bytes.to_vec()).expect("text"),
        };
        if seen.status != StatusCode::SEE_OTHER {
            seen.keeps_promises();
        }
        seen
    }

    /// What can be read, words one blank apart.
    pub(crate) fn text(&self) -> String {
        text_of(&self.html)
    }

    /// What can be read in a section.
    #[track_caller]
    pub(crate) fn section(&self, id: &str) -> String {
        text_of(self.section_html(id))
    }

    /// A section as it is written, up to the next one.
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

    /// Checks that something can be read.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> &Seen {
        let text = self.text();
        assert!(text.contains(words), "no {words:?} in: {text}");
        self
    }

    /// Checks that something cannot be read, nor is it hidden in the page.
    #[track_caller]
    pub(crate) fn never_says(&self, words: &str) -> &Seen {
        let text = self.text();
        assert!(!text.contains(words), "{words:?} in: {text}");
        assert!(!self.html.contains(words), "{words:?} in: {}", self.html);
        self
    }

    /// Every link: where it leads, and its words.
    pub(crate) fn links(&self) -> Vec<(String, String)> {
        let mut links: Vec<(String, String)> = Vec::new();
        let mut inside = false;
        for piece in pieces(&self.html) {
            match piece {
                Piece::Open("a", attributes) => {
                    links.push((
                        value(&attributes, "href").unwrap_or_default(),
                        String::new(),
                    ));
                    inside = true;
                }
                Piece::Close("a") => inside = false,
                Piece::Text(text) if inside => links.last_mut().expect("a link").1 += &text,
                Piece::Open(..) | Piece::Close(_) | Piece::Text(_) => {}
            }
        }
        for link in &mut links {
            link.1 = plain(&link.1);
        }
        links
    }

    /// Where the link with these words leads.
    #[track_caller]
    pub(crate) fn link(&self, words: &str) -> String {
        let links = self.links();
        let found = links.iter().find(|(_, text)| text == words);
        found
            .unwrap_or_else(|| panic!("no link {words:?} in {links:?}"))
            .0
            .clone()
    }

    /// Where each form is sent to, in order.
    pub(crate) fn forms(&self) -> Vec<String> {
        let pieces = pieces(&self.html);
        let action = |piece| match piece {
            Piece::Open("form", attributes) => value(&attributes, "action"),
            Piece::Open(..) | Piece::Close(_) | Piece::Text(_) => None,
        };
        pieces.into_iter().filter_map(action).collect()
    }

    /// What stands in the field of this name: an input's value, a textarea's text, a select's
    /// choice.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> String {
        let mut within: Option<&str> = None;
        let mut text = String::new();
        for piece in pieces(self.content()) {
            match piece {
                Piece::Open(tag @ ("input" | "textarea" | "select"), attributes)
                    if value(&attributes, "name").as_deref() == Some(name) =>
                {
                    if tag == "input" {
                        return value(&attributes, "value").unwrap_or_default();
                    }
                    within = Some(tag);
                }
                Piece::Open("option", attributes)
                    if within == Some("select") && value(&attributes, "selected").is_some() =>
                {
                    return value(&attributes, "value").unwrap_or_default();
                }
                Piece::Close(tag) if within == Some(tag) => return text,
                Piece::Text(more) if within == Some("textarea") => text += &more,
                Piece::Open(..) | Piece::Close(_) | Piece::Text(_) => {}
            }
        }
        panic!("no field {name}: {}", self.html)
    }

    /// What is said to be wrong with the field of this name.
    #[track_caller]
    pub(crate) fn wrong(&self, name: &str) -> String {
        let said = pieces(self.content())
            .into_iter()
            .find_map(|piece| match piece {
                Piece::Open("input" | "textarea" | "select", attributes)
                    if value(&attributes, "name").as_deref() == Some(name) =>
                {
                    let is_wrong = value(&attributes, "aria-invalid").as_deref() == Some("true");
                    is_wrong.then(|| value(&attributes, "aria-describedby").unwrap_or_default())
                }
                Piece::Open(..) | Piece::Close(_) | Piece::Text(_) => None,
            });
        let ids = said.unwrap_or_else(|| panic!("{name} is right, or not there"));
        let texts = ids.split(' ').filter_map(|id| {
            let (_, rest) = self.content().split_once(&format!("id=\"{id}\""))?;
            let rest = rest.split_once('>')?.1;
            Some(text_of(&rest[..rest.find("</").unwrap_or(rest.len())]))
        });
        texts.collect::<Vec<_>>().join(" ")
    }

    /// Where the browser is sent to, after something was done.
    #[track_caller]
    pub(crate) fn sent_to(&self) -> String {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.text());
        let location = self.headers["location"].to_str().expect("a text");
        location.to_owned()
    }

    /// The page without what is around every page, which has a form of its own.
    fn content(&self) -> &str {
        self.html
            .find("<main")
            .map_or(&self.html, |start| &self.html[start..])
    }

    fn keeps_promises(&self) {
        let html = &self.html;
        let mut headings = 0;
        let mut ids = BTreeSet::new();
        let mut labelled = BTreeSet::new();
        let mut fields = Vec::new();
        let mut in_label = 0;
        for piece in pieces(html) {
            match piece {
                Piece::Open(tag, attributes) => {
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
                Piece::Close("label") => in_label -= 1,
                Piece::Close(_) | Piece::Text(_) => {}
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
            Piece::Text(more) => text += &more,
            // Words within a line belong together; other pieces stand apart.
            Piece::Open(tag, _) | Piece::Close(tag) => {
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

/// Takes a page apart. It is one of ours, so that `<` always begins a tag.
fn pieces(html: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        if start > 0 {
            pieces.push(Piece::Text(unescaped(&rest[..start])));
        }
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        pieces.push(match tag.strip_prefix('/') {
            Some(name) => Piece::Close(name),
            None => opened(tag),
        });
    }
    pieces.push(Piece::Text(unescaped(rest)));
    pieces
}

fn opened(tag: &str) -> Piece<'_> {
    let tag = tag.strip_suffix('/').unwrap_or(tag);
    let end = tag.find(char::is_whitespace).unwrap_or(tag.len());
    let (name, mut rest) = tag.split_at(end);
    let mut attributes = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Piece::Open(name, attributes);
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
