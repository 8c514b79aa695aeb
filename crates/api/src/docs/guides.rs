//! The guides: pages of `docs/` that the server shows, rendered from Markdown.
//!
//! They are part of the program, so that an operator has the runbook of the version that runs. Links between guides
//! lead to the served pages; links to other files of the repository become plain text.

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::frame::{Entry, Frame};
use super::guide_path;

/// A guide: name in the path, title in the sidebar, and Markdown.
pub(super) struct Guide {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    markdown: &'static str,
}

macro_rules! guide {
    ($name:literal, $title:literal) => {
        Guide {
            name: $name,
            title: $title,
            markdown: include_str!(concat!("../../guides/", $name, ".md")),
        }
    };
}

/// Every guide, in the order of the sidebar.
pub(super) static GUIDES: [Guide; 15] = [
    guide!("api", "Tour of the API"),
    guide!("events", "Sending events"),
    guide!("requests", "One-off requests"),
    guide!("scheduling", "Schedules"),
    guide!("endpoints", "Endpoints"),
    guide!("policies", "Retry policies"),
    guide!("delivery", "Delivery"),
    guide!("outbox", "Transactional outbox"),
    guide!("receiving", "Receiving webhooks"),
    guide!("configuration", "Configuration"),
    guide!("deployment", "Deployment"),
    guide!("operations", "Operations (runbook)"),
    guide!("retention", "Retention"),
    guide!("scaling", "Scaling"),
    guide!("security", "Security"),
];

/// A section of a guide, from one heading to the next.
pub(super) struct Section {
    pub(super) anchor: String,
    pub(super) title: String,
    pub(super) text: String,
}

/// Returns the page of a guide.
pub(super) fn page(name: &str) -> Option<String> {
    let guide = GUIDES.iter().find(|guide| guide.name == name)?;
    let mut rendering = Rendering::default();
    for event in parser(guide.markdown) {
        rendering.add(event);
    }
    let mut html = String::new();
    pulldown_cmark::html::push_html(&mut html, rendering.events.into_iter());
    let title = format!("{} · posthaste", guide.title);
    let frame = Frame {
        title: &title,
        path: &guide_path(guide.name),
        contents: &rendering.contents,
        query: "",
    };
    Some(frame.around(&html))
}

/// The events of a page, with anchors of headings and links to served pages.
#[derive(Default)]
struct Rendering<'a> {
    events: Vec<Event<'a>>,
    contents: Vec<Entry>,
    /// The heading in progress: index of its first event, and its text.
    heading: Option<(usize, String)>,
    /// The open links: true for each that is kept.
    links: Vec<bool>,
}

impl<'a> Rendering<'a> {
    fn add(&mut self, event: Event<'a>) {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                self.heading = Some((self.events.len(), String::new()));
                // Replaced at the end of the heading, when its anchor is known.
                self.events.push(Event::Text(CowStr::Borrowed("")));
            }
            Event::End(TagEnd::Heading(level)) => self.end_heading(level),
            Event::Start(Tag::Link {
                link_type,
                dest_url,
                title,
                id,
            }) => {
                let served = served_link(&dest_url);
                self.links.push(served.is_some());
                let link = |dest: String| Tag::Link {
                    link_type,
                    dest_url: dest.into(),
                    title,
                    id,
                };
                self.events
                    .extend(served.map(|dest| Event::Start(link(dest))));
            }
            Event::End(TagEnd::Link) => {
                if self.links.pop() == Some(true) {
                    self.events.push(event);
                }
            }
            // Pages load nothing, so an image is shown by its description.
            Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => {}
            Event::Html(text) | Event::InlineHtml(text) => self.events.push(Event::Text(text)),
            Event::Text(ref text) | Event::Code(ref text) => {
                if let Some((_, title)) = &mut self.heading {
                    title.push_str(text);
                }
                self.events.push(event);
            }
            Event::Start(_)
            | Event::End(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::FootnoteReference(_)
            | Event::SoftBreak
            | Event::HardBreak
            | Event::Rule
            | Event::TaskListMarker(_) => self.events.push(event),
        }
    }

    fn end_heading(&mut self, level: HeadingLevel) {
        if let Some((start, title)) = self.heading.take() {
            let anchor = slug(&title);
            self.events[start] = Event::Start(Tag::Heading {
                level,
                id: Some(anchor.clone().into()),
                classes: Vec::new(),
                attrs: Vec::new(),
            });
            match level {
                HeadingLevel::H2 => self.contents.push(Entry::new(anchor, title)),
                HeadingLevel::H3 => self.contents.push(Entry::part(anchor, title)),
                HeadingLevel::H1 | HeadingLevel::H4 | HeadingLevel::H5 | HeadingLevel::H6 => {}
            }
        }
        self.events.push(Event::End(TagEnd::Heading(level)));
    }
}

/// Returns the sections of a guide, as plain text.
pub(super) fn sections(guide: &Guide) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut is_heading = false;
    for event in parser(guide.markdown) {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                is_heading = true;
                sections.push(Section {
                    anchor: String::new(),
                    title: String::new(),
                    text: String::new(),
                });
            }
            Event::End(TagEnd::Heading(_)) => {
                is_heading = false;
                if let Some(section) = sections.last_mut() {
                    section.anchor = slug(&section.title);
                }
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(section) = sections.last_mut() {
                    match is_heading {
                        true => section.title.push_str(&text),
                        false => section.text.push_str(&text),
                    }
                }
            }
            Event::SoftBreak | Event::HardBreak | Event::End(_) => {
                if let Some(section) = sections.last_mut().filter(|_| !is_heading) {
                    section.text.push(' ');
                }
            }
            Event::Start(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::Html(_)
            | Event::InlineHtml(_)
            | Event::FootnoteReference(_)
            | Event::Rule
            | Event::TaskListMarker(_) => {}
        }
    }
    sections
}

fn parser(markdown: &str) -> Parser<'_> {
    Parser::new_ext(markdown, Options::ENABLE_TABLES)
}

/// Returns where a link of a guide leads on the server; `None` if the server does not have the target.
fn served_link(link: &str) -> Option<String> {
    if link.starts_with('#') || link.starts_with("https://") || link.starts_with("http://") {
        return Some(link.to_owned());
    }
    let (file, anchor) = match link.split_once('#') {
        Some((file, anchor)) => (file, format!("#{anchor}")),
        None => (link, String::new()),
    };
    let name = file.strip_suffix(".md")?;
    if name == "errors" {
        return Some(format!("{}{anchor}", super::ERRORS_PATH));
    }
    let is_served = GUIDES.iter().any(|guide| guide.name == name);
    is_served.then(|| format!("{}{anchor}", guide_path(name)))
}

/// Returns the anchor of a heading, as in the rendered repository.
fn slug(title: &str) -> String {
    let characters = title.to_lowercase();
    let characters = characters.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        character if character.is_alphanumeric() || matches!(character, '-' | '_') => {
            Some(character)
        }
        _ => None,
    });
    characters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::alert::AlertName;

    #[test]
    fn runbook_has_a_section_for_every_alert() {
        let page = page("operations").expect("the runbook");
        for name in AlertName::ALL {
            let heading = format!("<h3 id=\"{name}\">{name}</h3>");
            assert!(page.contains(&heading), "{name}");
            assert!(
                page.contains(&format!("<a href=\"#{name}\">{name}</a>")),
                "{name}"
            );
        }
    }

    #[test]
    fn every_page_of_the_documentation_is_served() {
        // An index for the repository, the list that the server generates itself, and a comparison for readers who
        // have not chosen yet.
        let not_guides = ["README", "errors", "comparison"];
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        for entry in std::fs::read_dir(docs).expect("the documentation") {
            let file = entry.expect("an entry").file_name();
            let Some(name) = file.to_str().and_then(|file| file.strip_suffix(".md")) else {
                continue;
            };
            let is_guide = GUIDES.iter().any(|guide| guide.name == name);
            assert_eq!(is_guide, !not_guides.contains(&name), "{name}");
        }
    }

    #[test]
    fn every_link_of_a_guide_leads_to_a_served_section() {
        let pages: Vec<(&str, String)> = GUIDES
            .iter()
            .map(|guide| (guide.name, page(guide.name).expect("a guide")))
            .collect();
        for (name, html) in &pages {
            for found in ["<script", "<img", "src=", ".md\"", "javascript:"] {
                assert!(!html.contains(found), "{name}: {found}");
            }
            for link in html.split("href=\"/docs/").skip(1) {
                let link = link.split('"').next().unwrap_or_default();
                let Some((target, anchor)) = link.split_once('#') else {
                    continue;
                };
                let Some((_, other)) = pages.iter().find(|(name, _)| *name == target) else {
                    assert_eq!(target, "errors", "{name}: {link}");
                    continue;
                };
                assert!(
                    other.contains(&format!("id=\"{anchor}\"")),
                    "{name}: {link}"
                );
            }
        }
    }

    #[test]
    fn links_lead_to_served_pages_or_are_plain_text() {
        assert_eq!(
            served_link("security.md#a-stolen-database").as_deref(),
            Some("/docs/security#a-stolen-database")
        );
        assert_eq!(served_link("errors.md").as_deref(), Some("/docs/errors"));
        assert_eq!(served_link("#alerts").as_deref(), Some("#alerts"));
        assert_eq!(served_link("../config.default.toml"), None);
        assert_eq!(served_link("internals/engine.md"), None);
        assert_eq!(slug("`[[outbox]]`: Rows, & more"), "outbox-rows--more");
    }
}
