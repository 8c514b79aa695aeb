//! Selects the response headers that are stored, to show why a delivery failed.
//!
//! - Headers are stored only for failures: the client returns no others, because every delivery pays for what is
//!   stored.
//! - Their number and size are bounded.
//! - Cookies, credentials and secrets of the request are removed.
//! - Values are stored as visible text. Control and bidirectional characters are escaped.

use std::fmt::Write;

use http::{HeaderMap, HeaderName};
use posthaste_store::{
    MAX_HEADER_NAME_CHARS, MAX_HEADER_VALUE_CHARS, MAX_RESPONSE_HEADER_BYTES, MAX_RESPONSE_HEADERS,
};

use super::redact::RequestSecrets;

/// Headers whose values are secret.
const PRIVATE: &[&str] = &[
    "authentication-info",
    "authorization",
    "cookie",
    "set-cookie",
    "set-cookie2",
];
/// Prefix of headers that belong to a proxy, not to the receiver.
const PROXY_PREFIX: &str = "proxy-";
/// Marks the end of a truncated value.
const TRUNCATED: char = '…';

/// Returns the response headers to store: each name once, with all its values, in order of arrival. A header that does
/// not fit into the size limit is left out.
pub(super) fn stored(headers: &HeaderMap, secrets: &RequestSecrets) -> Vec<(String, String)> {
    let mut free_bytes = MAX_RESPONSE_HEADER_BYTES;
    let mut stored = Vec::new();
    for name in headers.keys().filter(|name| may_be_stored(name)) {
        if stored.len() == MAX_RESPONSE_HEADERS {
            break;
        }
        let value = truncated(value_of(headers, name, secrets));
        let bytes = name.as_str().len() + value.len();
        if let Some(left) = free_bytes.checked_sub(bytes) {
            free_bytes = left;
            stored.push((name.as_str().to_owned(), value));
        }
    }
    stored
}

fn may_be_stored(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.len() <= MAX_HEADER_NAME_CHARS
        && !PRIVATE.contains(&name)
        && !name.starts_with(PROXY_PREFIX)
}

/// Joins all values of a header with commas, as HTTP defines.
fn value_of(headers: &HeaderMap, name: &HeaderName, secrets: &RequestSecrets) -> String {
    let mut text = String::new();
    for (index, value) in headers.get_all(name).iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        let mut bytes = value.as_bytes().to_vec();
        secrets.redact(&mut bytes);
        append_visible(&bytes, &mut text);
    }
    text
}

/// Appends text, with invisible characters escaped.
fn append_visible(bytes: &[u8], text: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\'' | '\\' => text.push(character),
                other => text.extend(other.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
}

fn truncated(mut value: String) -> String {
    if value.chars().nth(MAX_HEADER_VALUE_CHARS).is_some() {
        let last = value.char_indices().nth(MAX_HEADER_VALUE_CHARS - 1);
        let (end, _) = last.expect("the value exceeds the limit");
        value.truncate(end);
        value.push(TRUNCATED);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn answer(headers: &[(&str, &[u8])]) -> HeaderMap {
        let mut answer = HeaderMap::new();
        for (name, value) in headers {
            answer.append(
                HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                HeaderValue::from_bytes(value).expect("a value"),
            );
        }
        answer
    }

    fn stored_of(headers: &[(&str, &[u8])]) -> Vec<(String, String)> {
        let mut request = HeaderMap::new();
        let mut secret = HeaderValue::from_static("Bearer correct-horse-battery");
        secret.set_sensitive(true);
        request.insert("authorization", secret);
        stored(&answer(headers), &RequestSecrets::of(&request))
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn headers_are_stored_in_order_without_private_ones() {
        let found = stored_of(&[
            ("Content-Type", b"text/html"),
            ("Set-Cookie", b"session=canary"),
            ("Set-Cookie2", b"session=canary"),
            ("Authorization", b"canary"),
            ("Proxy-Authenticate", b"canary"),
            ("Proxy-Anything", b"canary"),
            ("WWW-Authenticate", b"Bearer realm=\"hooks\""),
            ("Via", b"1.1 a"),
            ("X-Empty", b""),
            ("Via", b"1.1 b"),
        ]);
        let expected = pairs(&[
            ("content-type", "text/html"),
            ("www-authenticate", "Bearer realm=\"hooks\""),
            ("via", "1.1 a, 1.1 b"),
            ("x-empty", ""),
        ]);
        assert_eq!(found, expected);
    }

    #[test]
    fn secrets_of_the_request_are_removed() {
        let found = stored_of(&[("x-you-said", b"Bearer correct-horse-battery, indeed")]);
        assert_eq!(found, pairs(&[("x-you-said", "…, indeed")]));
    }

    #[test]
    fn invisible_characters_are_escaped() {
        for (value, expected) in [
            ("grüße".as_bytes(), "grüße"),
            (b"a\tb", "a\\tb"),
            (b"caf\xe9 \xff", "caf\\xe9 \\xff"),
            ("a\u{202e}b".as_bytes(), "a\\u{202e}b"),
            ("a\u{200b}b\u{85}".as_bytes(), "a\\u{200b}b\\u{85}"),
            (br#"C:\temp 'x' "y""#, r#"C:\temp 'x' "y""#),
        ] {
            assert_eq!(stored_of(&[("x", value)]), pairs(&[("x", expected)]));
        }
    }

    #[test]
    fn number_and_size_are_bounded() {
        let long_name = "n".repeat(MAX_HEADER_NAME_CHARS + 1);
        let fitting_name = "n".repeat(MAX_HEADER_NAME_CHARS);
        let whole = "ü".repeat(MAX_HEADER_VALUE_CHARS);
        let longer = "ü".repeat(MAX_HEADER_VALUE_CHARS + 1);
        let found = stored_of(&[
            (&long_name, b"left out"),
            (&fitting_name, b"kept"),
            ("x-whole", whole.as_bytes()),
            ("x-longer", longer.as_bytes()),
        ]);
        let cut = format!("{}…", "ü".repeat(MAX_HEADER_VALUE_CHARS - 1));
        let expected = [
            (fitting_name.as_str(), "kept"),
            ("x-whole", &whole),
            ("x-longer", &cut),
        ];
        assert_eq!(found, pairs(&expected));

        let names: Vec<String> = (0..100).map(|number| format!("x-{number}")).collect();
        let many: Vec<(&str, &[u8])> = names.iter().map(|name| (&name[..], &b"1"[..])).collect();
        assert_eq!(stored_of(&many).len(), MAX_RESPONSE_HEADERS);

        let full = [b'v'; MAX_HEADER_VALUE_CHARS];
        let mut large: Vec<(&str, &[u8])> =
            names.iter().map(|name| (&name[..], &full[..])).collect();
        large.push(("last", b"fits"));
        let found = stored_of(&large);
        let bytes: usize = found
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        assert!(bytes <= MAX_RESPONSE_HEADER_BYTES, "{bytes}");
        assert_eq!(found.len(), 11, "ten of about 204 bytes, and a small one");
        assert_eq!(found[10].0, "last");
    }
}
