//! Composes emails.
//!
//! Pure: the same email at the same time gives the same text. The most severe topic comes first, also in the subject
//! line. Repeated notifications are merged into one line with their number.

use std::time::{Duration, UNIX_EPOCH};

use lettre::Message;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MessageBuilder};
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{CONFIRMATION_LIFE, EmailLine, PendingEmail};
use ring::digest::{SHA256, digest};
use serde_json::Value;

use super::address::{self, AddressError, Sender};
use super::text::{
    NotificationKind, alert_name, describe, runbook_alert, sanitized, short_topic, topic,
    with_separators,
};
use crate::runbook;

/// Maximum length of a subject line, in characters. Mail programs cut longer ones.
const MAX_SUBJECT_CHARS: usize = 79;
/// Maximum length of the host name of an endpoint, in characters.
const MAX_HOST_CHARS: usize = 100;
/// Maximum length of an id in a link, in bytes.
const MAX_ID_BYTES: usize = 200;
/// Number of hash bytes in a `Message-ID`.
const ID_BYTES: usize = 16;

/// Text of an email.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmailText {
    /// Subject line.
    pub subject: String,
    /// Body, with `\n` line ends.
    pub text: String,
}

/// Writes the text of an email. Links lead to the dashboard at `base_url` (scheme and host), if it is known.
pub fn email_text(email: &PendingEmail, base_url: Option<&str>) -> EmailText {
    let groups = grouped_by_topic(&email.lines);
    let mut text = String::new();
    for group in &groups {
        text.push_str(&format!("{}.\n", group.sentence()));
        for fact in group.facts(base_url) {
            text.push_str(&format!("  {fact}\n"));
        }
        for link in base_url.into_iter().flat_map(|url| group.links(url)) {
            text.push_str(&format!("  {link}\n"));
        }
        text.push('\n');
    }
    if email.lines.len() > groups.len() {
        text.push_str("Timeline:\n");
        for line in &email.lines {
            let what = describe(&[line]);
            text.push_str(&format!(
                "  {}  {}: {what}\n",
                utc_text(line.at),
                topic(line)
            ));
        }
        text.push('\n');
    }
    if email.omitted > 0 {
        let more = with_separators(email.omitted);
        text.push_str(&match groups.is_empty() {
            true => {
                format!("{more} more notifications arrived while the last email was sent, and are not listed.\n\n")
            }
            false => format!("{more} more notifications are not listed in this email.\n\n"),
        });
    }
    // Only the operator receives alerts, and only the operator can see all of them.
    let is_of_alerts = |line: &EmailLine| match NotificationKind::of(line) {
        NotificationKind::AlertRaised | NotificationKind::AlertResolved => true,
        NotificationKind::Disabled
        | NotificationKind::DisableWarning
        | NotificationKind::BreakerTripped
        | NotificationKind::DeliveryFailed
        | NotificationKind::EmailLimitReached
        | NotificationKind::Unknown
        | NotificationKind::Recovered => false,
    };
    if let Some(url) = base_url.filter(|_| email.lines.iter().any(is_of_alerts)) {
        text.push_str(&format!("All alerts: {url}/dashboard/alerts\n\n"));
    }
    text.push_str(&format!(
        "-- \nSent by posthaste to {}, as the owner of an endpoint (owner_email) or the operator of the server (mail.to).\n",
        sanitized(&email.recipient, address::MAX_ADDRESS_BYTES)
    ));
    EmailText {
        subject: subject_line(&groups, email.omitted),
        text,
    }
}

/// Builds a complete email, ready to send.
pub fn message(
    email: &PendingEmail,
    from: &Sender,
    base_url: Option<&str>,
    now: Timestamp,
) -> Result<Message, AddressError> {
    let message_key = format!(
        "{}\n{}\n{}",
        email.recipient, email.revision, email.first_at.0
    );
    let text = email_text(email, base_url);
    assemble(&email.recipient, &text, from, &message_key, now)
}

/// An email that asks the owner of an address to confirm it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfirmationEmail {
    /// The address.
    pub recipient: String,
    /// Host name of the endpoint that the address was set for.
    pub endpoint_host: String,
    /// The link to confirm it.
    pub link: String,
}

/// Builds an email that asks the owner of an address to confirm it. Its text is fixed, except for the host name of the
/// endpoint, because the tenant chose the recipient.
pub fn confirmation_message(
    email: &ConfirmationEmail,
    from: &Sender,
    now: Timestamp,
) -> Result<Message, AddressError> {
    let days = CONFIRMATION_LIFE.as_millis() / Span::from_days(1).as_millis();
    let text = EmailText {
        subject: "[posthaste] Confirm your email address".to_owned(),
        text: format!(
            "This address was entered as the contact for a webhook endpoint at\n\n  {}\n\n\
             To get an email when deliveries to the endpoint fail, confirm the address within {days} days:\n\n  \
             {}\n\n\
             If you do not know this endpoint, ignore this email. You will then get no emails about it.\n",
            sanitized(&email.endpoint_host, MAX_HOST_CHARS),
            email.link
        ),
    };
    assemble(&email.recipient, &text, from, &email.link, now)
}

/// Builds a test email.
pub fn test_message(
    recipient: &str,
    from: &Sender,
    now: Timestamp,
) -> Result<Message, AddressError> {
    let text = EmailText {
        subject: "[posthaste] Test email".to_owned(),
        text: "This email was sent by `posthaste mail test` to check the mail settings.\n"
            .to_owned(),
    };
    let message_key = format!("{recipient}\ntrial\n{}", now.0);
    assemble(recipient, &text, from, &message_key, now)
}

fn assemble(
    recipient: &str,
    text: &EmailText,
    from: &Sender,
    message_key: &str,
    now: Timestamp,
) -> Result<Message, AddressError> {
    let to = Mailbox::new(None, address::read(recipient)?);
    let domain = from.domain();
    let builder = Message::builder()
        .from(from.mailbox().clone())
        .to(to)
        .date(UNIX_EPOCH + Duration::from_millis(now.0))
        .message_id(Some(format!("<{}@{domain}>", message_id(message_key))))
        .subject(text.subject.as_str());
    // These headers suppress automatic replies, such as vacation notices.
    let builder = with_header(builder, "Auto-Submitted", "auto-generated");
    let builder = with_header(builder, "X-Auto-Response-Suppress", "All");
    let builder = with_header(builder, "List-Id", &format!("<notices.posthaste.{domain}>"));
    let message = builder
        .header(ContentType::TEXT_PLAIN)
        .body(text.text.clone());
    Ok(message.expect("the email has a sender and a recipient"))
}

fn with_header(builder: MessageBuilder, name: &'static str, value: &str) -> MessageBuilder {
    let name = HeaderName::new_from_ascii_str(name);
    builder.raw_header(HeaderValue::new(name, value.to_owned()))
}

/// Returns the local part of the `Message-ID`: the same when an email is sent again.
fn message_id(message_key: &str) -> String {
    let hash = digest(&SHA256, message_key.as_bytes());
    let bytes = &hash.as_ref()[..ID_BYTES];
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lines about the same topic.
struct Group<'a> {
    topic: String,
    lines: Vec<&'a EmailLine>,
}

/// Groups the lines by topic, most severe first.
fn grouped_by_topic(lines: &[EmailLine]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for line in lines {
        let topic = topic(line);
        let same = |group: &&mut Group<'_>| {
            group.topic == topic
                && group.lines[0].endpoint == line.endpoint
                && alert_name(group.lines[0]) == alert_name(line)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.lines.push(line),
            None => groups.push(Group {
                topic,
                lines: vec![line],
            }),
        }
    }
    groups.sort_by_key(Group::worst);
    groups
}

impl Group<'_> {
    fn worst(&self) -> NotificationKind {
        let kinds = self.lines.iter().map(|line| NotificationKind::of(line));
        kinds.min().unwrap_or(NotificationKind::Unknown)
    }

    /// Returns what happened, most severe first, each kind once.
    fn descriptions(&self) -> Vec<String> {
        let mut kinds: Vec<(NotificationKind, &str)> = self
            .lines
            .iter()
            .map(|line| (NotificationKind::of(line), line.name.as_str()))
            .collect();
        kinds.sort();
        kinds.dedup();
        let descriptions = kinds.into_iter().map(|(_, name)| {
            let same = self.lines.iter().copied().filter(|line| line.name == name);
            describe(&same.collect::<Vec<_>>())
        });
        descriptions.collect()
    }

    fn sentence(&self) -> String {
        format!("{}: {}", self.topic, self.descriptions().join("; "))
    }

    /// Returns the time, the endpoint, and the runbook link.
    fn facts(&self, base_url: Option<&str>) -> Vec<String> {
        let times = || self.lines.iter().map(|line| line.at);
        let (first, last) = (times().min(), times().max());
        let mut facts = vec![match first.zip(last) {
            Some((first, last)) if first != last => {
                format!("Time: {} to {}", utc_text(first), utc_text(last))
            }
            Some((at, _)) => format!("Time: {}", utc_text(at)),
            None => String::new(),
        }];
        let endpoint = self.lines[0].endpoint.as_deref();
        facts.extend(endpoint.map(|id| format!("Endpoint id: {}", sanitized(id, MAX_ID_BYTES))));
        let alert = self.lines.iter().find_map(|line| runbook_alert(line));
        let path = alert.map(runbook::section);
        facts.extend(path.map(|path| format!("Runbook: {}{path}", base_url.unwrap_or_default())));
        facts
    }

    /// Returns links to the dashboard.
    fn links(&self, base_url: &str) -> Vec<String> {
        let line = self.lines[0];
        let plain = |text: &&str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            (1..=MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(allowed)
        };
        let tenant = line.tenant.as_deref().filter(plain);
        let endpoint = line.endpoint.as_deref().filter(plain);
        let Some((tenant, endpoint)) = tenant.zip(endpoint) else {
            return Vec::new();
        };
        let home = format!("{base_url}/dashboard/t/{tenant}");
        let mut links = vec![format!("Endpoint: {home}/endpoints/{endpoint}")];
        let failed =
            |line: &&&EmailLine| NotificationKind::of(line) == NotificationKind::DeliveryFailed;
        if let Some(last) = self.lines.iter().rfind(failed) {
            links.push(format!(
                "Dead letters: {home}/dead-letters?endpoint={endpoint}"
            ));
            let example = last.detail.get("delivery_id").and_then(Value::as_str);
            links.extend(
                example
                    .filter(plain)
                    .map(|delivery| format!("Example: {home}/deliveries/{delivery}")),
            );
        }
        links
    }
}

fn subject_line(groups: &[Group<'_>], omitted: u64) -> String {
    let Some(worst) = groups.first() else {
        return format!(
            "[posthaste] {} more notifications",
            with_separators(omitted)
        );
    };
    let first = worst.descriptions().into_iter().next().unwrap_or_default();
    let more = match groups.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    const PREFIX: &str = "[posthaste] ";
    // One character is left for the ellipsis.
    let room = MAX_SUBJECT_CHARS - PREFIX.len() - more.len() - 1;
    let text = sanitized(&format!("{}: {first}", short_topic(worst.lines[0])), room);
    format!("{PREFIX}{text}{more}")
}

/// Formats a time to the second.
fn utc_text(at: Timestamp) -> String {
    let exact = at.to_string();
    let seconds = exact.get(..19).unwrap_or(&exact);
    format!("{} UTC", seconds.replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::email;
    use serde_json::json;

    const PAGE: &str = "https://hooks.example.com";

    fn line(name: &str, endpoint: &str, detail: Value) -> EmailLine {
        EmailLine {
            at: Timestamp(1_793_905_445_678),
            name: name.to_owned(),
            tenant: Some("acme".to_owned()),
            endpoint: Some(endpoint.to_owned()),
            endpoint_url: Some(format!("https://{endpoint}.example.com/in")),
            detail,
        }
    }

    fn sender() -> Sender {
        "posthaste <posthaste@example.com>"
            .parse()
            .expect("a valid sender")
    }

    fn formatted(email: &PendingEmail) -> String {
        let message = message(email, &sender(), Some(PAGE), Timestamp(1_793_905_445_000));
        String::from_utf8(message.expect("a valid email").formatted()).expect("UTF-8")
    }

    #[test]
    fn a_thousand_dead_letters_make_one_sentence() {
        let detail =
            json!({"count": 1_000, "error_kinds": {"timeout": 1_000}, "delivery_id": "dlv_1"});
        let text = email_text(
            &email(vec![line("delivery.failed", "ep1", detail)]),
            Some(PAGE),
        );
        let first = "Endpoint https://ep1.example.com/in of acme: 1,000 deliveries failed";
        assert_eq!(
            text.subject,
            "[posthaste] Endpoint ep1.example.com of acme: 1,000 deliveries failed (timeout…"
        );
        assert_eq!(
            text.text,
            format!(
                "{first} (timeout 1,000).\n  \
                 Time: 2026-11-05 19:04:05 UTC\n  \
                 Endpoint id: ep1\n  \
                 Runbook: {PAGE}/docs/operations#dead_letters_growing\n  \
                 Endpoint: {PAGE}/dashboard/t/acme/endpoints/ep1\n  \
                 Dead letters: {PAGE}/dashboard/t/acme/dead-letters?endpoint=ep1\n  \
                 Example: {PAGE}/dashboard/t/acme/deliveries/dlv_1\n\n\
                 -- \nSent by posthaste to ops@example.com, as the owner of an endpoint (owner_email) or the operator \
                 of the server (mail.to).\n"
            )
        );
        let without = email_text(
            &email(vec![line("delivery.failed", "ep1", json!({}))]),
            None,
        );
        assert!(!without.text.contains("dashboard"), "{}", without.text);
    }

    #[test]
    fn only_an_email_with_alerts_links_to_all_alerts() {
        let all = format!("All alerts: {PAGE}/dashboard/alerts\n");
        let alert = line("alert.resolved", "ep1", json!({"name": "queue_age"}));
        let failed = line("delivery.failed", "ep1", json!({}));
        let to_owner = email_text(&email(vec![failed.clone()]), Some(PAGE));
        assert!(!to_owner.text.contains(&all), "{}", to_owner.text);
        let to_operator = email_text(&email(vec![failed, alert]), Some(PAGE));
        assert!(to_operator.text.contains(&all), "{}", to_operator.text);
    }

    #[test]
    fn the_most_severe_comes_first_and_the_timeline_follows() {
        let mut all = email(vec![
            line("endpoint.recovered", "ep1", json!({})),
            line("delivery.failed", "ep2", json!({"count": 2})),
            line("endpoint.disabled", "ep2", json!({"cause": "gone"})),
            line("delivery.failed", "ep2", json!({"count": 3})),
        ]);
        all.omitted = 1_234;
        let text = email_text(&all, None);
        assert!(
            text.subject
                .starts_with("[posthaste] Endpoint ep2.example.com of acme: disabled")
        );
        assert!(text.subject.ends_with("(and 1 more)"), "{}", text.subject);
        let lines: Vec<&str> = text.text.lines().collect();
        assert!(
            lines[0].contains("ep2.example.com") && lines[0].contains("; 5 deliveries failed.")
        );
        assert!(lines[5].contains("ep1.example.com"), "{lines:#?}");
        let [below, first, .., last, _, more] = &lines[9..=15] else {
            panic!("{lines:#?}");
        };
        assert_eq!(*below, "Timeline:");
        let begin = "  2026-11-05 19:04:05 UTC  Endpoint https://ep1";
        assert!(first.starts_with(begin), "{first}");
        assert!(last.ends_with("3 deliveries failed"), "{last}");
        assert_eq!(
            *more,
            "1,234 more notifications are not listed in this email."
        );
    }

    #[test]
    fn a_subject_is_short_and_has_no_path() {
        let secret_words = "buy-now-at-evil.example";
        for (host, tenant) in [
            ("a.example".to_owned(), "acme".to_owned()),
            (format!("{}.example", "x".repeat(120)), "t".repeat(64)),
        ] {
            let mut hostile = line("delivery.failed", "ep1", json!({"count": 3}));
            hostile.endpoint_url = Some(format!("https://{host}/{secret_words}?q={secret_words}"));
            hostile.tenant = Some(tenant);
            let mut raised = hostile.clone();
            raised.name = "alert.raised".to_owned();
            raised.detail = json!({"name": "retry_ratio"});
            let other = line("endpoint.recovered", "ep2", json!({}));
            for lines in [
                vec![hostile.clone()],
                vec![raised.clone()],
                vec![hostile, raised, other],
            ] {
                let text = email_text(&email(lines), Some(PAGE));
                assert!(text.subject.chars().count() < 80, "{}", text.subject);
                assert!(!text.subject.contains("buy-now"), "{}", text.subject);
                assert!(text.text.contains(secret_words), "the body has the URL");
            }
        }
    }

    #[test]
    fn a_confirmation_email_contains_nothing_chosen_by_a_tenant_but_the_host() {
        let confirmation = ConfirmationEmail {
            recipient: "owner@example.com".to_owned(),
            endpoint_host: format!("evil\r\nBcc: x\u{202e}{}", "x".repeat(300)),
            link: "https://hooks.example.com/confirm-email/token".to_owned(),
        };
        let message = confirmation_message(&confirmation, &sender(), Timestamp(0));
        let text = String::from_utf8(message.expect("a valid email").formatted()).expect("UTF-8");
        let (headers, body) = text.split_once("\r\n\r\n").expect("headers and body");
        let subject = "Subject: [posthaste] Confirm your email address";
        assert!(headers.lines().any(|line| line == subject), "{headers}");
        assert!(!headers.contains("Bcc"), "{headers}");
        assert!(!body.lines().any(|line| line.starts_with("Bcc")), "{body}");
        assert!(!body.contains(&"x".repeat(MAX_HOST_CHARS)), "{body}");
    }

    #[test]
    fn an_email_names_the_time_and_the_runbook() {
        let raised = line("alert.raised", "ep1", json!({"name": "queue_age"}));
        let mut again = raised.clone();
        again.at = Timestamp(again.at.0 + 60_000);
        let lines = vec![raised, again];
        let linked = email_text(&email(lines.clone()), Some(PAGE)).text;
        let link = format!("  Runbook: {PAGE}/docs/operations#queue_age\n");
        assert!(linked.contains(&link), "{linked}");
        let text = email_text(&email(lines), None).text;
        for fact in [
            "  Time: 2026-11-05 19:04:05 UTC to 2026-11-05 19:05:05 UTC\n",
            "  Endpoint id: ep1\n",
            "  Runbook: /docs/operations#queue_age\n",
        ] {
            assert!(text.contains(fact), "no {fact:?} in {text}");
        }
    }

    #[test]
    fn an_email_without_lines_names_the_number_omitted() {
        let mut full = email(Vec::new());
        full.omitted = 1_234;
        let text = email_text(&full, None);
        assert_eq!(text.subject, "[posthaste] 1,234 more notifications");
        let start = "1,234 more notifications arrived while the last email was sent, and are not listed.\n\n-- ";
        assert!(text.text.starts_with(start), "{}", text.text);
    }

    #[test]
    fn the_headers_suppress_automatic_replies() {
        let text = formatted(&email(vec![line("endpoint.recovered", "ep1", json!({}))]));
        let (headers, body) = text.split_once("\r\n\r\n").expect("headers and body");
        for wanted in [
            "From: posthaste <posthaste@example.com>",
            "To: ops@example.com",
            "Date: Thu, 05 Nov 2026 19:04:05 +0000",
            "Auto-Submitted: auto-generated",
            "X-Auto-Response-Suppress: All",
            "List-Id: <notices.posthaste.example.com>",
            "Content-Type: text/plain; charset=utf-8",
        ] {
            assert!(
                headers.lines().any(|line| line == wanted),
                "{wanted}\n{headers}"
            );
        }
        assert!(body.starts_with("Endpoint https://ep1.example.com/in of acme: recovered"));
    }

    #[test]
    fn the_same_email_has_the_same_message_id() {
        let id = |email: &PendingEmail| {
            let text = formatted(email);
            let line = text.lines().find(|line| line.starts_with("Message-ID: "));
            line.expect("a Message-ID").to_owned()
        };
        let one = email(vec![line("endpoint.recovered", "ep1", json!({}))]);
        let mut other = one.clone();
        other.tries = 7;
        assert_eq!(id(&one), id(&other));
        other.revision += 1;
        assert_ne!(id(&one), id(&other));
        other.revision = one.revision;
        other.recipient = "other@example.com".to_owned();
        assert_ne!(id(&one), id(&other));
    }

    #[test]
    fn text_from_third_parties_adds_no_header() {
        let evil = "x\r\nBcc: all@example.com\r\n\r\nEvil";
        let mut hostile = line("alert.raised", evil, json!({"name": evil, evil: evil}));
        hostile.tenant = Some(evil.to_owned());
        hostile.endpoint_url = Some(format!("https://u:hunter2@a.example/{evil}\u{202e}"));
        let text = formatted(&email(vec![
            hostile,
            line(evil, "ep1", json!({evil: evil})),
        ]));
        let (headers, _) = text.split_once("\r\n\r\n").expect("headers and body");
        assert!(
            !headers.lines().any(|line| line.starts_with("Bcc")),
            "{headers}"
        );
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.is_ascii());
        assert!(text.lines().all(|line| line.len() <= 998));
        assert!(
            !text.replace("\r\n", "").contains(['\r', '\n']),
            "no line ends of another kind"
        );
        let mut wrong = email(Vec::new());
        wrong.recipient = evil.to_owned();
        assert_eq!(
            message(&wrong, &sender(), None, Timestamp(0)).err(),
            Some(AddressError)
        );
    }

    #[test]
    fn a_full_email_is_bounded() {
        let long = "x".repeat(100_000);
        let lines = (0..50).map(|n| {
            line(
                "delivery.failed",
                &format!("{n}{long}"),
                json!({&long: &long}),
            )
        });
        let text = formatted(&email(lines.collect()));
        assert!(text.len() < 100_000, "{}", text.len());
    }
}
