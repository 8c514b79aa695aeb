//! Authentication of visitors, and protection against cross-site requests.
//!
//! A [`Visitor`] is authenticated in one of three ways ([`AuthMethod`]):
//! - by a session. Signing in with a key creates it. No script can read its cookie, and no other site can make the
//!   browser send it.
//! - by a portal link. Its token is part of the path, so that it works inside a frame, where cookies do not.
//! - by a key in a request header, as scripts do it.
//!
//! The key or link is looked up at every request, so a revoked key or an expired link stops working at once.
//!
//! Every form must prove that it comes from one of our pages: by a CSRF token that only our pages know, and by the
//! origin that the browser reports.

use std::sync::Arc;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use http::header::{COOKIE, HOST, ORIGIN};
use http::{HeaderMap, Method};
use posthaste_api::auth::{Caller, Credential, bearer};
use posthaste_api::code::Code;
use posthaste_api::hash_key;
use posthaste_api::problem::Problem;
use posthaste_api::rate_limit::RateLimiter;
use posthaste_api::request_source::{self, RequestSource};
use posthaste_api::settings::RequestRate;
use posthaste_core::id::SessionId;
use posthaste_store::{KeyHash, LoginSession, SessionIdentity};
use ring::digest::{SHA256, digest};

use super::form::Form;
use super::state::Dashboard;
use super::urls::{DASHBOARD_PATH, PORTAL_PATH};

/// Name of the session cookie without TLS.
const COOKIE_NAME: &str = "posthaste_session";
/// Name of the session cookie over TLS. The prefix `__Host-` makes browsers accept it only from this host and only
/// over TLS.
const SECURE_COOKIE_NAME: &str = "__Host-posthaste_session";
/// Rate limit of one portal link: more than a group of people sharing it needs, far less than a script could send.
const LINK_RATE_LIMIT: RequestRate = RequestRate {
    per_second: 50,
    burst: 500,
};
/// Maximum length of a token that is looked up.
const MAX_TOKEN_CHARS: usize = 128;
/// Name of the form field that holds the CSRF token.
pub(super) const CSRF_FIELD: &str = "csrf";

/// An authenticated visitor.
pub(super) struct Visitor {
    /// The visitor as the API's caller.
    pub(super) caller: Caller,
    /// The means of authentication.
    pub(super) method: AuthMethod,
}

/// The means by which a visitor authenticated.
pub(super) enum AuthMethod {
    /// A session cookie.
    Session {
        /// The token in the cookie.
        token: String,
        /// The id of the stored session.
        id: SessionId,
    },
    /// A portal link.
    Portal {
        /// The token in the path.
        token: String,
    },
    /// A key in a request header, identified by its hash.
    Key(KeyHash),
}

impl Visitor {
    /// Returns the path that all links of this visitor begin with.
    pub(super) fn base(&self) -> String {
        match &self.method {
            AuthMethod::Session { .. } | AuthMethod::Key(_) => DASHBOARD_PATH.to_owned(),
            AuthMethod::Portal { token } => format!("{PORTAL_PATH}/{token}"),
        }
    }

    /// Returns the CSRF token that this visitor's forms carry.
    pub(super) fn csrf_token(&self) -> String {
        match &self.method {
            AuthMethod::Session { token, .. } | AuthMethod::Portal { token } => {
                csrf_token_of(token)
            }
            AuthMethod::Key(_) => String::new(),
        }
    }
}

fn csrf_token_of(token: &str) -> String {
    let hash = digest(&SHA256, format!("form of {token}").as_bytes());
    BASE64_URL_SAFE_NO_PAD.encode(hash.as_ref())
}

/// Authenticates a visitor of the dashboard.
pub(super) async fn authenticate_dashboard(
    dashboard: &Dashboard,
    headers: &HeaderMap,
    source: &RequestSource,
) -> Result<Visitor, Problem> {
    let app = &dashboard.app;
    if let Some(key) = bearer(headers) {
        let hash = hash_key(key);
        return Ok(Visitor {
            caller: app.authenticate_key(hash, source).await?,
            method: AuthMethod::Key(hash),
        });
    }
    let name = cookie_name(is_secure(dashboard, headers));
    let token = cookie(headers, name).ok_or_else(Problem::unauthorized)?;
    authenticate_session(dashboard, token).await
}

/// Authenticates a visitor by session token.
pub(super) async fn authenticate_session(
    dashboard: &Dashboard,
    token: &str,
) -> Result<Visitor, Problem> {
    let session = find_session(dashboard, token).await?;
    match session.holder {
        // The key is looked up at every request: a session ends when its key is revoked.
        SessionIdentity::Key(hash) => Ok(Visitor {
            caller: dashboard.app.caller_with_key(hash).await?,
            method: AuthMethod::Session {
                token: token.to_owned(),
                id: session.id,
            },
        }),
        // A portal link opens only the portal, not the dashboard.
        SessionIdentity::Tenant(_) => Err(Problem::unauthorized()),
    }
}

/// Authenticates a visitor of a portal.
pub(super) async fn authenticate_portal(
    dashboard: &Dashboard,
    token: &str,
) -> Result<Visitor, Problem> {
    let session = find_session(dashboard, token).await?;
    match session.holder {
        SessionIdentity::Tenant(tenant) => {
            check_link_rate(dashboard, session.hash)?;
            Ok(Visitor {
                caller: Caller::Tenant(Credential::Link(session.id), tenant),
                method: AuthMethod::Portal {
                    token: token.to_owned(),
                },
            })
        }
        SessionIdentity::Key(_) => Err(Problem::unauthorized()),
    }
}

/// Refuses a portal link that exceeds its rate limit, as the API does with a key.
fn check_link_rate(dashboard: &Dashboard, link: KeyHash) -> Result<(), Problem> {
    let limiter = match dashboard.link_limiters.find(&link) {
        Ok(limiter) => limiter,
        Err(miss) => {
            let limiter = Arc::new(RateLimiter::default());
            dashboard.link_limiters.put(miss, link, limiter.clone());
            limiter
        }
    };
    let now = dashboard.app.clock.now().tick;
    limiter.spend(now, LINK_RATE_LIMIT, 1).map_err(|wait| {
        let detail = "Too many requests with this link. Wait a moment, then reload the page.";
        Problem::new(Code::RateLimited, detail).after(wait)
    })
}

/// Looks up the stored session or portal link of a token.
async fn find_session(dashboard: &Dashboard, token: &str) -> Result<LoginSession, Problem> {
    if token.is_empty() || token.len() > MAX_TOKEN_CHARS {
        return Err(Problem::unauthorized());
    }
    let app = &dashboard.app;
    let session = app.store.session(app.clock.wall(), hash_key(token)).await?;
    session.ok_or_else(Problem::unauthorized)
}

/// Refuses a form that another site made the browser send.
pub(super) fn check_form(
    dashboard: &Dashboard,
    visitor: &Visitor,
    headers: &HeaderMap,
    form: &Form,
) -> Result<(), Problem> {
    match &visitor.method {
        // Browsers do not send a key in a header unless a script of ours does.
        AuthMethod::Key(_) => return Ok(()),
        AuthMethod::Session { .. } | AuthMethod::Portal { .. } => {}
    }
    check_origin(dashboard, headers)?;
    let actual = digest(&SHA256, form.raw(CSRF_FIELD).as_bytes());
    let expected = digest(&SHA256, visitor.csrf_token().as_bytes());
    // Comparing hashes keeps the time of the comparison from revealing the token.
    if actual.as_ref() != expected.as_ref() {
        let detail = "The form has expired. Go back, reload the page and submit it again.";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    Ok(())
}

/// Refuses a request whose headers say that another site made the browser send it.
pub(super) fn check_origin(dashboard: &Dashboard, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let refused = Err(Problem::new(
        Code::Forbidden,
        "Cross-site request rejected. If this server is behind a proxy, set `public_url`.",
    ));
    if text("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        return refused;
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let Ok(origin) = origin.to_str() else {
        return refused;
    };
    let Some((scheme, authority)) = origin.split_once("://") else {
        return refused;
    };
    // Over plain HTTP an attacker in the network could forge one of our pages, so its origin is not trusted.
    let is_scheme_trusted = scheme == "https" || !is_secure(dashboard, headers);
    let is_ours = match (&dashboard.settings.public_url, text(HOST.as_str())) {
        (Some(own), _) if own == origin => true,
        (_, Some(host)) => is_scheme_trusted && authority.eq_ignore_ascii_case(host),
        (_, None) => false,
    };
    match is_ours {
        true => Ok(()),
        false => refused,
    }
}

/// Returns whether the browser followed a link from another site and therefore did not send the session cookie. It
/// sends the cookie when the same page is requested again from here.
pub(super) fn is_cross_site_navigation(method: &Method, headers: &HeaderMap) -> bool {
    let is = |name: &str, expected: &[u8]| headers.get(name).is_some_and(|value| value == expected);
    method == Method::GET
        && is("sec-fetch-site", b"cross-site")
        && is("sec-fetch-mode", b"navigate")
        && !headers.contains_key(COOKIE)
}

/// Returns whether the browser uses TLS, according to `public_url` or to the `X-Forwarded-Proto` header of a proxy.
pub(super) fn is_secure(dashboard: &Dashboard, headers: &HeaderMap) -> bool {
    let public_url = dashboard.settings.public_url.as_deref();
    public_url.is_some_and(|url| url.starts_with("https://")) || request_source::is_secure(headers)
}

/// Returns the name of the session cookie. Over TLS only the `__Host-` cookie is read: another host of the same
/// domain, or an attacker in a network without TLS, could have set the other one, and the visitor would then act in
/// the attacker's session.
pub(super) fn cookie_name(is_secure: bool) -> &'static str {
    match is_secure {
        true => SECURE_COOKIE_NAME,
        false => COOKIE_NAME,
    }
}

/// Returns the value of a cookie.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(COOKIE).into_iter();
    let mut pairs = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(cookie, _)| *cookie == name)
        .map(|(_, value)| value)
}
