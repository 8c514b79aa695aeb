//! URLs of the sites: their paths, query strings, and encoded text.

use http::Uri;

/// Path of the dashboard.
pub(super) const DASHBOARD_PATH: &str = "/dashboard";
/// Path below which all portals are.
pub(super) const PORTAL_PATH: &str = "/portal";

/// Percent-encodes a text for use in a path or a query.
pub(super) fn url_encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Builds a query of the non-empty fields, beginning with `?`; empty if there are none.
pub(super) fn query_string<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, text) in fields {
        if !text.is_empty() {
            query.append_pair(name, text);
        }
    }
    match query.finish() {
        query if query.is_empty() => query,
        query => format!("?{query}"),
    }
}

/// Reads the query parameters. If a name occurs twice, the first one counts.
pub(super) fn parse_query(uri: &Uri) -> Vec<(String, String)> {
    /// Maximum number of parameters that are read.
    const MAX_FIELDS: usize = 64;
    let raw = uri.query().unwrap_or_default();
    let fields = url::form_urlencoded::parse(raw.as_bytes());
    fields.into_owned().take(MAX_FIELDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_string_omits_empty_fields() {
        let query = query_string([("status", "failed"), ("type", ""), ("q", "a b&c")]);
        assert_eq!(query, "?status=failed&q=a+b%26c");
        assert_eq!(query_string([("status", "")]), "");
    }
}
