//! Owner addresses are confirmed by token, and emails are limited per tenant and day.
//!
//! A confirmation email is claimed once and gets a token, which confirms the address once and for all endpoints of the
//! tenant that have it. An address gets one confirmation email a day, whichever tenants ask. The first email above a
//! daily limit creates a notification.

use posthaste_core::id::EndpointId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::{Span, Timestamp};

use super::Harness;
use super::fixture::{DAY, StoreFixture, at, endpoint, id};
use posthaste_store::{
    CONFIRMATION_LIFE, ConfirmationRequest, ConfirmationResult, EMAIL_LIMIT_REACHED,
    EmailAllowance, EmailResult, Endpoint, KeyHash, OwnerEmailLimits, ReplaceResult, SubjectScope,
};

const OWNER: &str = "Owner@example.com";
const LIMITS: OwnerEmailLimits = OwnerEmailLimits {
    emails: 4,
    recipients: 2,
};
const SENT: EmailResult = EmailResult::Sent {
    quiet_until: Timestamp(0),
};

fn request(tenant: &str, recipient: &str) -> ConfirmationRequest {
    ConfirmationRequest {
        tenant: id(tenant),
        recipient: recipient.to_owned(),
        endpoint: EndpointId(1),
    }
}

fn token(number: u8) -> KeyHash {
    KeyHash([number; 32])
}

fn owned(number: u128, tenant: &str, recipient: &str) -> Endpoint {
    Endpoint {
        owner_email: Some(recipient.to_owned()),
        owner_email_confirmed: false,
        ..endpoint(number, tenant, &[])
    }
}

impl StoreFixture<'_> {
    async fn ask(&self, now: Timestamp, asked: ConfirmationRequest) -> ConfirmationResult {
        let asked = self.store.request_confirmation(now, asked, LIMITS);
        asked.await.unwrap()
    }

    /// Claims confirmation emails with these tokens. Returns the recipients.
    async fn claim_confirmations(&self, now: Timestamp, tokens: &[u8]) -> Vec<(u8, String)> {
        let until = now.after(Span::from_mins(3));
        let tokens = tokens.iter().map(|number| token(*number)).collect();
        let claimed = self.store.claim_confirmations(now, until, tokens).await;
        let claimed = claimed.unwrap().into_iter();
        claimed
            .map(|(token, request)| (token.0[0], request.recipient))
            .collect()
    }

    async fn is_confirmed(&self, number: u128) -> bool {
        let row = self.store.endpoint(EndpointId(number)).await.unwrap();
        row.expect("it exists").endpoint.owner_email_confirmed
    }
}

pub(super) async fn a_token_confirms_the_address_of_its_tenant_once(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    for (number, tenant, recipient) in [
        (1, "acme", OWNER),
        (2, "acme", "owner@EXAMPLE.com"),
        (3, "acme", "someone@example.com"),
        (4, "other", OWNER),
        (5, "acme", OWNER),
    ] {
        world.add(owned(number, tenant, recipient)).await;
    }
    let stale = world.store.endpoint(EndpointId(1)).await.unwrap();
    let stale = stale.expect("it exists").endpoint;
    world
        .set_status(EndpointId(5), EndpointStatus::Deleted)
        .await;
    let known = || world.store.is_owner_confirmed(id("acme"), OWNER.to_owned());
    assert_eq!(known().await, Ok(false));
    let asked = world.ask(at(0), request("acme", OWNER)).await;
    assert_eq!(asked, ConfirmationResult::Queued);
    let claimed = world.claim_confirmations(at(1), &[7, 8]).await;
    assert_eq!(claimed, [(7, OWNER.to_owned())]);
    let world = world.reopened().await;
    world
        .store
        .record_confirmation_result(token(7), SENT)
        .await
        .unwrap();
    assert_eq!(world.store.confirmation(at(2), token(8)).await, Ok(None));
    let found = world.store.confirmation(at(2), token(7)).await;
    assert_eq!(found, Ok(Some(request("acme", OWNER))));
    assert!(!world.is_confirmed(1).await, "looking confirms nothing");
    assert_eq!(
        world.store.confirm_owner(at(2), token(7)).await,
        Ok(Some(2))
    );
    let confirmed = [
        world.is_confirmed(1).await,
        world.is_confirmed(2).await,
        world.is_confirmed(3).await,
        world.is_confirmed(4).await,
        world.is_confirmed(5).await,
    ];
    assert_eq!(confirmed, [true, true, false, false, false]);
    let known = world
        .store
        .is_owner_confirmed(id("acme"), OWNER.to_uppercase());
    assert_eq!(known.await, Ok(true));
    // A concurrent change that was made from the state before must not undo it.
    let replaced = world.store.replace_endpoint(at(3), stale).await;
    assert_eq!(replaced, Ok(ReplaceResult::Outdated));
    for read in [false, true] {
        let again = match read {
            true => world
                .store
                .confirmation(at(3), token(7))
                .await
                .unwrap()
                .is_some(),
            false => world
                .store
                .confirm_owner(at(3), token(7))
                .await
                .unwrap()
                .is_some(),
        };
        assert!(!again, "the token was used");
    }
}

pub(super) async fn a_token_expires_and_ends_with_its_tenant(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add(owned(1, "acme", OWNER)).await;
    world.ask(at(0), request("acme", OWNER)).await;
    assert_eq!(world.claim_confirmations(at(1), &[1]).await.len(), 1);
    world
        .store
        .record_confirmation_result(token(1), SENT)
        .await
        .unwrap();
    let end = at(1).after(CONFIRMATION_LIFE);
    let last = Timestamp(end.0 - 1);
    assert!(
        world
            .store
            .confirmation(last, token(1))
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(world.store.confirmation(end, token(1)).await, Ok(None));
    assert_eq!(world.store.confirm_owner(end, token(1)).await, Ok(None));
    world.store.delete_tenant(at(2), id("acme")).await.unwrap();
    assert_eq!(world.store.confirmation(at(3), token(1)).await, Ok(None));
    assert_eq!(world.store.confirm_owner(at(3), token(1)).await, Ok(None));
    world.add_tenant("acme").await;
    assert_eq!(world.store.confirm_owner(at(3), token(1)).await, Ok(None));
    let unknown = world.ask(at(3), request("unknown", OWNER)).await;
    assert_eq!(unknown, ConfirmationResult::NoSuchTenant);
}

pub(super) async fn an_address_gets_one_confirmation_email_a_day(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    world.ask(at(0), request("acme", OWNER)).await;
    let asked = world.ask(at(1), request("acme", OWNER)).await;
    assert_eq!(asked, ConfirmationResult::Queued, "it waits");
    // Another tenant learns nothing of it, and its email waits.
    let asked = world
        .ask(at(2), request("other", "owner@example.COM"))
        .await;
    assert_eq!(asked, ConfirmationResult::Queued);
    let claimed = world.claim_confirmations(at(3), &[1, 2]).await;
    assert_eq!(claimed, [(1, OWNER.to_owned())]);
    world
        .store
        .record_confirmation_result(token(1), SENT)
        .await
        .unwrap();
    let tomorrow = Timestamp(at(3).0 + DAY);
    let asked = world.ask(at(4), request("acme", OWNER)).await;
    assert_eq!(asked, ConfirmationResult::TooSoon(tomorrow));
    let claimed = world
        .claim_confirmations(Timestamp(tomorrow.0 - 1), &[3])
        .await;
    assert_eq!(claimed, []);
    let claimed = world.claim_confirmations(tomorrow, &[3, 4]).await;
    assert_eq!(claimed, [(3, "owner@example.COM".to_owned())]);
    let asked = world.ask(tomorrow, request("acme", OWNER)).await;
    assert_eq!(asked, ConfirmationResult::Queued);
    let claimed = world.claim_confirmations(tomorrow, &[5]).await;
    assert_eq!(claimed, [], "the address got one for another tenant");
}

pub(super) async fn an_email_that_was_not_sent_is_claimed_again(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.ask(at(0), request("acme", OWNER)).await;
    assert_eq!(world.claim_confirmations(at(1), &[1]).await.len(), 1);
    let within = at(1).after(Span::from_mins(2));
    assert_eq!(world.claim_confirmations(within, &[2]).await, []);
    // The process died while it was sent.
    let later = at(1).after(Span::from_mins(3));
    assert_eq!(world.claim_confirmations(later, &[2]).await.len(), 1);
    assert_eq!(world.store.confirmation(later, token(1)).await, Ok(None));
    let again_at = later.after(Span::from_mins(30));
    let result = EmailResult::Later { at: again_at };
    world
        .store
        .record_confirmation_result(token(2), result)
        .await
        .unwrap();
    assert_eq!(world.claim_confirmations(later, &[3]).await, []);
    assert_eq!(world.claim_confirmations(again_at, &[3]).await.len(), 1);
    world
        .store
        .record_confirmation_result(token(3), EmailResult::Dropped)
        .await
        .unwrap();
    let hour = again_at.after(Span::from_hours(1));
    assert_eq!(world.claim_confirmations(hour, &[4]).await, []);
    assert_eq!(world.store.confirmation(hour, token(3)).await, Ok(None));
}

pub(super) async fn emails_are_limited_per_tenant_and_day(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    for (recipient, expected) in [
        ("a@example.com", ConfirmationResult::Queued),
        ("b@example.com", ConfirmationResult::Queued),
        (
            "c@example.com",
            ConfirmationResult::LimitReached { is_first: true },
        ),
    ] {
        assert_eq!(world.ask(at(0), request("acme", recipient)).await, expected);
    }
    let count = |now, tenant| {
        world
            .store
            .count_owner_email(now, id(tenant), LIMITS.emails)
    };
    assert_eq!(count(at(1), "acme").await, Ok(EmailAllowance::Within));
    let world = world.reopened().await;
    let count = |now, tenant| {
        world
            .store
            .count_owner_email(now, id(tenant), LIMITS.emails)
    };
    assert_eq!(count(at(1), "acme").await, Ok(EmailAllowance::Within));
    let above = EmailAllowance::LimitReached { is_first: false };
    assert_eq!(count(at(2), "acme").await, Ok(above));
    assert_eq!(count(at(2), "other").await, Ok(EmailAllowance::Within));
    assert_eq!(count(at(2), "unknown").await, Ok(EmailAllowance::Within));
    let notifications = world.store.notifications(0, 9).await.unwrap();
    assert_eq!(notifications.len(), 1, "one a day");
    assert_eq!(notifications[0].name, EMAIL_LIMIT_REACHED);
    assert_eq!(notifications[0].scope, SubjectScope::Tenant(id("acme")));
    let tomorrow = Timestamp(at(0).0 + DAY);
    assert_eq!(count(tomorrow, "acme").await, Ok(EmailAllowance::Within));
    let asked = world.ask(tomorrow, request("acme", "c@example.com")).await;
    assert_eq!(asked, ConfirmationResult::Queued);
}
