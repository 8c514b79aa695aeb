//! The token request of the OAuth 2.0 client credentials grant (RFC 6749, section 4.4).
//!
//! [`Grant`] is prepared once for an endpoint. Client id and secret go into the `Authorization` header or the body, as
//! configured. The secret is in no debug output.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use posthaste_core::address::Destination;
use posthaste_core::id::EndpointId;
use posthaste_egress::{PoolKey, Request};
use url::form_urlencoded::{Serializer, byte_serialize};

use super::response::MAX_RESPONSE_BYTES;
use crate::AGENT;
use crate::credentials::{ClientAuthentication, CredentialsFingerprint, OAuth2, basic};

/// Key of a cached token: the endpoint, and the credentials that it was fetched with.
pub(crate) type TokenKey = (EndpointId, CredentialsFingerprint);

/// Prepared token request of one endpoint.
pub(crate) struct Grant {
    pub(crate) key: TokenKey,
    /// Separate from all other connections, including those to the endpoint itself.
    pub(crate) pool_key: PoolKey,
    destination: Destination,
    headers: HeaderMap,
    body: Bytes,
}

impl Grant {
    /// Prepares the token request of `endpoint`.
    pub(crate) fn new(
        endpoint: EndpointId,
        mark: CredentialsFingerprint,
        oauth2: &OAuth2,
        destination: Destination,
    ) -> Grant {
        let mut headers = HeaderMap::new();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, AGENT);
        let mut body = Serializer::new(String::new());
        body.append_pair("grant_type", "client_credentials");
        for (name, value) in [("scope", &oauth2.scope), ("audience", &oauth2.audience)] {
            if let Some(value) = value {
                body.append_pair(name, value);
            }
        }
        let (id, secret) = (&oauth2.client_id, &oauth2.client_secret);
        match oauth2.client_authentication {
            // RFC 6749, section 2.3.1: the id and the secret are each encoded before they are joined.
            ClientAuthentication::Basic => {
                let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                headers.insert(AUTHORIZATION, basic(&encoded(id), &encoded(secret)));
            }
            ClientAuthentication::Body => {
                body.append_pair("client_id", id);
                body.append_pair("client_secret", secret);
            }
        }
        Grant {
            key: (endpoint, mark),
            pool_key: PoolKey::new(&format!("{endpoint}/{mark}/token")),
            destination,
            headers,
            body: Bytes::from(body.finish()),
        }
    }

    /// Returns the HTTP request.
    pub(super) fn request(&self, time_limit: Duration) -> Request {
        Request {
            pool_key: self.pool_key.clone(),
            destination: self.destination.clone(),
            method: Method::POST,
            headers: self.headers.clone(),
            body: self.body.clone(),
            // The endpoint's client certificate is only for the endpoint's receiver.
            identity: None,
            keep_bytes: Some(MAX_RESPONSE_BYTES),
            time_limit,
            permit: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credentials;
    use base64::prelude::{BASE64_STANDARD, Engine};
    use posthaste_core::address::EgressRules;

    fn request(oauth2: &OAuth2) -> Request {
        let destination = Destination::parse(&oauth2.token_url, &EgressRules::default()).unwrap();
        let mark = Credentials::default().fingerprint();
        Grant::new(EndpointId(1), mark, oauth2, destination).request(Duration::from_secs(1))
    }

    fn oauth2(client_authentication: ClientAuthentication) -> OAuth2 {
        OAuth2 {
            token_url: "https://a.example/token".to_owned(),
            client_id: "a b:c".to_owned(),
            client_secret: "p&ss=w%rd:+".to_owned(),
            scope: Some("hooks.write other".to_owned()),
            audience: Some("https://b.example/?x=1&y".to_owned()),
            client_authentication,
        }
    }

    const GRANT: &str = "grant_type=client_credentials&scope=hooks.write+other&audience=https%3A%2F%2Fb.example%2F%3Fx%3D1%26y";

    #[test]
    fn id_and_secret_are_encoded_before_they_are_joined() {
        let request = request(&oauth2(ClientAuthentication::Basic));
        let header = &request.headers[AUTHORIZATION];
        assert!(header.is_sensitive());
        let encoded = header.to_str().unwrap().strip_prefix("Basic ").unwrap();
        let decoded = BASE64_STANDARD.decode(encoded).unwrap();
        assert_eq!(decoded, b"a+b%3Ac:p%26ss%3Dw%25rd%3A%2B");
        assert_eq!(request.body, GRANT.as_bytes());
        assert_eq!(
            request.headers[CONTENT_TYPE],
            "application/x-www-form-urlencoded"
        );
        assert_eq!(request.headers[ACCEPT], "application/json");
    }

    #[test]
    fn id_and_secret_can_be_in_the_body() {
        let request = request(&oauth2(ClientAuthentication::Body));
        assert!(!request.headers.contains_key(AUTHORIZATION));
        let expected = format!("{GRANT}&client_id=a+b%3Ac&client_secret=p%26ss%3Dw%25rd%3A%2B");
        assert_eq!(request.body, expected.as_bytes());
    }

    #[test]
    fn absent_settings_are_not_sent() {
        let plain = OAuth2 {
            scope: None,
            audience: None,
            ..oauth2(ClientAuthentication::Basic)
        };
        assert_eq!(request(&plain).body, "grant_type=client_credentials");
    }
}
