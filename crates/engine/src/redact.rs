//! Removes the secrets of a request from its response.
//!
//! Some receivers answer with the request that they received, including its `Authorization` header. The start of the
//! response body and the headers of a failed attempt are stored unencrypted. So [`RequestSecrets`] removes the secrets of
//! the request before the response is stored: as they were sent, as JSON escapes them, and user names and passwords also in
//! decoded form. Secrets that a receiver encodes in another way are not found.

use base64::prelude::{BASE64_STANDARD, Engine};
use http::{HeaderMap, HeaderValue};

/// Minimum length of a secret, in bytes. Removing shorter values would damage ordinary responses.
const MIN_SECRET_BYTES: usize = 8;
/// Replacement for a removed secret.
const REDACTED: &[u8] = "…".as_bytes();

/// The secrets of a request.
pub(super) struct RequestSecrets(Vec<HeaderValue>);

impl RequestSecrets {
    /// Collects the header values that are marked as sensitive.
    pub(super) fn of(headers: &HeaderMap) -> RequestSecrets {
        let secret = headers.values().filter(|value| value.is_sensitive());
        RequestSecrets(secret.cloned().collect())
    }

    /// Removes the secrets from a response, which may end in the middle of a secret.
    pub(super) fn redact(&self, response: &mut Vec<u8>) {
        if response.is_empty() {
            return;
        }
        for value in &self.0 {
            for secret in parts(value.as_bytes()) {
                remove(response, &secret);
                remove_escaped(response, &secret, b"\"\\");
                // Some JSON encoders escape slashes too, which are frequent in base64.
                remove_escaped(response, &secret, b"\"\\/");
            }
        }
    }
}

/// Returns a header value and the part after its scheme; for `Basic` also the decoded `user:password` and the password.
/// Longer parts come first, so that no remainder of them is left.
fn parts(value: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = vec![value.to_vec()];
    let Some(blank) = value.iter().position(|byte| *byte == b' ') else {
        return parts;
    };
    let (scheme, credentials) = (&value[..blank], &value[blank + 1..]);
    parts.push(credentials.to_vec());
    if scheme.eq_ignore_ascii_case(b"Basic")
        && let Ok(pair) = BASE64_STANDARD.decode(credentials)
    {
        let colon = pair.iter().position(|byte| *byte == b':');
        let (name, password) = pair.split_at(colon.unwrap_or(pair.len()));
        let password = password.get(1..).unwrap_or_default().to_vec();
        // A user name without a password is an API key, and so a secret.
        let name = password.is_empty().then(|| name.to_vec());
        parts.push(pair);
        parts.push(password);
        parts.extend(name);
    }
    parts
}

fn remove_escaped(response: &mut Vec<u8>, secret: &[u8], escaped: &[u8]) {
    let is_escaped = |byte: &u8| escaped.contains(byte);
    if secret.iter().any(is_escaped) {
        let with = |byte: &u8| is_escaped(byte).then_some(b'\\').into_iter().chain([*byte]);
        let written: Vec<u8> = secret.iter().flat_map(with).collect();
        remove(response, &written);
    }
}

fn remove(response: &mut Vec<u8>, secret: &[u8]) {
    if secret.len() < MIN_SECRET_BYTES {
        return;
    }
    let mut from = 0;
    while let Some(at) = find(&response[from..], secret) {
        let at = from + at;
        response.splice(at..at + secret.len(), REDACTED.iter().copied());
        from = at + REDACTED.len();
    }
    let longest = (secret.len() - 1).min(response.len());
    let partial = (MIN_SECRET_BYTES..=longest)
        .rev()
        .find(|length| response.ends_with(&secret[..*length]));
    if let Some(length) = partial {
        response.truncate(response.len() - length);
        response.extend_from_slice(REDACTED);
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(response: &str) -> String {
        let mut headers = HeaderMap::new();
        for (name, value, is_secret) in [
            ("authorization", "Bearer correct-horse", true),
            ("x-team", "billing", true),
            // User name `ann` with password `p/ss"word`, then a key without a password.
            ("x-pair", "Basic YW5uOnAvc3Mid29yZA==", true),
            ("x-key", "basic c2tfbGl2ZV8xMjM0Og==", true),
            ("x-slash", "key/with/slashes", true),
            ("webhook-id", "dlv_0123456789", false),
        ] {
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(is_secret);
            headers.insert(name, value);
        }
        let mut response = response.as_bytes().to_vec();
        RequestSecrets::of(&headers).redact(&mut response);
        String::from_utf8(response).expect("text")
    }

    #[test]
    fn secrets_are_removed_and_the_rest_stays() {
        for (response, expected) in [
            ("", ""),
            ("no such hook for billing", "no such hook for billing"),
            ("dlv_0123456789 refused", "dlv_0123456789 refused"),
            ("you said Bearer correct-horse!", "you said …!"),
            ("correct-horse, correct-horse", "…, …"),
            ("Bearer correct-hors", "…"),
            ("{\"token\":\"correct-h", "{\"token\":\"…"),
            ("correct", "correct"),
            (r#"{"key":"key\/with\/slashes"}"#, r#"{"key":"…"}"#),
            ("Basic YW5uOnAvc3Mid29yZA== of ann", "… of ann"),
            (r#"{"ann": "p\/ss\"word"}"#, r#"{"ann": "…"}"#),
            (r#"{"ann": "p/ss\"word"}"#, r#"{"ann": "…"}"#),
            (r#"ann:p/ss"word"#, "…"),
            ("no sk_live_1234 here", "no … here"),
        ] {
            assert_eq!(redacted(response), expected, "{response}");
        }
    }
}
