//! Receivers that say back what they were told.
//!
//! Some answer with the request they got, its `Authorization` header included, and how an answer began is
//! kept in the open. So the secrets of a request are taken out of its answer before that is kept. It
//! finds them as they were sent; a receiver that writes them otherwise cannot be kept from it.

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
        for value in &self.0 {
            let whole = value.as_bytes();
            take_out(answer, whole);
            // Without the scheme before it.
            let blank = whole.iter().position(|byte| *byte == b' ');
            if let Some(blank) = blank {
                take_out(answer, &whole[blank + 1..]);
            }
        }
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
        ] {
            assert_eq!(left_of(answer), left, "{answer}");
        }
    }
}
