//! Who visits, and what other sites may not do in their name.
//!
//! A visitor comes with a session, which signing in with a key made and whose cookie no script can read
//! and no other site can send; with a link to a portal, whose token stands in the path, so that it works
//! within a frame where cookies do not; or with a key in the head, as scripts do. What is behind them is
//! looked up at every visit: a key that was revoked or a link that has ended opens nothing any more.
//!
//! Whoever does something proves that a page of ours asked for it: by a token that only our pages know,
//! and by the site the browser says the request comes from.

use std::sync::Arc;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use http::header::{COOKIE, HOST, ORIGIN};
use http::{HeaderMap, Method};
use posthaste_core::id::PassId;
use posthaste_store::{Holder, KeyHash, Pass};
use ring::digest::{SHA256, digest};

use super::Dashboard;
use super::form::Form;
use crate::api::auth::{Caller, Credential, bearer};
use crate::api::code::Code;
use crate::api::origin;
use crate::api::pace::Meter;
use crate::api::problem::Problem;
use crate::api::settings::Pace;
use crate::chance::hash_key;

/// Where the dashboard is.
pub(super) const HOME: &str = "/dashboard";
/// Where portals are.
pub(super) const PORTAL: &str = "/portal";
/// The cookie of a session, where nobody speaks TLS.
const COOKIE_NAME: &str = "posthaste_session";
/// The cookie of a session over TLS. By its beginning browsers know that only this host may set it, and
/// only over TLS.
const SECURE_COOKIE_NAME: &str = "__Host-posthaste_session";
/// How often one link may be used: more than a roomful of people with it do, far less than a machine could.
const LINK_PACE: Pace = Pace {
    per_second: 50,
    burst: 500,
};
/// Of how many links it is remembered how often they were used.
pub(super) const MAX_KNOWN_LINKS: usize = 10_000;
/// The longest token that is looked at.
const MAX_TOKEN_CHARS: usize = 128;
/// The field of a form that proves where it comes from.
pub(super) const CSRF_FIELD: &str = "csrf";

/// Who visits.
pub(super) struct Visitor {
    /// Who that is to the API.
    pub(super) caller: Caller,
    /// How they came in.
    pub(super) door: Door,
}

/// How somebody came in.
pub(super) enum Door {
    /// Signed in: the token of the session.
    Session {
        /// What the cookie holds.
        token: String,
        /// What is stored of it.
        pass: PassId,
    },
    /// By a link.
    Portal {
        /// What stands in the path.
        token: String,
    },
    /// With a key in the head of the request, which has this hash.
    Key(KeyHash),
}

impl Visitor {
    /// What every link begins with.
    pub(super) fn base(&self) -> String {
        match &self.door {
            Door::Session { .. } | Door::Key(_) => HOME.to_owned(),
            Door::Portal { token } => format!("{PORTAL}/{token}"),
        }
    }

    /// What a form carries, so that it can be told from one of another site's.
    pub(super) fn csrf(&self) -> String {
        match &self.door {
            Door::Session { token, .. } | Door::Portal { token } => csrf_of(token),
            Door::Key(_) => String::new(),
        }
    }
}

fn csrf_of(token: &str) -> String {
    let proof = digest(&SHA256, format!("form of {token}").as_bytes());
    BASE64_URL_SAFE_NO_PAD.encode(proof.as_ref())
}

/// Finds out who visits the dashboard.
pub(super) async fn at_dashboard(
    dashboard: &Dashboard,
    headers: &HeaderMap,
) -> Result<Visitor, Problem> {
    let app = &dashboard.app;
    if let Some(key) = bearer(headers) {
        let hash = hash_key(key);
        return Ok(Visitor {
            caller: app.holder_of(hash).await?,
            door: Door::Key(hash),
        });
    }
    let name = cookie_name(is_secure(dashboard, headers));
    let token = cookie(headers, name).ok_or_else(Problem::unauthorized)?;
    by_session(dashboard, token).await
}

/// Whose session this is.
pub(super) async fn by_session(dashboard: &Dashboard, token: &str) -> Result<Visitor, Problem> {
    let pass = pass_of(dashboard, token).await?;
    match pass.holder {
        // Asked anew each time: with its key a session ends.
        Holder::Key(hash) => Ok(Visitor {
            caller: dashboard.app.holder_of(hash).await?,
            door: Door::Session {
                token: token.to_owned(),
                pass: pass.id,
            },
        }),
        // A link opens a portal, and no more.
        Holder::Tenant(_) => Err(Problem::unauthorized()),
    }
}

/// Finds out who visits a portal.
pub(super) async fn at_portal(dashboard: &Dashboard, token: &str) -> Result<Visitor, Problem> {
    let pass = pass_of(dashboard, token).await?;
    match pass.holder {
        Holder::Tenant(tenant) => {
            pace(dashboard, pass.hash)?;
            Ok(Visitor {
                caller: Caller::Tenant(Credential::Link(pass.id), tenant),
                door: Door::Portal {
                    token: token.to_owned(),
                },
            })
        }
        Holder::Key(_) => Err(Problem::unauthorized()),
    }
}

/// Refuses a link that is used too often, as a key would be.
fn pace(dashboard: &Dashboard, link: KeyHash) -> Result<(), Problem> {
    let meter = match dashboard.links.find(&link) {
        Ok(meter) => meter,
        Err(asked) => {
            let meter = Arc::new(Meter::default());
            dashboard.links.put(asked, link, meter.clone());
            meter
        }
    };
    let now = dashboard.app.clock.now().tick;
    meter.spend(now, LINK_PACE, 1).map_err(|wait| {
        let detail = "This link is used too often. Wait a little, and load the page again.";
        Problem::new(Code::RateLimited, detail).after(wait)
    })
}

/// The pass that a token is of.
async fn pass_of(dashboard: &Dashboard, token: &str) -> Result<Pass, Problem> {
    if token.is_empty() || token.len() > MAX_TOKEN_CHARS {
        return Err(Problem::unauthorized());
    }
    let app = &dashboard.app;
    let pass = app.store.pass(app.clock.wall(), hash_key(token)).await?;
    pass.ok_or_else(Problem::unauthorized)
}

/// Refuses what another site made a browser do.
pub(super) fn check_form(
    dashboard: &Dashboard,
    visitor: &Visitor,
    headers: &HeaderMap,
    form: &Form,
) -> Result<(), Problem> {
    match &visitor.door {
        // No browser sends a key by itself.
        Door::Key(_) => return Ok(()),
        Door::Session { .. } | Door::Portal { .. } => {}
    }
    check_origin(dashboard, headers)?;
    let given = digest(&SHA256, form.raw(CSRF_FIELD).as_bytes());
    let wanted = digest(&SHA256, visitor.csrf().as_bytes());
    // Hashes are compared, so that how long it takes tells nothing.
    if given.as_ref() != wanted.as_ref() {
        let detail =
            "The form has gone stale. Go back, load the page again, and repeat what you did.";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    Ok(())
}

/// Refuses a request that a browser says another site made.
pub(super) fn check_origin(dashboard: &Dashboard, headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let refused = Err(Problem::new(
        Code::Forbidden,
        "The request comes from another site. If this server is reached through a proxy, set `public_url`.",
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
    // Whoever is on the way can make up a page of ours that came without TLS.
    let fits_scheme = scheme == "https" || !is_secure(dashboard, headers);
    let is_ours = match (&dashboard.settings.public_url, text(HOST.as_str())) {
        (Some(own), _) if own == origin => true,
        (_, Some(host)) => fits_scheme && authority.eq_ignore_ascii_case(host),
        (_, None) => false,
    };
    match is_ours {
        true => Ok(()),
        false => refused,
    }
}

/// Whether a browser came here from another site, so that it has left the cookie of a session at home:
/// it brings it if it asks again from here.
pub(super) fn comes_from_elsewhere(method: &Method, headers: &HeaderMap) -> bool {
    let is = |name: &str, wanted: &[u8]| headers.get(name).is_some_and(|value| value == wanted);
    method == Method::GET
        && is("sec-fetch-site", b"cross-site")
        && is("sec-fetch-mode", b"navigate")
        && !headers.contains_key(COOKIE)
}

/// Whether the browser speaks TLS with somebody before us.
pub(super) fn is_secure(dashboard: &Dashboard, headers: &HeaderMap) -> bool {
    let public_url = dashboard.settings.public_url.as_deref();
    public_url.is_some_and(|url| url.starts_with("https://")) || origin::is_secure(headers)
}

/// The cookie that holds a session. Over TLS no other is looked at: a neighbour of this host, or whoever is
/// on the way where nobody speaks TLS, could have set it, and the visitor would act in his name.
pub(super) fn cookie_name(is_secure: bool) -> &'static str {
    match is_secure {
        true => SECURE_COOKIE_NAME,
        false => COOKIE_NAME,
    }
}

/// The value of a cookie.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(COOKIE).into_iter();
    let mut pairs = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(given, _)| *given == name)
        .map(|(_, value)| value)
}
