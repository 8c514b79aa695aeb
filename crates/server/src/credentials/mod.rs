//! What an endpoint is called with beside signatures: a password, a token, a certificate.
//!
//! All of it is one JSON document, and it is always sealed. It promises that nothing of it shows in any
//! `Debug`, and that what cannot be read is not quoted.

mod certificate;

use std::fmt;
use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, Engine};
use http::HeaderValue;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::{Deserialize, Serialize};

pub use certificate::{ClientCertificate, Glance};

use crate::chance::random_bytes;

/// Everything an endpoint is called with beside signatures.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// What goes into the `Authorization` header.
    #[serde(default)]
    pub auth: Option<Auth>,
    /// What is shown when a TLS connection is opened.
    #[serde(default)]
    pub client_certificate: Option<ClientCertificate>,
}

/// Where the `Authorization` header comes from.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Auth {
    /// A name and a password (RFC 7617).
    Basic {
        /// Without a colon, which would end it.
        username: String,
        /// The password.
        password: String,
    },
    /// A token that never changes (RFC 6750).
    Bearer {
        /// The token.
        token: String,
    },
    /// A token that is fetched with client credentials (RFC 6749, section 4.4).
    OAuth2(OAuth2),
}

/// How to get a token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OAuth2 {
    /// Where tokens are given out.
    pub token_url: String,
    /// Who asks for one.
    pub client_id: String,
    /// What proves it.
    pub client_secret: String,
    /// What for, if the server wants to know.
    pub scope: Option<String>,
    /// Whom the token is shown to, if the server wants to know.
    pub audience: Option<String>,
    /// Where id and secret stand in the request.
    pub client_authentication: ClientAuthentication,
}

/// Where a client's id and secret stand in the request for a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuthentication {
    /// In the `Authorization` header, which every server must understand.
    #[default]
    Basic,
    /// In the body, for servers that want it so.
    Body,
}

impl ClientAuthentication {
    /// As the API writes it.
    pub fn name(self) -> &'static str {
        match self {
            ClientAuthentication::Basic => "basic",
            ClientAuthentication::Body => "body",
        }
    }
}

/// Tells credentials apart without holding them, for as long as the process lives: what it is made of is
/// salted, so that nobody who sees it can try out what might stand behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark([u8; SHA256_OUTPUT_LEN]);

static SALT: LazyLock<[u8; SHA256_OUTPUT_LEN]> = LazyLock::new(random_bytes);

impl fmt::Display for Mark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// What was sealed is not what can be read. Never quotes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the credentials that are kept cannot be read")]
pub struct Unreadable;

impl Credentials {
    /// Reads what [`keep`](Credentials::keep) wrote.
    pub fn open(json: &[u8]) -> Result<Credentials, Unreadable> {
        // What serde says of rubbish may quote it.
        serde_json::from_slice(json).map_err(|_| Unreadable)
    }

    /// The credentials as bytes, to be sealed.
    pub fn keep(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Whether there is nothing to seal.
    pub fn is_empty(&self) -> bool {
        self.auth.is_none() && self.client_certificate.is_none()
    }

    /// What tells these credentials from others.
    pub fn mark(&self) -> Mark {
        let mut context = Context::new(&SHA256);
        context.update(&*SALT);
        context.update(&self.keep());
        let hash = context.finish();
        Mark(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

/// `Basic` and what it stands for (RFC 7617).
pub fn basic(username: &str, password: &str) -> HeaderValue {
    let pair = BASE64_STANDARD.encode(format!("{username}:{password}"));
    secret_value(&format!("Basic {pair}")).expect("base64 is visible ASCII")
}

/// `Bearer` and a token, if it can stand in a header.
pub fn bearer(token: &str) -> Option<HeaderValue> {
    let is_plain = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| secret_value(&format!("Bearer {token}")))?
}

fn secret_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials(…)")
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Auth::Basic { .. } => "Basic(…)",
            Auth::Bearer { .. } => "Bearer(…)",
            Auth::OAuth2(_) => "OAuth2(…)",
        })
    }
}

impl fmt::Debug for OAuth2 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OAuth2(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_kind() -> Vec<Credentials> {
        let text = |text: &str| text.to_owned();
        let auths = [
            Auth::Basic {
                username: text("ann"),
                password: text("hunter2"),
            },
            Auth::Bearer {
                token: text("hunter2"),
            },
            Auth::OAuth2(OAuth2 {
                token_url: text("https://a.example/token"),
                client_id: text("ann"),
                client_secret: text("hunter2"),
                scope: Some(text("a b")),
                audience: None,
                client_authentication: ClientAuthentication::Body,
            }),
        ];
        let with = |auth| Credentials {
            auth: Some(auth),
            client_certificate: Some(ClientCertificate {
                certificate: text("hunter2"),
                private_key: text("hunter2"),
            }),
        };
        auths.into_iter().map(with).collect()
    }

    #[test]
    fn what_was_kept_is_read_again_and_shows_nowhere() {
        for credentials in every_kind() {
            let again = Credentials::open(&credentials.keep()).expect("what was kept");
            assert!(again == credentials);
            assert_eq!(again.mark(), credentials.mark());
            assert_ne!(again.mark(), Credentials::default().mark());
            let shown = format!(
                "{credentials:?} {:?} {:?}",
                credentials.auth, credentials.client_certificate
            );
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        assert!(Credentials::default().is_empty());
    }

    #[test]
    fn rubbish_is_not_quoted() {
        for json in ["", "5", "hunter2", r#"{"auth":{"kind":"hunter2"}}"#] {
            let error = Credentials::open(json.as_bytes()).expect_err(json);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn headers_are_what_the_standards_say_and_stay_out_of_logs() {
        // The example of RFC 7617, section 2.
        let value = basic("Aladdin", "open sesame");
        assert_eq!(value, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(value.is_sensitive());
        // And of its section 2.1.
        assert_eq!(basic("test", "123\u{a3}"), "Basic dGVzdDoxMjPCow==");
        assert_eq!(bearer("abc.def").expect("a token"), "Bearer abc.def");
        for token in ["", "a b", "a\r\nb", "ä", "a\0"] {
            assert_eq!(bearer(token), None, "{token:?}");
        }
    }
}
