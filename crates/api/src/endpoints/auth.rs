//! Reads an endpoint's credentials from a request.
//!
//! The limits on sizes and characters ensure that each credential can be sent as a header or in a token request. Errors
//! name the field and never quote the value, because it may be a secret.

use posthaste_core::address::{Destination, EgressRules};
use posthaste_core::time::Timestamp;
use posthaste_core::validation::Fields;
use posthaste_egress::{IdentityError, refuse_self_call};
use posthaste_engine::credentials::{Auth, ClientAuthentication, ClientCertificate, OAuth2};

use crate::code::Code;

/// Maximum length of a user name.
pub(super) const MAX_USERNAME_BYTES: usize = 256;
/// Maximum length of a password.
pub(super) const MAX_PASSWORD_BYTES: usize = 1_024;
/// Maximum length of a token. Together with the other headers it must fit into a head of 8 KiB, the limit of
/// many receivers.
pub(super) const MAX_TOKEN_BYTES: usize = 4_096;
/// Maximum length of a client id.
pub(super) const MAX_CLIENT_ID_BYTES: usize = 256;
/// Maximum length of a client secret.
pub(super) const MAX_CLIENT_SECRET_BYTES: usize = 1_024;
/// Maximum length of a scope.
pub(super) const MAX_SCOPE_BYTES: usize = 1_024;
/// Maximum length of an audience.
pub(super) const MAX_AUDIENCE_BYTES: usize = 1_024;
/// Maximum size of a certificate chain in PEM.
pub(super) const MAX_CERTIFICATE_BYTES: usize = 32 * 1_024;
/// Maximum size of a private key in PEM.
pub(super) const MAX_PRIVATE_KEY_BYTES: usize = 16 * 1_024;

/// The parsed `auth`, and the code if its URL is refused.
#[derive(Default)]
pub(super) struct ReadAuth {
    pub(super) auth: Option<Auth>,
    pub(super) refused: Option<Code>,
}

/// Reads the field `auth`.
pub(super) fn read(fields: &mut Fields<'_, '_>, rules: &EgressRules) -> ReadAuth {
    let mut read = ReadAuth::default();
    let Some(mut inner) = fields.object("auth") else {
        return read;
    };
    inner.need("kind");
    match inner.text("kind") {
        None => return read,
        Some("basic") => read.auth = basic(&mut inner),
        Some("bearer") => {
            let token = needed(&mut inner, "token", MAX_TOKEN_BYTES, VISIBLE);
            read.auth = token.map(|token| Auth::Bearer { token });
        }
        Some("oauth2") => {
            let token_url = token_url(&mut inner, rules, &mut read.refused);
            read.auth = oauth2(&mut inner, token_url).map(Auth::OAuth2);
        }
        Some(_) => {
            inner.wrong("kind", "must be \"basic\", \"bearer\" or \"oauth2\"");
            return read;
        }
    }
    inner.finish();
    read
}

/// The characters that a text may contain, and the message for others.
#[derive(Clone, Copy)]
struct Alphabet {
    has: fn(char) -> bool,
    words: &'static str,
}

/// Characters of text that is used in a header unchanged.
const VISIBLE: Alphabet = Alphabet {
    has: |c| c.is_ascii_graphic(),
    words: "must be visible ASCII without spaces",
};
/// Characters of ids, secrets and scopes (RFC 6749).
const PRINTABLE: Alphabet = Alphabet {
    has: |c| matches!(c, ' '..='~'),
    words: "must be visible ASCII and spaces",
};
/// Characters of text that is sent encoded.
const TEXT: Alphabet = Alphabet {
    has: |c| !c.is_control(),
    words: "must not contain line breaks or other control characters",
};
/// Characters of a user name (RFC 7617), which a colon would end.
const NAME: Alphabet = Alphabet {
    has: |c| !c.is_control() && c != ':',
    words: "must not contain a colon, line breaks or other control characters",
};

fn basic(inner: &mut Fields<'_, '_>) -> Option<Auth> {
    for name in ["username", "password"] {
        inner.need(name);
    }
    let username = bounded(inner, "username", MAX_USERNAME_BYTES, NAME);
    let password = bounded(inner, "password", MAX_PASSWORD_BYTES, TEXT);
    let (username, password) = (username?, password?);
    // One of them may be empty: services often use one of the two for an API key.
    if username.is_empty() && password.is_empty() {
        inner.wrong("username", "must not be empty if the password is empty");
        return None;
    }
    Some(Auth::Basic { username, password })
}

fn token_url(
    inner: &mut Fields<'_, '_>,
    rules: &EgressRules,
    refused: &mut Option<Code>,
) -> Option<String> {
    inner.need("token_url");
    let url = inner.text("token_url")?;
    match Destination::parse(url, rules).and_then(|to| refuse_self_call(rules, &to)) {
        Ok(()) => Some(url.to_owned()),
        Err(destination_error) => {
            inner.wrong("token_url", destination_error.to_string());
            *refused = Some(Code::for_destination_error(&destination_error));
            None
        }
    }
}

fn oauth2(inner: &mut Fields<'_, '_>, token_url: Option<String>) -> Option<OAuth2> {
    let client_id = needed(inner, "client_id", MAX_CLIENT_ID_BYTES, PRINTABLE);
    let client_secret = needed(inner, "client_secret", MAX_CLIENT_SECRET_BYTES, PRINTABLE);
    let scope = filled(inner, "scope", MAX_SCOPE_BYTES, PRINTABLE);
    let audience = filled(inner, "audience", MAX_AUDIENCE_BYTES, TEXT);
    let client_authentication = match inner.text("client_authentication") {
        None => Some(ClientAuthentication::default()),
        Some("basic") => Some(ClientAuthentication::Basic),
        Some("body") => Some(ClientAuthentication::Body),
        Some(_) => {
            inner.wrong("client_authentication", "must be \"basic\" or \"body\"");
            None
        }
    };
    Some(OAuth2 {
        token_url: token_url?,
        client_id: client_id?,
        client_secret: client_secret?,
        scope,
        audience,
        client_authentication: client_authentication?,
    })
}

/// Reads a required text that must not be empty.
fn needed(
    inner: &mut Fields<'_, '_>,
    name: &'static str,
    most_bytes: usize,
    alphabet: Alphabet,
) -> Option<String> {
    inner.need(name);
    filled(inner, name, most_bytes, alphabet)
}

/// Reads an optional text that must not be empty.
fn filled(
    inner: &mut Fields<'_, '_>,
    name: &'static str,
    most_bytes: usize,
    alphabet: Alphabet,
) -> Option<String> {
    let text = bounded(inner, name, most_bytes, alphabet)?;
    if text.is_empty() {
        inner.wrong(name, "must not be empty");
        return None;
    }
    Some(text)
}

/// Reads a text with a maximum length and an alphabet. Errors do not quote it.
fn bounded(
    inner: &mut Fields<'_, '_>,
    name: &'static str,
    most_bytes: usize,
    alphabet: Alphabet,
) -> Option<String> {
    let text = inner.text(name)?;
    if text.len() > most_bytes {
        let message = format!("must have at most {most_bytes} bytes, not {}", text.len());
        inner.wrong(name, message);
        return None;
    }
    if !text.chars().all(alphabet.has) {
        inner.wrong(name, alphabet.words);
        return None;
    }
    Some(text.to_owned())
}

/// Reads the field `client_certificate`.
pub(super) fn read_certificate(
    fields: &mut Fields<'_, '_>,
    now: Timestamp,
) -> Option<ClientCertificate> {
    let mut inner = fields.object("client_certificate")?;
    for name in ["certificate", "private_key"] {
        inner.need(name);
    }
    let certificate = pem(&mut inner, "certificate", MAX_CERTIFICATE_BYTES);
    let private_key = pem(&mut inner, "private_key", MAX_PRIVATE_KEY_BYTES);
    let read = certificate.zip(private_key);
    let read = read.map(|(certificate, private_key)| ClientCertificate {
        certificate,
        private_key,
    });
    if let Some(read) = &read {
        match read.identity() {
            Ok(_) => {
                let expires_at = read.summary().and_then(|summary| summary.expires_at);
                if let Some(expired) = expires_at.filter(|end| *end <= now) {
                    let message = format!("has expired at {expired}");
                    inner.wrong("certificate", message);
                }
            }
            Err(error) => inner.wrong(field_of(error), error.to_string()),
        }
    }
    inner.finish();
    read
}

fn pem(inner: &mut Fields<'_, '_>, name: &'static str, most_bytes: usize) -> Option<String> {
    let text = inner.text(name)?;
    if text.len() > most_bytes {
        let message = format!("must have at most {most_bytes} bytes, not {}", text.len());
        inner.wrong(name, message);
        return None;
    }
    Some(text.to_owned())
}

fn field_of(error: IdentityError) -> &'static str {
    match error {
        IdentityError::NoCertificate | IdentityError::Certificate(_) | IdentityError::LongChain => {
            "certificate"
        }
        IdentityError::Key | IdentityError::Mismatch => "private_key",
    }
}
