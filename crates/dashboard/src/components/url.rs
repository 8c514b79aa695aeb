//! URLs as text, with places at which a browser may break a long one.

use maud::{Markup, html};

/// Renders a URL. It may be broken after a slash of its path and before a dot, `?`, `&` or `#`.
pub(crate) fn url_text(url: &str) -> Markup {
    let parts = breakable_parts(url);
    html! { @for (index, part) in parts.iter().enumerate() { @if index > 0 { wbr; } (part) } }
}

/// Splits a URL where it may be broken.
fn breakable_parts(url: &str) -> Vec<&str> {
    let path_from = url.find("://").map_or(0, |scheme| scheme + "://".len());
    let mut parts = Vec::new();
    let mut begin = 0;
    for (at, character) in url.char_indices().filter(|(at, _)| *at > path_from) {
        let breaks_at = match character {
            '/' => at + 1,
            '.' | '?' | '&' | '#' => at,
            _ => continue,
        };
        if breaks_at > begin && breaks_at < url.len() {
            parts.push(&url[begin..breaks_at]);
            begin = breaks_at;
        }
    }
    parts.push(&url[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_breaks_between_its_parts_only() {
        assert_eq!(
            breakable_parts("https://hooks.example.com/in/v2?a=1&b=2"),
            [
                "https://hooks",
                ".example",
                ".com/",
                "in/",
                "v2",
                "?a=1",
                "&b=2"
            ]
        );
        assert_eq!(
            breakable_parts("http://127.0.0.1:80/"),
            ["http://127", ".0", ".0", ".1:80/"]
        );
        assert_eq!(breakable_parts(""), [""]);
        assert_eq!(breakable_parts("ü://é/ä."), ["ü://é/", "ä", "."]);
        assert_eq!(url_text("https://a/<b>").0, "https://a/<wbr>&lt;b&gt;");
    }
}
