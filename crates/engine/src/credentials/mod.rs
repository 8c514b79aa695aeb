//! Credentials for an endpoint besides signatures: a password, a token, a client certificate.
//!
//! [`Credentials`] is stored as one JSON document, always sealed by the vault. No `Debug` output shows any
//! part of it, and no error quotes data that cannot be read.

mod certificate;

use std::fmt;
use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, Engine};
use http::HeaderValue;
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::{Deserialize, Serialize};

pub use certificate::{CertificateSummary, ClientCertificate};

use posthaste_system::random::random_bytes;

/// All credentials of an endpoint besides its signing keys.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// Source of the `Authorization` header.
    #[serde(default)]
    pub auth: Option<Auth>,
    /// Certificate for mutual TLS.
    #[serde(default)]
    pub client_certificate: Option<ClientCertificate>,
}

/// Source of the `Authorization` header.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Auth {
    /// A user name and a password (RFC 7617).
    Basic {
        /// The user name. It must not contain a colon, which would end it.
        username: String,
        /// The password.
        password: String,
    },
    /// A fixed token (RFC 6750).
    Bearer {
        /// The token.
        token: String,
    },
    /// A token that is fetched with client credentials (RFC 6749, section 4.4).
    OAuth2(OAuth2),
}

/// Settings for fetching an access token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OAuth2 {
    /// URL of the token endpoint.
    pub token_url: String,
    /// Id of the client.
    pub client_id: String,
    /// Secret of the client.
    pub client_secret: String,
    /// Requested scope, if the server needs one.
    pub scope: Option<String>,
    /// Requested audience, if the server needs one.
    pub audience: Option<String>,
    /// Position of id and secret in the request.
    pub client_authentication: ClientAuthentication,
}

/// Position of a client's id and secret in the token request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuthentication {
    /// In the `Authorization` header, which every server must support.
    #[default]
    Basic,
    /// In the body, for servers that require it.
    Body,
}

impl ClientAuthentication {
    /// Returns its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            ClientAuthentication::Basic => "basic",
            ClientAuthentication::Body => "body",
        }
    }
}

/// Fingerprint of credentials, valid while the process runs. It is a salted hash, so that a reader of the
/// fingerprint cannot test guesses of the credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CredentialsFingerprint([u8; SHA256_OUTPUT_LEN]);

static SALT: LazyLock<[u8; SHA256_OUTPUT_LEN]> = LazyLock::new(random_bytes);

impl fmt::Display for CredentialsFingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// The decrypted data is not valid credentials. The message never quotes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the stored credentials")]
pub struct Unreadable;

impl Credentials {
    /// Reads the output of [`to_stored`](Credentials::to_stored).
    pub fn open(json: &[u8]) -> Result<Credentials, Unreadable> {
        // Error messages of serde may quote the data.
        serde_json::from_slice(json).map_err(|_| Unreadable)
    }

    /// Returns the credentials as bytes, to be sealed.
    pub fn to_stored(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    /// Returns true if there is nothing to seal.
    pub fn is_empty(&self) -> bool {
        self.auth.is_none() && self.client_certificate.is_none()
    }

    /// Returns the fingerprint of these credentials.
    pub fn fingerprint(&self) -> CredentialsFingerprint {
        let mut context = Context::new(&SHA256);
        context.update(&*SALT);
        context.update(&self.to_stored());
        let hash = context.finish();
        CredentialsFingerprint(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

/// Returns the header value for Basic authentication (RFC 7617).
pub fn basic(username: &str, password: &str) -> HeaderValue {
    let pair = BASE64_STANDARD.encode(format!("{username}:{password}"));
    secret_value(&format!("Basic {pair}")).expect("base64 is visible ASCII")
}

/// Returns the header value for a bearer token, or `None` if the token does not fit into a header.
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
    fn credentials_are_read_back_and_never_shown() {
        for credentials in every_kind() {
            let again = Credentials::open(&credentials.to_stored()).expect("what was kept");
            assert!(again == credentials);
            assert_eq!(again.fingerprint(), credentials.fingerprint());
            assert_ne!(again.fingerprint(), Credentials::default().fingerprint());
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
    fn headers_follow_the_standards_and_are_not_logged() {
        // The example of RFC 7617, section 2.
        let value = basic("Aladdin", "open sesame");
        assert_eq!(value, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(value.is_sensitive());
        // The example of section 2.1.
        assert_eq!(basic("test", "123\u{a3}"), "Basic dGVzdDoxMjPCow==");
        assert_eq!(bearer("abc.def").expect("a token"), "Bearer abc.def");
        for token in ["", "a b", "a\r\nb", "ä", "a\0"] {
            assert_eq!(bearer(token), None, "{token:?}");
        }
    }
}
