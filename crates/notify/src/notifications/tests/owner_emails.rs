//! Emails to owners: only to confirmed addresses, and within the limits of the tenant.

use posthaste_store::{
    ConfirmationRequest, ConfirmationResult, EMAIL_LIMIT_REACHED, OwnerEmailLimits, ReplaceResult,
};

use super::super::confirmations::{ConfirmationMailer, token_hash};
use super::*;

const LIMITS: OwnerEmailLimits = OwnerEmailLimits {
    emails: 200,
    recipients: 20,
};

impl Fixture {
    /// Changes the endpoint of acme.
    async fn change(&self, change: impl FnOnce(&mut Endpoint)) {
        let found = self.store.endpoint(EndpointId(1)).await;
        let mut endpoint = found.expect("it reads").expect("it exists").endpoint;
        change(&mut endpoint);
        let replaced = self.store.replace_endpoint(self.clock.wall(), endpoint);
        assert_eq!(replaced.await, Ok(ReplaceResult::Done));
    }

    async fn request_confirmation(&self) {
        let request = ConfirmationRequest {
            tenant: tenant("acme"),
            recipient: OWNER.to_owned(),
            endpoint: EndpointId(1),
        };
        let requested = self
            .store
            .request_confirmation(self.clock.wall(), request, LIMITS);
        assert_eq!(requested.await, Ok(ConfirmationResult::Queued));
    }

    fn confirmation_mailer(&self, sender: &Arc<FakeSmtp>) -> ConfirmationMailer {
        ConfirmationMailer {
            store: self.store.clone(),
            clock: self.clock.clone(),
            sender: sender.clone(),
            base_url: "https://hooks.example.com".to_owned(),
            metrics: self.metrics.clone(),
        }
    }

    /// Makes a change of the endpoint, and returns the recipients of the emails about it.
    async fn recipients(&self, dispatcher: &mut NotificationDispatcher) -> Vec<String> {
        self.fail("acme", vec![tripped()]).await;
        while dispatcher.round().await.expect("the round succeeds") {}
        self.advance(GATHER);
        let emails = self.pending_emails().await;
        for email in &emails {
            let (recipient, revision) = (email.recipient.clone(), email.revision);
            let dropped = posthaste_store::EmailResult::Dropped;
            let recorded = self.store.record_email_result(recipient, revision, dropped);
            assert_eq!(recorded.await, Ok(true));
        }
        emails.into_iter().map(|it| it.recipient).collect()
    }
}

#[tokio::test]
async fn an_unconfirmed_owner_gets_no_email_unless_the_domain_is_allowed() {
    let fixture = Fixture::start().await;
    fixture
        .change(|endpoint| endpoint.owner_email_confirmed = false)
        .await;
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), true);
    assert_eq!(fixture.recipients(&mut dispatcher).await, [OPS]);
    let domain = "example.com".parse().expect("a domain");
    dispatcher.audience.allowed_domains = [domain].into_iter().collect();
    assert_eq!(fixture.recipients(&mut dispatcher).await, [OPS, OWNER]);
    dispatcher.audience.allowed_domains = AllowedDomains::default();
    assert_eq!(fixture.recipients(&mut dispatcher).await, [OPS]);
    fixture
        .change(|endpoint| endpoint.owner_email_confirmed = true)
        .await;
    assert_eq!(fixture.recipients(&mut dispatcher).await, [OPS, OWNER]);
}

#[tokio::test]
async fn the_link_of_a_confirmation_email_confirms_the_address() {
    let fixture = Fixture::start().await;
    fixture
        .change(|endpoint| {
            endpoint.owner_email_confirmed = false;
            endpoint.url = "https://u:hunter2@acme.example.com/buy-now?x=hunter2".to_owned();
        })
        .await;
    let later = EmailError::Later("busy".to_owned());
    let post = Arc::new(FakeSmtp {
        results: Mutex::new(vec![Err(later)]),
        ..FakeSmtp::default()
    });
    let mut mailer = fixture.confirmation_mailer(&post);
    assert_eq!(mailer.round().await, Ok(false));
    fixture.request_confirmation().await;
    assert_eq!(mailer.round().await, Ok(false));
    assert_eq!(mailer.round().await, Ok(false));
    fixture.advance(Span::from_mins(10));
    assert_eq!(mailer.round().await, Ok(false));
    fixture.advance(Span::from_hours(1));
    assert_eq!(mailer.round().await, Ok(false));
    let sent = post.confirmations.lock().expect("not poisoned").clone();
    assert_eq!(sent.len(), 2, "one was not accepted");
    assert_eq!(sent[1].recipient, OWNER);
    assert_eq!(sent[1].endpoint_host, "acme.example.com");
    let token = |email: &ConfirmationEmail| {
        let link = email
            .link
            .strip_prefix("https://hooks.example.com/confirm-email/");
        token_hash(link.expect("a link to this server"))
    };
    let now = fixture.clock.wall();
    let first = fixture.store.confirm_owner(now, token(&sent[0])).await;
    assert_eq!(first, Ok(None), "every try has its own token");
    let second = fixture.store.confirm_owner(now, token(&sent[1])).await;
    assert_eq!(second, Ok(Some(1)));
}

#[tokio::test]
async fn an_address_that_was_removed_gets_no_confirmation_email() {
    let fixture = Fixture::start().await;
    fixture
        .change(|endpoint| endpoint.owner_email_confirmed = false)
        .await;
    fixture.request_confirmation().await;
    fixture
        .change(|endpoint| endpoint.owner_email = Some("another@example.com".to_owned()))
        .await;
    let post = Arc::new(FakeSmtp::default());
    let mut mailer = fixture.confirmation_mailer(&post);
    assert_eq!(mailer.round().await, Ok(false));
    assert_eq!(*post.confirmations.lock().expect("not poisoned"), []);
}

#[tokio::test]
async fn emails_above_the_daily_limit_are_dropped_and_reported_once() {
    let fixture = Fixture::start().await;
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), true);
    let post = Arc::new(FakeSmtp::default());
    let mut mailer = fixture.mailer(post.clone());
    mailer.tenant_limit = 2;
    mailer.min_interval = Span::ZERO;
    for _ in 0..4 {
        fixture.fail("acme", vec![tripped()]).await;
        while dispatcher.round().await.expect("the round succeeds") {}
        fixture.advance(GATHER);
        while mailer.round().await.expect("the round succeeds") {}
    }
    let received = post.received.lock().expect("not poisoned").clone();
    let to = |recipient: &str| {
        received
            .iter()
            .filter(|it| it.recipient == recipient)
            .count()
    };
    assert_eq!((to(OPS), to(OWNER)), (4, 2));
    let page = fixture
        .metrics
        .render(&posthaste_telemetry::metrics::Gauges::default());
    let limited = "posthaste_letters_total{outcome=\"limited\"} 2";
    assert!(page.lines().any(|line| line == limited), "{page}");
    // The operator is told once, by email and by an operational event.
    let reports = received.iter().flat_map(|email| &email.lines);
    let reports = reports.filter(|line| line.name == EMAIL_LIMIT_REACHED);
    assert_eq!(reports.count(), 1);
    let operational = fixture.operational().await;
    let reports = operational.iter().filter(|it| *it == EMAIL_LIMIT_REACHED);
    assert_eq!(reports.count(), 1);
    fixture.advance(Span::from_days(1));
    fixture.fail("acme", vec![tripped()]).await;
    while dispatcher.round().await.expect("the round succeeds") {}
    fixture.advance(GATHER);
    while mailer.round().await.expect("the round succeeds") {}
    let received = post.received.lock().expect("not poisoned").clone();
    assert_eq!(
        received.iter().filter(|it| it.recipient == OWNER).count(),
        3
    );
}
