//! Documentation pages, generated from the routes.
//!
//! Plain HTML: no scripts, no external resources, readable without styles. Each page is made once, since reading it
//! needs no key.

use std::fmt::Write;
use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::Value;

use super::code::Code;
use super::openapi::{access_in_words, document, path_names};
use super::route::{Content, RequestBody, Route};
use super::routes::GROUPS;

const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem 1.5rem 4rem;color:#1c1e21;background:#fff}\
h1{font-size:1.6rem}h2{margin-top:2.5rem;border-bottom:1px solid #d8dce2;padding-bottom:.3rem}\
h3{font-size:1rem;margin:2rem 0 .4rem}code,pre{font:14px/1.45 ui-monospace,monospace}\
pre{background:#f4f5f7;padding:.8rem 1rem;border-radius:6px;overflow-x:auto}\
.verb{display:inline-block;min-width:4.2rem;font-weight:700;color:#0b5cad}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.25rem .8rem .25rem 0;border-bottom:1px solid #e8eaee}\
nav ul{columns:2;padding-left:1.2rem}a{color:#0b5cad}.quiet{color:#5b636e}\
@media(prefers-color-scheme:dark){body{color:#e4e6ea;background:#15171a}pre{background:#1f2226}h2,td,th{border-color:#33383f}a,.verb{color:#7ab8ff}.quiet{color:#9aa3ad}}";

/// Returns the page that describes every route and every error.
pub(super) fn page_bytes() -> Bytes {
    static PAGE: OnceLock<Bytes> = OnceLock::new();
    PAGE.get_or_init(|| page().into()).clone()
}

/// Returns the page that describes every error.
pub(super) fn errors_page_bytes() -> Bytes {
    static PAGE: OnceLock<Bytes> = OnceLock::new();
    PAGE.get_or_init(|| errors_page().into()).clone()
}

/// Returns the page that describes every route and every error.
fn page() -> String {
    let document = document();
    let mut html = opening("posthaste API");
    html.push_str(
        "<h1>posthaste API</h1><p>JSON over HTTP. Send <code>Authorization: Bearer KEY</code>. Times are RFC 3339 in UTC with milliseconds; durations are strings such as <code>\"250ms\"</code>, <code>\"30s\"</code>, <code>\"2h\"</code>. Unknown fields and parameters are errors. Lists take <code>limit</code> and <code>cursor</code>. Machine-readable description: <a href=\"/openapi.json\">/openapi.json</a>.</p>",
    );
    html.push_str("<nav><ul>");
    for group in GROUPS {
        put(
            &mut html,
            format_args!("<li><a href=\"#{0}\">{0}</a></li>", group.name),
        );
    }
    html.push_str(
        "<li><a href=\"#shapes\">Shapes</a></li><li><a href=\"#errors\">Errors</a></li></ul></nav>",
    );
    for group in GROUPS {
        put(
            &mut html,
            format_args!(
                "<section><h2 id=\"{0}\">{0}</h2><p>{1}</p>",
                group.name,
                prose(group.about)
            ),
        );
        for route in group.routes {
            describe(&mut html, route);
        }
        html.push_str("</section>");
    }
    shapes(&mut html, &document);
    errors(&mut html);
    html.push_str("</body></html>");
    html
}

/// Returns the page that describes every error.
fn errors_page() -> String {
    let mut html = opening("posthaste errors");
    errors(&mut html);
    html.push_str("<p><a href=\"/docs\">All of the API</a></p></body></html>");
    html
}

fn opening(title: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body>"
    )
}

fn describe(html: &mut String, route: &Route) {
    put(
        html,
        format_args!(
            "<article><h3 id=\"{}\"><span class=\"verb\">{}</span> <code>{}</code></h3><p>{} <span class=\"quiet\">{}</span></p>",
            route.name,
            route.verb.as_str(),
            escape(route.path),
            prose(route.summary),
            access_in_words(route.access)
        ),
    );
    html.push_str("<table>");
    for (name, about) in path_names(route.path) {
        row(html, &format!("<code>{{{name}}}</code>"), &prose(about));
    }
    for parameter in route.query {
        let name = format!("<code>?{}=</code>", parameter.name);
        row(html, &name, &prose(parameter.about));
    }
    match route.request_body {
        RequestBody::Nothing => {}
        RequestBody::Json(schema) => row(html, "takes", &format!("JSON: {}", shape(schema))),
        RequestBody::OptionalJson(schema) => {
            let about = format!("JSON: {}, or no body", shape(schema));
            row(html, "takes", &about);
        }
    }
    for gives in route.responses {
        let content = match gives.content {
            Content::Nothing => String::new(),
            Content::Json(schema) => format!(" JSON: {}", shape(schema)),
            Content::List(schema) => format!(" JSON: a page of {}", shape(schema)),
            Content::Other(media_type) => format!(" <code>{media_type}</code>"),
        };
        let about = format!("{}{content}", prose(gives.about));
        row(html, &gives.status.to_string(), &about);
    }
    for (status, code) in route.all_errors() {
        let link = format!(
            "{status} <a href=\"#{0}\"><code>{0}</code></a>",
            code.as_str()
        );
        row(html, &link, &prose(code.title()));
    }
    html.push_str("</table></article>");
}

fn row(html: &mut String, left: &str, right: &str) {
    put(
        html,
        format_args!("<tr><td>{left}</td><td>{right}</td></tr>"),
    );
}

/// Returns the name of a schema as a link to it.
fn shape(name: &str) -> String {
    format!("<a href=\"#shape-{name}\"><code>{name}</code></a>")
}

fn shapes(html: &mut String, document: &Value) {
    html.push_str("<section><h2 id=\"shapes\">Shapes</h2>");
    let schemas = document["components"]["schemas"].as_object();
    for (name, shape) in schemas.into_iter().flatten() {
        put(
            html,
            format_args!("<h3 id=\"shape-{0}\">{0}</h3>", escape(name)),
        );
        if let Some(about) = shape["description"].as_str() {
            put(html, format_args!("<p>{}</p>", prose(about)));
        }
        for example in shape["examples"].as_array().into_iter().flatten() {
            let example = serde_json::to_string_pretty(example).unwrap_or_default();
            put(html, format_args!("<pre>{}</pre>", escape(&example)));
        }
        let mut bare = shape.clone();
        if let Some(bare) = bare.as_object_mut() {
            bare.remove("examples");
            bare.remove("description");
        }
        let text = serde_json::to_string_pretty(&bare).unwrap_or_default();
        put(
            html,
            format_args!(
                "<details><summary>Schema</summary><pre>{}</pre></details>",
                escape(&text)
            ),
        );
    }
    html.push_str("</section>");
}

fn errors(html: &mut String) {
    html.push_str(
        "<section><h2 id=\"errors\">Errors</h2><p>Every error is <code>application/problem+json</code> with a stable <code>code</code>. For 422, <code>errors</code> lists all invalid fields.</p>",
    );
    for code in Code::ALL {
        put(
            html,
            format_args!(
                "<h3 id=\"{0}\"><code>{0}</code> <span class=\"quiet\">{1}</span></h3><p>{2}.</p><p>{3}</p>",
                code.as_str(),
                code.status().as_u16(),
                prose(code.title()),
                prose(code.remedy())
            ),
        );
    }
    html.push_str("</section>");
}

fn put(html: &mut String, text: std::fmt::Arguments<'_>) {
    html.write_fmt(text)
        .expect("writing to a string does not fail");
}

/// Escapes text, and marks text between backquotes as code.
fn prose(text: &str) -> String {
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

fn escape(text: &str) -> String {
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
