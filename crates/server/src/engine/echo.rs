//! Receivers that say back what they were told.
//!
//! Some answer with the request they got, its `Authorization` header included, and how an answer began is
//! kept in the open, as are the headers of a failure. So the secrets of a request are taken out of its answer before that is kept: as they
//! were sent, as JSON writes them, and names and passwords also as they were before they were encoded. A
//! receiver that writes them otherwise cannot be kept from it.

use base64::prelude::{BASE64_STANDARD, Engine};
use http::{HeaderMap, HeaderValue};

/// What is shorter is no secret, and would tear holes into ordinary answers.
const MIN_SECRET_BYTES: usize = 8;
/// What stands where a secret stood.
const GAP: &[u8] = "…".as_bytes();

/// The secrets of a request.
pub(super) struct Told(Vec<HeaderValue>);

impl Told {
    /// Those of its headers that are marked as such.
    pub(super) fn of(headers: &HeaderMap) -> Told {
        let secret = headers.values().filter(|value| value.is_sensitive());
        Told(secret.cloned().collect())
    }

    /// Takes them out of an answer, which may end in the middle of one.
    pub(super) fn take_out_of(&self, answer: &mut Vec<u8>) {
        if answer.is_empty() {
            return;
        }
        for value in &self.0 {
            for secret in parts(value.as_bytes()) {
                take_out(answer, &secret);
                take_out_escaped(answer, &secret, b"\"\\");
                // Some escape slashes too, which are frequent in base64.
                take_out_escaped(answer, &secret, b"\"\\/");
            }
        }
    }
}

/// A value, what follows the scheme in it, and what that stands for where it is a name and a password. The
/// longer ones come first, so that nothing is left of them.
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
        // A name alone is a key, and so a secret.
        let name = password.is_empty().then(|| name.to_vec());
        parts.push(pair);
        parts.push(password);
        parts.extend(name);
    }
    parts
}

fn take_out_escaped(answer: &mut Vec<u8>, secret: &[u8], escaped: &[u8]) {
    let is_escaped = |byte: &u8| escaped.contains(byte);
    if secret.iter().any(is_escaped) {
        let with = |byte: &u8| is_escaped(byte).then_some(b'\\').into_iter().chain([*byte]);
        let written: Vec<u8> = secret.iter().flat_map(with).collect();
        take_out(answer, &written);
    }
}

fn take_out(answer: &mut Vec<u8>, secret: &[u8]) {
    if secret.len() < MIN_SECRET_BYTES {
        return;
    }
    let mut from = 0;
    while let Some(at) = find(&answer[from..], secret) {
        let at = from + at;
        answer.splice(at..at + secret.len(), GAP.iter().copied());
        from = at + GAP.len();
    }
    let longest = (secret.len() - 1).min(answer.len());
    let begun = (MIN_SECRET_BYTES..=longest)
        .rev()
        .find(|length| answer.ends_with(&secret[..*length]));
    if let Some(length) = begun {
        answer.truncate(answer.len() - length);
        answer.extend_from_slice(GAP);
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_of(answer: &str) -> String {
        let mut headers = HeaderMap::new();
        for (name, value, is_secret) in [
            ("authorization", "Bearer correct-horse", true),
            ("x-team", "billing", true),
            // ann and p/ss"word, then a key without a password.
            ("x-pair", "Basic YW5uOnAvc3Mid29yZA==", true),
            ("x-key", "basic c2tfbGl2ZV8xMjM0Og==", true),
            ("x-slash", "key/with/slashes", true),
            ("webhook-id", "dlv_0123456789", false),
        ] {
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(is_secret);
            headers.insert(name, value);
        }
        let mut answer = answer.as_bytes().to_vec();
        Told::of(&headers).take_out_of(&mut answer);
        String::from_utf8(answer).expect("text")
    }

    #[test]
    fn what_was_secret_is_taken_out_and_the_rest_stays() {
        for (answer, left) in [
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
            assert_eq!(left_of(answer), left, "{answer}");
        }
    }
}
