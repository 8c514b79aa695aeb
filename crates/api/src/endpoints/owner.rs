//! The owner of an endpoint: whether its email address is confirmed, and the emails that ask for a confirmation.
//!
//! An address that an admin key sets is trusted. One that a tenant's key or a portal link sets gets no email until its
//! owner has confirmed it, unless the tenant has it confirmed for another endpoint or the configuration allows its domain.

use axum::body::Body;
use http::Response;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{ActionInterface, ConfirmationRequest, ConfirmationResult, Endpoint};
use posthaste_telemetry::metrics::notification_counters::EmailOutcome;
use serde_json::Value;

use super::{answer_with, find};
use crate::App;
use crate::auth::Caller;
use crate::code::Code;
use crate::problem::Problem;
use crate::resources::OwnerEmailStatus;
use crate::route::Call;

/// Log target of this module.
const LOG_TARGET: &str = "posthaste::api::endpoints";
/// Name of the limit of emails in responses.
const DAILY_LIMIT: &str = "emails_per_day";

/// Returns the status of the owner's address; `None` without an address.
pub(super) fn status(app: &App, endpoint: &Endpoint) -> Option<OwnerEmailStatus> {
    let email = endpoint.owner_email.as_deref()?;
    let is_allowed = || app.settings.owner_emails.allowed_domains.allows(email);
    Some(match endpoint.owner_email_confirmed || is_allowed() {
        true => OwnerEmailStatus::Confirmed,
        false => OwnerEmailStatus::Pending,
    })
}

/// Sets whether the address of a new or changed endpoint is confirmed. `before` is its address before the change. Returns
/// true if its owner is to be asked.
pub(super) async fn decide(
    call: &Call,
    document: &Value,
    before: Option<&str>,
    endpoint: &mut Endpoint,
) -> Result<bool, Problem> {
    let Some(email) = endpoint.owner_email.clone() else {
        endpoint.owner_email_confirmed = false;
        return Ok(false);
    };
    let is_unchanged = before.is_some_and(|before| before.eq_ignore_ascii_case(&email));
    // The form of the dashboard always contains the address, so saving it does not say that the operator trusts it.
    let is_named =
        document.get("owner_email").is_some() && call.source.via != ActionInterface::Page;
    let is_trusted = match call.caller {
        Caller::Admin(_) => !is_unchanged || is_named,
        Caller::Tenant(..) | Caller::Anonymous => false,
    };
    if is_trusted {
        endpoint.owner_email_confirmed = true;
    } else if !is_unchanged {
        let tenant = endpoint.tenant.clone();
        let known = call.app.store.is_owner_confirmed(tenant, email);
        endpoint.owner_email_confirmed = known.await?;
    }
    let is_pending = status(&call.app, endpoint) == Some(OwnerEmailStatus::Pending);
    Ok(is_pending && !is_unchanged)
}

/// Requests a confirmation email for an endpoint that was stored. A failure does not undo the change: the caller sees that
/// the address is pending, and can request the email again.
pub(super) async fn ask(app: &App, endpoint: &Endpoint) {
    if !app.settings.owner_emails.sends_confirmations {
        return;
    }
    match request_email(app, endpoint).await {
        Ok(_) => {}
        Err(problem) => {
            let why = problem.detail;
            tracing::warn!(target: LOG_TARGET, endpoint = %endpoint.id, %why, "cannot request a confirmation email");
        }
    }
}

async fn request_email(app: &App, endpoint: &Endpoint) -> Result<ConfirmationResult, Problem> {
    let Some(recipient) = endpoint.owner_email.clone() else {
        return Err(nothing_to_confirm());
    };
    let request = ConfirmationRequest {
        tenant: endpoint.tenant.clone(),
        recipient,
        endpoint: endpoint.id,
    };
    let now = app.clock.wall();
    let limits = app.settings.owner_emails.limits;
    let result = app.store.request_confirmation(now, request, limits).await?;
    if let ConfirmationResult::LimitReached { is_first } = result {
        app.metrics.notifications.email(EmailOutcome::Limited);
        if is_first {
            let tenant = &endpoint.tenant;
            tracing::warn!(target: LOG_TARGET, %tenant, "dropping confirmation emails until 00:00 UTC: the tenant has reached a daily limit");
        }
    }
    app.metrics.notifications.ring();
    Ok(result)
}

/// `POST …/owner-email/confirmation`.
pub(super) async fn send_again(mut call: Call) -> Result<Response<Body>, Problem> {
    call.take_nothing().await?;
    let row = find(&call).await?;
    let app = &call.app;
    if status(app, &row.endpoint) != Some(OwnerEmailStatus::Pending) {
        return Err(nothing_to_confirm());
    }
    if !app.settings.owner_emails.sends_confirmations {
        let detail = "This server sends no confirmation emails: the operator must set mail.server and public_url.";
        return Err(Problem::new(Code::WrongState, detail));
    }
    let now = app.clock.wall();
    match request_email(app, &row.endpoint).await? {
        ConfirmationResult::Queued => answer_with(&call, &row),
        ConfirmationResult::NoSuchTenant => Err(nothing_to_confirm()),
        ConfirmationResult::TooSoon(at) => {
            let detail = format!(
                "An address gets at most one confirmation email per day. The next one can be sent at {at}."
            );
            Err(Problem::new(Code::RateLimited, detail).after(at.since(now)))
        }
        ConfirmationResult::LimitReached { is_first: _ } => {
            let detail =
                "The tenant has reached its daily limit of emails. The limit resets at 00:00 UTC.";
            let problem = Problem::new(Code::QuotaExceeded, detail).limited_by(DAILY_LIMIT);
            Err(problem.after(until_midnight(now)))
        }
    }
}

fn nothing_to_confirm() -> Problem {
    Problem::new(
        Code::WrongState,
        "The endpoint has no owner_email that is waiting for confirmation.",
    )
}

/// Returns the time until the next day (UTC) begins.
fn until_midnight(now: Timestamp) -> Span {
    let day_ms = Span::from_days(1).as_millis();
    Span::from_millis(day_ms - now.0 % day_ms)
}
