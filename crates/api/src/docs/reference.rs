//! The API reference, generated from the routes, and the list of errors.

use serde_json::Value;

use super::frame::{Entry, Frame};
use super::markup::{escape, prose, put};
use crate::code::Code;
use crate::openapi::{access_in_words, document, path_names};
use crate::route::{Content, RequestBody, Route};
use crate::routes::GROUPS;

/// Returns the page that describes every route and every error.
pub(super) fn page() -> String {
    let document = document();
    let mut html = String::from(
        "<h1>posthaste API</h1><p>JSON over HTTP. Send <code>Authorization: Bearer KEY</code>. Times are RFC 3339 in UTC with milliseconds; durations are strings such as <code>\"250ms\"</code>, <code>\"30s\"</code>, <code>\"2h\"</code>. Unknown fields and parameters are rejected. Lists accept <code>limit</code> and <code>cursor</code>. Machine-readable description: <a href=\"/openapi.json\">/openapi.json</a>.</p>",
    );
    let mut contents = Vec::new();
    for group in GROUPS {
        contents.push(Entry::new(group.name, group.name));
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
    contents.push(Entry::new("shapes", "Shapes"));
    contents.push(Entry::new("errors", "Errors"));
    Frame {
        title: "posthaste API",
        path: super::REFERENCE_PATH,
        contents: &contents,
        query: "",
    }
    .around(&html)
}

/// Returns the page that describes every error.
pub(super) fn errors_page() -> String {
    let mut html = String::from("<h1>Errors</h1>");
    errors(&mut html);
    Frame {
        title: "posthaste errors",
        path: super::ERRORS_PATH,
        contents: &[],
        query: "",
    }
    .around(&html)
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
