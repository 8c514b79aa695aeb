//! Confirmation of an owner's address by the link in an email.
//!
//! The link contains a token with 256 random bits, of which only the hash is stored. Looking at it changes nothing, because
//! link scanners of mail programs open every link. No login is needed: a person who can read the email owns the address.

use std::sync::Arc;

use posthaste_notify::notifications::confirmations::token_hash;
use posthaste_store::{AuditOutcome, ConfirmationRequest};

use super::App;
use super::audit_writer::AuditedRequest;
use super::auth::Caller;
use super::problem::Problem;
use super::request_source::RequestSource;

pub use posthaste_notify::notifications::confirmations::CONFIRMATION_PATH;

/// Action in the audit log.
const ACTION: &str = "confirm_owner_email";
/// Maximum length of a token that is looked up.
const MAX_TOKEN_CHARS: usize = 128;

impl App {
    /// Returns the confirmation that a token is for; `None` if it is unknown, was used or has expired.
    pub async fn confirmation(&self, token: &str) -> Result<Option<ConfirmationRequest>, Problem> {
        if token.len() > MAX_TOKEN_CHARS {
            return Ok(None);
        }
        let now = self.clock.wall();
        Ok(self.store.confirmation(now, token_hash(token)).await?)
    }

    /// Confirms the address that a token is for. Returns false if there is nothing to confirm any more.
    pub async fn confirm_owner(
        self: &Arc<App>,
        token: &str,
        source: &RequestSource,
    ) -> Result<bool, Problem> {
        let Some(request) = self.confirmation(token).await? else {
            return Ok(false);
        };
        let tenant = request.tenant;
        let path = format!("/v1/tenants/{tenant}/endpoints/{}", request.endpoint);
        let caller = Caller::Anonymous;
        let audited =
            AuditedRequest::begin(self, ACTION, &caller, Some(tenant), source, &path).await?;
        let now = self.clock.wall();
        let confirmed = self.store.confirm_owner(now, token_hash(token)).await?;
        let is_confirmed = confirmed.is_some_and(|endpoints| endpoints > 0);
        let outcome = match is_confirmed {
            true => AuditOutcome::Done,
            false => AuditOutcome::Refused("not_found".to_owned()),
        };
        audited.end(outcome, None).await;
        Ok(is_confirmed)
    }
}
