//! Writing HTML by hand: escaped text, and text with code between backquotes.

use std::fmt::Write;

/// Appends formatted text.
pub(super) fn put(html: &mut String, text: std::fmt::Arguments<'_>) {
    html.write_fmt(text)
        .expect("writing to a string does not fail");
}

/// Escapes text, and marks text between backquotes as code.
pub(super) fn prose(text: &str) -> String {
    let mut html = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 {
            put(&mut html, format_args!("<code>{}</code>", escape(part)));
        } else {
            html.push_str(&escape(part));
        }
    }
    html
}

/// Escapes text for use between tags and in attributes.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            other => html.push(other),
        }
    }
    html
}
