//! One request to a page: [`PageRequest`] holds the visitor, the path and the query, builds links, and calls the API in
//! the visitor's name.

use std::sync::{Arc, OnceLock};

use http::Uri;
use posthaste_api::auth::Caller;
use posthaste_api::code::Code;
use posthaste_api::inside::Asked;
use posthaste_api::origin::Origin;
use posthaste_api::problem::Problem;
use posthaste_api::route::Verb;
use posthaste_core::id::TenantId;
use posthaste_core::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::login::{LoginMethod, Visitor};
use super::{Dashboard, Site};

/// One request to a page.
#[derive(Clone)]
pub(super) struct PageRequest {
    /// Shared state of the dashboard.
    pub(super) dashboard: Arc<Dashboard>,
    /// The authenticated visitor.
    pub(super) visitor: Arc<Visitor>,
    /// The tenant whose page it is; `None` for pages about the whole server.
    pub(super) tenant: Option<TenantId>,
    /// Parameters in the path: name and value.
    pub(super) names: Vec<(&'static str, String)>,
    /// The complete path.
    pub(super) path: String,
    /// Query parameters.
    pub(super) query: Vec<(String, String)>,
    /// Address and path of access of the request.
    pub(super) origin: Origin,
    /// Current time.
    pub(super) now: Timestamp,
    /// A value that never changes and that the page has read before. Live updates of the page do not read it again.
    pub(super) known: Arc<OnceLock<String>>,
}

impl PageRequest {
    /// Returns a parameter of the path.
    ///
    /// # Panics
    /// If the page's path has no such parameter.
    pub(super) fn name(&self, name: &str) -> &str {
        let found = self.names.iter().find(|(given, _)| *given == name);
        &found.expect("pages ask only for what their path has").1
    }

    /// Returns a query parameter, trimmed; empty if it is missing.
    pub(super) fn query(&self, name: &str) -> &str {
        let found = self.query.iter().find(|(given, _)| given == name);
        found.map_or("", |(_, text)| text.trim())
    }

    /// Returns the tenant whose page this is.
    ///
    /// # Panics
    /// If the page does not belong to a tenant.
    pub(super) fn tenant(&self) -> &TenantId {
        self.tenant.as_ref().expect("the page is a tenant's")
    }

    /// Returns whether the visitor has an admin key.
    pub(super) fn is_admin(&self) -> bool {
        match self.visitor.caller {
            Caller::Admin(_) => true,
            Caller::Tenant(..) | Caller::Nobody => false,
        }
    }

    /// Returns the site of the visitor: dashboard or portal.
    pub(super) fn site(&self) -> Site {
        match self.visitor.door {
            LoginMethod::Portal { .. } => Site::Portal,
            LoginMethod::Session { .. } | LoginMethod::Key(_) => Site::Dashboard,
        }
    }

    /// Returns whether the visitor came by a portal link.
    pub(super) fn is_portal(&self) -> bool {
        self.site() == Site::Portal
    }

    /// Builds a link to a page of the whole site, such as `/tenants`.
    pub(super) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.visitor.base())
    }

    /// Builds a link to a page of this tenant, such as `/endpoints`.
    pub(super) fn here(&self, path: &str) -> String {
        self.at(self.tenant().as_str(), path)
    }

    /// Builds a link to a page of a given tenant.
    pub(super) fn at(&self, tenant: &str, path: &str) -> String {
        let base = self.visitor.base();
        match self.is_portal() {
            true => format!("{base}{path}"),
            // A tenant id contains no characters that would need escaping in a path.
            false => format!("{base}/t/{tenant}{path}"),
        }
    }

    /// Calls the API with `GET` on a path below the tenant, such as `/endpoints?limit=20`.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        let tenant = self.tenant();
        self.read(&format!("/v1/tenants/{tenant}{path}")).await
    }

    /// Calls the API with `GET` on a path.
    pub(super) async fn read<T: DeserializeOwned>(&self, target: &str) -> Result<T, Problem> {
        self.ask(Verb::Get, target, None).await
    }

    /// Calls the API with this verb on a path below the tenant and returns its answer.
    pub(super) async fn act<T: DeserializeOwned>(
        &self,
        verb: Verb,
        path: &str,
        document: Option<Value>,
    ) -> Result<T, Problem> {
        let tenant = self.tenant();
        let target = format!("/v1/tenants/{tenant}{path}");
        self.ask(verb, &target, document).await
    }

    /// Calls the API as the visitor. An empty answer is read as `null`.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        verb: Verb,
        target: &str,
        document: Option<Value>,
    ) -> Result<T, Problem> {
        let asked = Asked {
            caller: self.visitor.caller.clone(),
            origin: self.origin.clone(),
            verb,
            target: target.to_owned(),
            document,
        };
        let answer = self.dashboard.app.ask(asked).await?;
        let answer = if answer.is_empty() {
            b"null".as_slice()
        } else {
            &answer
        };
        serde_json::from_slice(answer).map_err(|error| Problem::internal(&error))
    }
}

/// Escapes a text for use in a path or a query.
pub(super) fn escaped(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Builds a query of the non-empty fields, beginning with `?`; empty if there are none.
pub(super) fn query_of<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, text) in fields {
        if !text.is_empty() {
            query.append_pair(name, text);
        }
    }
    match query.finish() {
        query if query.is_empty() => query,
        query => format!("?{query}"),
    }
}

/// Reads the query parameters. If a name occurs twice, the first one counts.
pub(super) fn read_query(uri: &Uri) -> Vec<(String, String)> {
    /// Maximum number of parameters that are read.
    const MAX_FIELDS: usize = 64;
    let raw = uri.query().unwrap_or_default();
    let fields = url::form_urlencoded::parse(raw.as_bytes());
    fields.into_owned().take(MAX_FIELDS).collect()
}

/// Matches a path against a pattern. Returns the parameters in it, or `None`.
pub(super) fn fits(pattern: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
    let mut names = Vec::new();
    let mut given = path.split('/');
    for wanted in pattern.split('/') {
        let given = given.next()?;
        let name = wanted
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'));
        match name {
            // A path parameter is an id, so it never contains escaped characters.
            Some(name) if is_plain(given) => names.push((name, given.to_owned())),
            Some(_) => return None,
            None if wanted == given => {}
            None => return None,
        }
    }
    given.next().is_none().then_some(names)
}

fn is_plain(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.bytes().all(allowed)
}

/// The error for an unknown page.
pub(super) fn no_such_page() -> Problem {
    let detail = "There is no such page. Check the address, or begin at the overview.";
    Problem::new(Code::NotFound, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_fits_a_pattern_part_by_part() {
        let fit = |path| fits("/endpoints/{endpoint}/pause", path);
        let names = fit("/endpoints/ep_1/pause").expect("it fits");
        assert_eq!(names, [("endpoint", "ep_1".to_owned())]);
        for other in [
            "/endpoints//pause",
            "/endpoints/ep_1",
            "/endpoints/ep_1/pause/",
            "/endpoints/ep%2f1/pause",
            "/endpoints/a b/pause",
        ] {
            assert_eq!(fit(other), None, "{other}");
        }
        assert_eq!(fits("", ""), Some(Vec::new()));
    }

    #[test]
    fn a_query_holds_only_what_is_filled_in() {
        let query = query_of([("status", "failed"), ("type", ""), ("q", "a b&c")]);
        assert_eq!(query, "?status=failed&q=a+b%26c");
        assert_eq!(query_of([("status", "")]), "");
    }
}
