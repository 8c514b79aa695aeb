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

use super::redact::Told;

/// Headers whose values are secret.
const PRIVATE: &[&str] = &[
    "authentication-info",
    "authorization",
    "cookie",
    "set-cookie",
    "set-cookie2",
];
/// Prefix of headers that belong to a proxy, not to the receiver.
const TO_PROXIES: &str = "proxy-";
/// Marks the end of a truncated value.
const CUT: char = '…';

/// Returns the response headers to store: each name once, with all its values, in order of arrival. A header that does
/// not fit into the size limit is left out.
pub(super) fn kept(headers: &HeaderMap, told: &Told) -> Vec<(String, String)> {
    let mut room = MAX_RESPONSE_HEADER_BYTES;
    let mut kept = Vec::new();
    for name in headers.keys().filter(|name| may_be_shown(name)) {
        if kept.len() == MAX_RESPONSE_HEADERS {
            break;
        }
        let value = cut(value_of(headers, name, told));
        let bytes = name.as_str().len() + value.len();
        if let Some(left) = room.checked_sub(bytes) {
            room = left;
            kept.push((name.as_str().to_owned(), value));
        }
    }
    kept
}

fn may_be_shown(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.len() <= MAX_HEADER_NAME_CHARS && !PRIVATE.contains(&name) && !name.starts_with(TO_PROXIES)
}

/// Joins all values of a header with commas, as HTTP defines.
fn value_of(headers: &HeaderMap, name: &HeaderName, told: &Told) -> String {
    let mut shown = String::new();
    for (index, value) in headers.get_all(name).iter().enumerate() {
        if index > 0 {
            shown.push_str(", ");
        }
        let mut bytes = value.as_bytes().to_vec();
        told.redact(&mut bytes);
        show(&bytes, &mut shown);
    }
    shown
}

/// Appends text, with invisible characters escaped.
fn show(bytes: &[u8], shown: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' | '\'' | '\\' => shown.push(letter),
                other => shown.extend(other.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
}

fn cut(mut value: String) -> String {
    if value.chars().nth(MAX_HEADER_VALUE_CHARS).is_some() {
        let last = value.char_indices().nth(MAX_HEADER_VALUE_CHARS - 1);
        let (end, _) = last.expect("it is longer than that");
        value.truncate(end);
        value.push(CUT);
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

    fn kept_of(headers: &[(&str, &[u8])]) -> Vec<(String, String)> {
        let mut request = HeaderMap::new();
        let mut secret = HeaderValue::from_static("Bearer correct-horse-battery");
        secret.set_sensitive(true);
        request.insert("authorization", secret);
        kept(&answer(headers), &Told::of(&request))
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn what_explains_a_failure_is_kept_in_order_and_what_is_private_is_not() {
        let found = kept_of(&[
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
    fn what_the_request_kept_secret_is_not_kept_when_it_is_said_back() {
        let found = kept_of(&[("x-you-said", b"Bearer correct-horse-battery, indeed")]);
        assert_eq!(found, pairs(&[("x-you-said", "…, indeed")]));
    }

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        for (value, shown) in [
            ("grüße".as_bytes(), "grüße"),
            (b"a\tb", "a\\tb"),
            (b"caf\xe9 \xff", "caf\\xe9 \\xff"),
            ("a\u{202e}b".as_bytes(), "a\\u{202e}b"),
            ("a\u{200b}b\u{85}".as_bytes(), "a\\u{200b}b\\u{85}"),
            (br#"C:\temp 'x' "y""#, r#"C:\temp 'x' "y""#),
        ] {
            assert_eq!(kept_of(&[("x", value)]), pairs(&[("x", shown)]));
        }
    }

    #[test]
    fn a_receiver_that_says_much_is_cut_short() {
        let long_name = "n".repeat(MAX_HEADER_NAME_CHARS + 1);
        let fitting_name = "n".repeat(MAX_HEADER_NAME_CHARS);
        let whole = "ü".repeat(MAX_HEADER_VALUE_CHARS);
        let longer = "ü".repeat(MAX_HEADER_VALUE_CHARS + 1);
        let found = kept_of(&[
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
        assert_eq!(kept_of(&many).len(), MAX_RESPONSE_HEADERS);

        let full = [b'v'; MAX_HEADER_VALUE_CHARS];
        let mut large: Vec<(&str, &[u8])> =
            names.iter().map(|name| (&name[..], &full[..])).collect();
        large.push(("last", b"fits"));
        let found = kept_of(&large);
        let bytes: usize = found
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        assert!(bytes <= MAX_RESPONSE_HEADER_BYTES, "{bytes}");
        assert_eq!(found.len(), 11, "ten of about 204 bytes, and a small one");
        assert_eq!(found[10].0, "last");
    }
}
