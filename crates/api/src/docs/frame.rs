//! The frame around every page of the documentation: a way back, the search, and the sidebar.

use super::guides::GUIDES;
use super::markup::{escape, put};
use super::{ERRORS_PATH, REFERENCE_PATH, SEARCH_PATH, guide_path};

const STYLE: &str = "\
*{box-sizing:border-box}body{font:16px/1.55 system-ui,sans-serif;margin:0;color:#1c1e21;background:#fff}\
header{display:flex;flex-wrap:wrap;gap:.5rem 1.25rem;align-items:center;padding:.6rem 1.25rem;border-bottom:1px solid #d8dce2}\
header strong a{color:inherit;text-decoration:none}header form{margin-left:auto;display:flex;gap:.4rem}\
header input,header button{font:inherit;color:inherit;background:none;padding:.3rem .55rem;border:1px solid #8a929c;border-radius:6px}\
header input{width:16rem;max-width:52vw}.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}\
.skip{position:absolute;left:-999px}.skip:focus{left:.5rem;top:.5rem;padding:.4rem .8rem;background:#fff}\
.frame{display:grid;grid-template-columns:15rem minmax(0,1fr);gap:2rem;max-width:82rem;margin:0 auto;padding:0 1.25rem 4rem}\
.side{position:sticky;top:0;align-self:start;max-height:100vh;overflow-y:auto;padding:1rem 0;font-size:.94rem}\
.side h2{font-size:.9rem;margin:1rem 0 .25rem;border:0;padding:0}.side ul{list-style:none;margin:0;padding:0}.side ul ul{padding-left:.9rem}\
.side a{display:block;padding:.12rem 0;text-decoration:none}.side a:hover{text-decoration:underline}.side a[aria-current]{font-weight:700}\
main{min-width:0;max-width:60rem;overflow-wrap:break-word}main:focus{outline:none}\
h1{font-size:1.6rem}h2{margin-top:2.5rem;border-bottom:1px solid #d8dce2;padding-bottom:.3rem}\
h3{font-size:1.05rem;margin:2rem 0 .4rem}code,pre{font:14px/1.45 ui-monospace,monospace}\
pre{background:#f4f5f7;padding:.8rem 1rem;border-radius:6px;overflow-x:auto}\
.verb{display:inline-block;min-width:4.2rem;font-weight:700;color:#0b5cad}\
table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}td,th{text-align:left;vertical-align:top;padding:.25rem .8rem .25rem 0;border-bottom:1px solid #e8eaee}\
a{color:#0b5cad}.quiet{color:#5b636e}.found li{margin:.6rem 0}\
@media(max-width:50rem){.frame{grid-template-columns:minmax(0,1fr);gap:0}.side{position:static;max-height:none;order:2;border-top:1px solid #d8dce2}header form{margin-left:0}}\
@media(prefers-color-scheme:dark){body,.skip:focus{color:#e4e6ea;background:#15171a}pre{background:#1f2226}h2,td,th,header,.side{border-color:#33383f}a,.verb{color:#7ab8ff}.quiet{color:#9aa3ad}}";

/// An entry of the contents of a page: anchor and text.
pub(super) struct Entry {
    anchor: String,
    text: String,
    /// True for a part of the entry before it.
    is_part: bool,
}

impl Entry {
    /// Creates an entry.
    pub(super) fn new(anchor: impl Into<String>, text: impl Into<String>) -> Entry {
        Entry {
            anchor: anchor.into(),
            text: text.into(),
            is_part: false,
        }
    }

    /// Creates an entry for a part of the entry before it.
    pub(super) fn part(anchor: impl Into<String>, text: impl Into<String>) -> Entry {
        Entry {
            is_part: true,
            ..Entry::new(anchor, text)
        }
    }
}

/// A page of the documentation.
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    /// The path of the page.
    pub(super) path: &'a str,
    /// Contents of the page, for the sidebar.
    pub(super) contents: &'a [Entry],
    /// The searched words.
    pub(super) query: &'a str,
}

impl Frame<'_> {
    /// Returns the complete page.
    pub(super) fn around(&self, main: &str) -> String {
        let mut html = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <title>{}</title><style>{STYLE}</style></head><body>\
             <a class=\"skip\" href=\"#main\">Skip to content</a>\
             <header><a href=\"/dashboard\">← Dashboard</a> <strong><a href=\"{REFERENCE_PATH}\">posthaste docs</a></strong>\
             <form role=\"search\" action=\"{SEARCH_PATH}\"><label class=\"unseen\" for=\"q\">Search the documentation</label>\
             <input id=\"q\" name=\"q\" value=\"{}\" placeholder=\"Search\" required> <button type=\"submit\">Search</button></form></header>\
             <div class=\"frame\">",
            escape(self.title),
            escape(self.query)
        );
        self.put_sidebar(&mut html);
        put(
            &mut html,
            format_args!("<main id=\"main\" tabindex=\"-1\">{main}</main></div></body></html>"),
        );
        html
    }

    fn put_sidebar(&self, html: &mut String) {
        html.push_str("<nav class=\"side\" aria-label=\"Documentation\"><h2>Reference</h2><ul>");
        self.put_link(html, REFERENCE_PATH, "HTTP API");
        self.put_link(html, ERRORS_PATH, "Errors");
        html.push_str("</ul><h2>Guides</h2><ul>");
        for guide in &GUIDES {
            self.put_link(html, &guide_path(guide.name), guide.title);
        }
        html.push_str("</ul></nav>");
    }

    fn put_link(&self, html: &mut String, path: &str, text: &str) {
        let is_current = path == self.path;
        let current = if is_current {
            " aria-current=\"page\""
        } else {
            ""
        };
        put(
            html,
            format_args!("<li><a href=\"{path}\"{current}>{}</a>", escape(text)),
        );
        if is_current && !self.contents.is_empty() {
            html.push_str("<ul>");
            for (index, entry) in self.contents.iter().enumerate() {
                let is_part = |entry: Option<&Entry>| entry.is_some_and(|entry| entry.is_part);
                let before = index
                    .checked_sub(1)
                    .and_then(|before| self.contents.get(before));
                if entry.is_part && !is_part(before) {
                    html.push_str("<ul>");
                }
                put(
                    html,
                    format_args!(
                        "<li><a href=\"#{}\">{}</a></li>",
                        escape(&entry.anchor),
                        escape(&entry.text)
                    ),
                );
                if entry.is_part && !is_part(self.contents.get(index + 1)) {
                    html.push_str("</ul>");
                }
            }
            html.push_str("</ul>");
        }
        html.push_str("</li>");
    }
}
