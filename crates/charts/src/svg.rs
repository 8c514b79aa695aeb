//! Self-contained SVG.
//!
//! A chart is a tree of [`Element`]s, so it is well-formed for any text. It contains its own styles, which
//! follow the light or dark scheme of the reader, no scripts and no external references. All CSS rules are
//! limited to one class, so that a chart inside a page does not change the page.

use std::fmt::Write;

/// CSS of all charts. Colour-blind readers can distinguish the colours of successes and failures.
const STYLES: &str = "\
.posthaste-picture text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1f2328}
.posthaste-picture .heading{font-size:19px;font-weight:600}
.posthaste-picture .name{font-size:14px;font-weight:600}
.posthaste-picture .quiet,.posthaste-picture .tick{fill:#59636e}
.posthaste-picture .tick{font-size:12px}
.posthaste-picture .paper{fill:#fff}
.posthaste-picture .grid{stroke:#e4e8ec}
.posthaste-picture .axis{stroke:#8c959f}
.posthaste-picture .down{fill:#f0f2f5}
.posthaste-picture .good{fill:#0969da}
.posthaste-picture .bad{fill:#dd6b20}
.posthaste-picture .band{fill:#0969da;fill-opacity:.28}
.posthaste-picture .limit{stroke:#1a7f37;stroke-width:1.5;stroke-dasharray:6 4;fill:none}
.posthaste-picture .limit-name{fill:#1a7f37;font-weight:600}
.posthaste-picture .ring{fill:#fff;stroke:#1f2328;stroke-width:1.75}
@media (prefers-color-scheme:dark){
.posthaste-picture text{fill:#e6edf3}
.posthaste-picture .quiet,.posthaste-picture .tick{fill:#9aa4af}
.posthaste-picture .paper{fill:#0d1117}
.posthaste-picture .grid{stroke:#232a33}
.posthaste-picture .axis{stroke:#6e7681}
.posthaste-picture .down{fill:#191f28}
.posthaste-picture .good{fill:#4493f8}
.posthaste-picture .bad{fill:#f0883e}
.posthaste-picture .band{fill:#4493f8;fill-opacity:.35}
.posthaste-picture .limit{stroke:#3fb950}
.posthaste-picture .limit-name{fill:#3fb950}
.posthaste-picture .ring{fill:#0d1117;stroke:#e6edf3}
}
";

/// Returns the CSS of all charts, for the stylesheet of a page that contains charts.
pub fn styles() -> &'static str {
    STYLES
}

/// Creates an SVG with a size, a title and a text alternative. Children are drawn on an empty background.
pub fn document(width: u32, height: u32, title: &str, description: &str) -> Element {
    Element::new("svg")
        .with("xmlns", "http://www.w3.org/2000/svg")
        .with("viewBox", format!("0 0 {width} {height}"))
        .with("width", width)
        .with("height", height)
        .with("role", "img")
        .with("aria-label", title)
        .with("class", "posthaste-picture")
        .child(Element::new("title").text(title))
        .child(Element::new("desc").text(description))
        .child(Element::new("style").text(STYLES))
        .child(
            rect(0.0, 0.0, f64::from(width), f64::from(height))
                .with("rx", 8)
                .class("paper"),
        )
}

/// An SVG element.
#[derive(Clone, Debug)]
pub struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    children: Vec<Child>,
}

#[derive(Clone, Debug)]
enum Child {
    Element(Element),
    Text(String),
}

impl Element {
    /// Creates an empty element.
    pub fn new(name: &'static str) -> Element {
        Element {
            name,
            attributes: Vec::new(),
            children: Vec::new(),
        }
    }

    /// Adds an attribute.
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Element {
        self.attributes.push((name, value.to_string()));
        self
    }

    /// Sets the CSS class.
    pub fn class(self, class: &'static str) -> Element {
        self.with("class", class)
    }

    /// Adds a child.
    pub fn child(mut self, child: Element) -> Element {
        self.children.push(Child::Element(child));
        self
    }

    /// Adds children.
    pub fn children(mut self, children: impl IntoIterator<Item = Element>) -> Element {
        let children = children.into_iter().map(Child::Element);
        self.children.extend(children);
        self
    }

    /// Adds text.
    pub fn text(mut self, text: &str) -> Element {
        self.children.push(Child::Text(text.to_owned()));
        self
    }

    /// Returns the element with all its children as text.
    pub fn write(&self) -> String {
        let mut out = String::new();
        self.write_to(&mut out);
        out.push('\n');
        out
    }

    /// Returns the same without the `style` element, for a page that includes [`styles`] and whose policy
    /// forbids inline styles.
    pub fn write_for_page(&self) -> String {
        let mut unstyled = self.clone();
        unstyled.children.retain(|child| match child {
            Child::Element(element) => element.name != "style",
            Child::Text(_) => true,
        });
        unstyled.write()
    }

    fn write_to(&self, out: &mut String) {
        let _ = write!(out, "<{}", self.name);
        for (name, value) in &self.attributes {
            let _ = write!(out, " {name}=\"{}\"", escaped(value));
        }
        if self.children.is_empty() {
            out.push_str("/>");
            return;
        }
        out.push('>');
        for child in &self.children {
            match child {
                Child::Text(text) => out.push_str(&escaped(text)),
                Child::Element(element) => {
                    // White space between the parts of a text would be visible.
                    if self.name != "text" {
                        out.push('\n');
                    }
                    element.write_to(out);
                }
            }
        }
        let _ = write!(out, "</{}>", self.name);
    }
}

/// Creates a rectangle.
pub fn rect(x: f64, y: f64, width: f64, height: f64) -> Element {
    Element::new("rect")
        .with("x", number(x))
        .with("y", number(y))
        .with("width", number(width))
        .with("height", number(height))
}

/// Creates a straight line.
pub fn line(from: (f64, f64), to: (f64, f64)) -> Element {
    Element::new("line")
        .with("x1", number(from.0))
        .with("y1", number(from.1))
        .with("x2", number(to.0))
        .with("y2", number(to.1))
}

/// Creates a disc.
pub fn disc(x: f64, y: f64, radius: f64) -> Element {
    Element::new("circle")
        .with("cx", number(x))
        .with("cy", number(y))
        .with("r", number(radius))
}

/// Creates text that begins at this point.
pub fn label(x: f64, y: f64, text: &str) -> Element {
    Element::new("text")
        .with("x", number(x))
        .with("y", number(y))
        .text(text)
}

/// Creates text centred at this point.
pub fn centred(x: f64, y: f64, text: &str) -> Element {
    label(x, y, text).with("text-anchor", "middle")
}

/// Creates text that ends at this point.
pub fn right_aligned(x: f64, y: f64, text: &str) -> Element {
    label(x, y, text).with("text-anchor", "end")
}

/// Formats a coordinate with one decimal place. More would be invisible and make files longer.
pub fn number(value: f64) -> String {
    let tenths = (value * 10.0).round();
    if tenths % 10.0 == 0.0 {
        format!("{}", (tenths / 10.0) as i64)
    } else {
        format!("{:.1}", tenths / 10.0)
    }
}

/// Escapes text for XML. Characters that XML forbids are replaced, because a title may come from a file name.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(character),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Fails unless `text` is one element with balanced tags, quoted attributes and escaped text.
    pub(crate) fn assert_well_formed(text: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = text.trim_end();
        assert!(rest.starts_with("<svg "), "{rest}");
        while let Some(start) = rest.find('<') {
            assert_plain(&rest[..start]);
            let end = rest.find('>').expect("every tag ends");
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "an end tag closes the open element");
            } else {
                let name = tag.split([' ', '/']).next().expect("a name");
                assert_attributes(tag.strip_suffix('/').unwrap_or(tag), name);
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
            assert!(!open.is_empty() || rest.is_empty(), "one root: {rest}");
        }
        assert!(open.is_empty() && rest.is_empty(), "{open:?} {rest}");
    }

    fn assert_attributes(tag: &str, name: &str) {
        let parts: Vec<&str> = tag[name.len()..].split('"').collect();
        assert!(parts.len() % 2 == 1, "quotes are balanced: {tag}");
        for (index, part) in parts.iter().enumerate() {
            if index % 2 == 1 {
                assert_plain(part);
            } else if index + 1 < parts.len() {
                assert!(part.starts_with(' ') && part.ends_with('='), "{tag}");
            }
        }
    }

    fn assert_plain(text: &str) {
        for (index, _) in text.match_indices('&') {
            let entity = ["&amp;", "&lt;", "&gt;", "&quot;"]
                .iter()
                .any(|entity| text[index..].starts_with(entity));
            assert!(entity, "an unescaped ampersand: {text}");
        }
        let allowed = |c: char| !c.is_control() || c == '\n' || c == '\t';
        assert!(text.chars().all(allowed) && !text.contains(['<', '>']));
    }

    #[test]
    fn hostile_text_is_escaped() {
        let hostile = "</svg><script>\"&\u{1b}[31m\u{0}\u{ffff}'";
        let svg = document(10, 10, hostile, hostile)
            .child(label(1.0, 2.0, hostile))
            .write();
        assert_well_formed(&svg);
        assert!(!svg.contains("<script"), "{svg}");
        assert!(svg.contains("&lt;script&gt;&quot;&amp;"), "{svg}");
    }

    #[test]
    fn a_document_is_self_contained() {
        let svg = document(20, 10, "a name", "what it shows").write();
        assert!(svg.contains("viewBox=\"0 0 20 10\""));
        assert!(svg.contains("<title>a name</title>"));
        assert!(svg.contains("<desc>what it shows</desc>"));
        assert!(svg.contains("prefers-color-scheme:dark"));
        for foreign in ["href", "url(", "@import", "<script"] {
            assert!(!svg.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn coordinates_have_at_most_one_decimal() {
        assert_eq!(number(1.0), "1");
        assert_eq!(number(-0.04), "0");
        assert_eq!(number(12.349), "12.3");
        assert_eq!(number(12.96), "13");
    }
}
