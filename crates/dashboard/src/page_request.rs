//! One request to a page.
//!
//! [`PageRequest`] holds the visitor, the path and the query, builds links, and calls the API in the visitor's name.
//! Pages get all their data through it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use posthaste_api::auth::Caller;
use posthaste_api::code::Code;
use posthaste_api::in_process::InProcessRequest;
use posthaste_api::problem::Problem;
use posthaste_api::request_source::RequestSource;
use posthaste_api::route::Verb;
use posthaste_core::id::TenantId;
use posthaste_core::time::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::auth::{AuthMethod, Visitor};
use super::page::{ActionResult, FlashMessage};
use super::state::{Dashboard, Site};

/// Parameters in a path: name and value.
pub(super) type PathParams = Vec<(&'static str, String)>;

/// One request to a page.
#[derive(Clone)]
pub(super) struct PageRequest {
    /// Shared state of the dashboard.
    pub(super) dashboard: Arc<Dashboard>,
    /// The authenticated visitor.
    pub(super) visitor: Arc<Visitor>,
    /// The tenant whose page it is; `None` for pages about the whole server.
    pub(super) tenant: Option<TenantId>,
    /// Parameters in the path.
    pub(super) path_params: PathParams,
    /// The complete path.
    pub(super) path: String,
    /// Query parameters.
    pub(super) query: Vec<(String, String)>,
    /// Source of the request, for the audit log.
    pub(super) source: RequestSource,
    /// Current time.
    pub(super) now: Timestamp,
    /// A value that never changes and that the page has read before. Live updates of the page do not read it again.
    pub(super) cached_value: Arc<OnceLock<String>>,
}

impl PageRequest {
    /// Returns a parameter of the path.
    ///
    /// # Panics
    /// If the page's path has no such parameter.
    pub(super) fn path_param(&self, name: &str) -> &str {
        let found = self.path_params.iter().find(|(param, _)| *param == name);
        &found
            .expect("a page reads only parameters of its own path")
            .1
    }

    /// Returns a query parameter, trimmed; empty if it is missing.
    pub(super) fn query(&self, name: &str) -> &str {
        let found = self.query.iter().find(|(param, _)| param == name);
        found.map_or("", |(_, text)| text.trim())
    }

    /// Returns the tenant whose page this is.
    ///
    /// # Panics
    /// If the page does not belong to a tenant.
    pub(super) fn tenant(&self) -> &TenantId {
        self.tenant.as_ref().expect("the page belongs to a tenant")
    }

    /// Returns whether the visitor has an admin key.
    pub(super) fn is_admin(&self) -> bool {
        match self.visitor.caller {
            Caller::Admin(_) => true,
            Caller::Tenant(..) | Caller::Anonymous => false,
        }
    }

    /// Returns the site of the visitor: dashboard or portal.
    pub(super) fn site(&self) -> Site {
        match self.visitor.method {
            AuthMethod::Portal { .. } => Site::Portal,
            AuthMethod::Session { .. } | AuthMethod::Key(_) => Site::Dashboard,
        }
    }

    /// Returns whether the visitor signed in, so that the page offers to sign out.
    pub(super) fn has_session(&self) -> bool {
        matches!(self.visitor.method, AuthMethod::Session { .. })
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
    pub(super) fn tenant_link(&self, path: &str) -> String {
        self.link_for_tenant(self.tenant().as_str(), path)
    }

    /// Builds a link to a page of a given tenant.
    pub(super) fn link_for_tenant(&self, tenant: &str, path: &str) -> String {
        let base = self.visitor.base();
        match self.is_portal() {
            true => format!("{base}{path}"),
            // A tenant id contains no characters that would need escaping in a path.
            false => format!("{base}/t/{tenant}{path}"),
        }
    }

    /// Redirects to a page of this tenant, which shows the message.
    pub(super) fn redirect(
        &self,
        path: &str,
        message: FlashMessage,
    ) -> Result<ActionResult, Problem> {
        Ok(ActionResult::Redirect(self.tenant_link(path), message))
    }

    /// Builds a link to a page that exists for the whole site and for each tenant, such as `/alerts`.
    pub(super) fn scope_link(&self, path: &str) -> String {
        match self.tenant {
            None => self.link(path),
            Some(_) => self.tenant_link(path),
        }
    }

    /// Calls the API with `GET` on a path that exists for the whole server and for each tenant, such as `/stats`.
    pub(super) async fn scope_get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        match self.tenant {
            None => self.get(&format!("/v1{path}")).await,
            Some(_) => self.tenant_get(path).await,
        }
    }

    /// Calls the API with `GET` on a path below the tenant, such as `/endpoints?limit=20`.
    pub(super) async fn tenant_get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        let tenant = self.tenant();
        self.get(&format!("/v1/tenants/{tenant}{path}")).await
    }

    /// Calls the API with `GET` on a path.
    pub(super) async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, Problem> {
        self.call(Verb::Get, target, None).await
    }

    /// Calls the API with this verb on a path below the tenant and returns its answer.
    pub(super) async fn tenant_call<T: DeserializeOwned>(
        &self,
        verb: Verb,
        path: &str,
        document: Option<Value>,
    ) -> Result<T, Problem> {
        let tenant = self.tenant();
        let target = format!("/v1/tenants/{tenant}{path}");
        self.call(verb, &target, document).await
    }

    /// Calls the API as the visitor. An empty answer is read as `null`.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        verb: Verb,
        target: &str,
        document: Option<Value>,
    ) -> Result<T, Problem> {
        let body = document.map(|document| document.to_string().into());
        self.call_with(verb, target, body).await
    }

    /// Calls the API as the visitor, with a body that is JSON text already.
    pub(super) async fn call_with<T: DeserializeOwned>(
        &self,
        verb: Verb,
        target: &str,
        body: Option<Bytes>,
    ) -> Result<T, Problem> {
        let call = InProcessRequest {
            caller: self.visitor.caller.clone(),
            source: self.source.clone(),
            verb,
            target: target.to_owned(),
            body,
        };
        let response = self.dashboard.app.ask(call).await?;
        let body: &[u8] = match response.is_empty() {
            true => b"null",
            false => &response,
        };
        serde_json::from_slice(body).map_err(|error| Problem::internal(&error))
    }
}

/// The error for an unknown page.
pub(super) fn page_not_found() -> Problem {
    let detail = "Page not found. Check the address, or start from the overview.";
    Problem::new(Code::NotFound, detail)
}
