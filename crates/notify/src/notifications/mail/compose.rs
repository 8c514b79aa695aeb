//! Composes emails.
//!
//! Pure: the same email at the same time gives the same text. The most severe subject comes first, also in the subject
//! line. Repeated notifications are merged into one line with their number.

use std::time::{Duration, UNIX_EPOCH};

use lettre::Message;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MessageBuilder};
use posthaste_core::time::Timestamp;
use posthaste_store::{EmailLine, PendingEmail};
use ring::digest::{SHA256, digest};
use serde_json::Value;

use super::address::{self, AddressError, Sender};
use super::words::{NotificationKind, about, alert, clean, grouped, happened};
use crate::runbook;

/// Maximum length of a subject line, in characters.
const MAX_SUBJECT_CHARS: usize = 140;
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

/// Writes the text of an email. Links lead to the dashboard at `page` (scheme and host), if it is known.
pub fn wording(letter: &PendingEmail, page: Option<&str>) -> EmailText {
    let groups = grouped_by_subject(&letter.lines);
    let mut text = String::new();
    for group in &groups {
        text.push_str(&format!("{}.\n", group.sentence()));
        for fact in group.facts() {
            text.push_str(&format!("  {fact}\n"));
        }
        for link in page.into_iter().flat_map(|page| group.links(page)) {
            text.push_str(&format!("  {link}\n"));
        }
        text.push('\n');
    }
    if letter.lines.len() > groups.len() {
        text.push_str("What happened, in order:\n");
        for line in &letter.lines {
            let what = happened(&[line]);
            text.push_str(&format!("  {}  {}: {what}\n", moment(line.at), about(line)));
        }
        text.push('\n');
    }
    if letter.omitted > 0 {
        let more = grouped(letter.omitted);
        text.push_str(&match groups.is_empty() {
            true => {
                format!("{more} more came while the last letter was sent, and found no room.\n\n")
            }
            false => format!("{more} more did not find room in this letter.\n\n"),
        });
    }
    // Only the operator receives alerts, and only the operator can see all of them.
    let is_of_alerts = |line: &EmailLine| match NotificationKind::of(line) {
        NotificationKind::AlertRaised | NotificationKind::AlertResolved => true,
        NotificationKind::Disabled
        | NotificationKind::DisableWarning
        | NotificationKind::BreakerTripped
        | NotificationKind::DeliveryFailed
        | NotificationKind::Unknown
        | NotificationKind::Recovered => false,
    };
    if let Some(page) = page.filter(|_| letter.lines.iter().any(is_of_alerts)) {
        text.push_str(&format!("All alerts: {page}/dashboard/alerts\n\n"));
    }
    text.push_str(&format!(
        "-- \nposthaste wrote this to {}, who owns an endpoint (its owner_email) or runs the server (mail.to).\n",
        clean(&letter.recipient, address::MAX_ADDRESS_BYTES)
    ));
    EmailText {
        subject: subject(&groups, letter.omitted),
        text,
    }
}

/// Builds a complete email, ready to send.
pub fn message(
    letter: &PendingEmail,
    from: &Sender,
    page: Option<&str>,
    now: Timestamp,
) -> Result<Message, AddressError> {
    let identity = format!(
        "{}\n{}\n{}",
        letter.recipient, letter.revision, letter.first_at.0
    );
    let wording = wording(letter, page);
    assemble(&letter.recipient, &wording, from, &identity, now)
}

/// Builds a test email.
pub fn trial(recipient: &str, from: &Sender, now: Timestamp) -> Result<Message, AddressError> {
    let wording = EmailText {
        subject: "[posthaste] Letters arrive".to_owned(),
        text: "This letter was sent by `posthaste mail test`. Nothing is wrong.\n".to_owned(),
    };
    let identity = format!("{recipient}\ntrial\n{}", now.0);
    assemble(recipient, &wording, from, &identity, now)
}

fn assemble(
    recipient: &str,
    wording: &EmailText,
    from: &Sender,
    identity: &str,
    now: Timestamp,
) -> Result<Message, AddressError> {
    let to = Mailbox::new(None, address::read(recipient)?);
    let domain = from.domain();
    let builder = Message::builder()
        .from(from.mailbox().clone())
        .to(to)
        .date(UNIX_EPOCH + Duration::from_millis(now.0))
        .message_id(Some(format!("<{}@{domain}>", name(identity))))
        .subject(wording.subject.as_str());
    // These headers suppress automatic replies, such as vacation notices.
    let builder = with(builder, "Auto-Submitted", "auto-generated");
    let builder = with(builder, "X-Auto-Response-Suppress", "All");
    let builder = with(builder, "List-Id", &format!("<notices.posthaste.{domain}>"));
    let message = builder
        .header(ContentType::TEXT_PLAIN)
        .body(wording.text.clone());
    Ok(message.expect("it has a sender and a recipient"))
}

fn with(builder: MessageBuilder, name: &'static str, value: &str) -> MessageBuilder {
    let name = HeaderName::new_from_ascii_str(name);
    builder.raw_header(HeaderValue::new(name, value.to_owned()))
}

/// Returns the local part of the `Message-ID`: the same when an email is sent again.
fn name(identity: &str) -> String {
    let hash = digest(&SHA256, identity.as_bytes());
    let bytes = &hash.as_ref()[..ID_BYTES];
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lines about the same subject.
struct Group<'a> {
    about: String,
    lines: Vec<&'a EmailLine>,
}

/// Groups the lines by subject, most severe first.
fn grouped_by_subject(lines: &[EmailLine]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for line in lines {
        let about = about(line);
        let same = |group: &&mut Group<'_>| {
            group.about == about && group.lines[0].endpoint == line.endpoint
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.lines.push(line),
            None => groups.push(Group {
                about,
                lines: vec![line],
            }),
        }
    }
    groups.sort_by_key(Group::worst);
    groups
}

impl Group<'_> {
    fn worst(&self) -> NotificationKind {
        let matters = self.lines.iter().map(|line| NotificationKind::of(line));
        matters.min().unwrap_or(NotificationKind::Unknown)
    }

    /// Returns what happened, most severe first, each kind once.
    fn happenings(&self) -> Vec<String> {
        let mut kinds: Vec<(NotificationKind, &str)> = self
            .lines
            .iter()
            .map(|line| (NotificationKind::of(line), line.name.as_str()))
            .collect();
        kinds.sort();
        kinds.dedup();
        let told = kinds.into_iter().map(|(_, name)| {
            let same = self.lines.iter().copied().filter(|line| line.name == name);
            happened(&same.collect::<Vec<_>>())
        });
        told.collect()
    }

    fn sentence(&self) -> String {
        format!("{}: {}", self.about, self.happenings().join("; "))
    }

    /// Returns the time, the endpoint, and the runbook link.
    fn facts(&self) -> Vec<String> {
        let times = || self.lines.iter().map(|line| line.at);
        let (first, last) = (times().min(), times().max());
        let mut facts = vec![match first.zip(last) {
            Some((first, last)) if first != last => {
                format!("from {} to {}", moment(first), moment(last))
            }
            Some((at, _)) => format!("at {}", moment(at)),
            None => String::new(),
        }];
        let endpoint = self.lines[0].endpoint.as_deref();
        facts.extend(endpoint.map(|id| clean(id, MAX_ID_BYTES)));
        let raised = self.lines.iter().find_map(|line| alert(line));
        facts.extend(raised.map(|name| format!("what to do: {}", runbook::section(name))));
        facts
    }

    /// Returns links to the dashboard.
    fn links(&self, page: &str) -> Vec<String> {
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
        let home = format!("{page}/dashboard/t/{tenant}");
        let mut links = vec![format!("{home}/endpoints/{endpoint}")];
        let failed =
            |line: &&&EmailLine| NotificationKind::of(line) == NotificationKind::DeliveryFailed;
        if let Some(last) = self.lines.iter().rfind(failed) {
            links.push(format!("{home}/dead-letters?endpoint={endpoint}"));
            let example = last.detail.get("delivery_id").and_then(Value::as_str);
            links.extend(
                example
                    .filter(plain)
                    .map(|delivery| format!("{home}/deliveries/{delivery}")),
            );
        }
        links
    }
}

fn subject(groups: &[Group<'_>], omitted: u64) -> String {
    let Some(worst) = groups.first() else {
        return format!("[posthaste] {} more notices", grouped(omitted));
    };
    let first = worst.happenings().into_iter().next().unwrap_or_default();
    let more = match groups.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let told = clean(&format!("{}: {first}", worst.about), MAX_SUBJECT_CHARS);
    format!("[posthaste] {told}{more}")
}

/// Formats a time to the second.
fn moment(at: Timestamp) -> String {
    let exact = at.to_string();
    let seconds = exact.get(..19).unwrap_or(&exact);
    format!("{} UTC", seconds.replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn letter(lines: Vec<EmailLine>) -> PendingEmail {
        PendingEmail {
            recipient: "ops@example.com".to_owned(),
            revision: 3,
            first_at: Timestamp(1_793_905_445_678),
            tries: 0,
            lines,
            omitted: 0,
        }
    }

    fn sender() -> Sender {
        "posthaste <posthaste@example.com>"
            .parse()
            .expect("a sender")
    }

    fn formatted(letter: &PendingEmail) -> String {
        let message = message(letter, &sender(), Some(PAGE), Timestamp(1_793_905_445_000));
        String::from_utf8(message.expect("a letter").formatted()).expect("text")
    }

    #[test]
    fn a_thousand_dead_letters_are_one_sentence() {
        let detail =
            json!({"count": 1_000, "error_kinds": {"timeout": 1_000}, "delivery_id": "dlv_1"});
        let told = wording(
            &letter(vec![line("delivery.failed", "ep1", detail)]),
            Some(PAGE),
        );
        let first = "Endpoint https://ep1.example.com/in of acme: 1,000 deliveries failed";
        assert_eq!(told.subject, format!("[posthaste] {first} (timeout 1,000)"));
        assert_eq!(
            told.text,
            format!(
                "{first} (timeout 1,000).\n  \
                 at 2026-11-05 19:04:05 UTC\n  \
                 ep1\n  \
                 {PAGE}/dashboard/t/acme/endpoints/ep1\n  \
                 {PAGE}/dashboard/t/acme/dead-letters?endpoint=ep1\n  \
                 {PAGE}/dashboard/t/acme/deliveries/dlv_1\n\n\
                 -- \nposthaste wrote this to ops@example.com, who owns an endpoint (its owner_email) or runs the \
                 server (mail.to).\n"
            )
        );
        let without = wording(
            &letter(vec![line("delivery.failed", "ep1", json!({}))]),
            None,
        );
        assert!(!without.text.contains("dashboard"), "{}", without.text);
    }

    #[test]
    fn only_whoever_is_told_of_alerts_is_shown_where_they_all_are() {
        let all = format!("All alerts: {PAGE}/dashboard/alerts\n");
        let alert = line("alert.resolved", "ep1", json!({"name": "queue_age"}));
        let failed = line("delivery.failed", "ep1", json!({}));
        let to_owner = wording(&letter(vec![failed.clone()]), Some(PAGE));
        assert!(!to_owner.text.contains(&all), "{}", to_owner.text);
        let to_operator = wording(&letter(vec![failed, alert]), Some(PAGE));
        assert!(to_operator.text.contains(&all), "{}", to_operator.text);
    }

    #[test]
    fn the_worst_comes_first_and_the_order_is_kept_below() {
        let mut all = letter(vec![
            line("endpoint.recovered", "ep1", json!({})),
            line("delivery.failed", "ep2", json!({"count": 2})),
            line("endpoint.disabled", "ep2", json!({"cause": "gone"})),
            line("delivery.failed", "ep2", json!({"count": 3})),
        ]);
        all.omitted = 1_234;
        let told = wording(&all, None);
        assert!(told.subject.starts_with(
            "[posthaste] Endpoint https://ep2.example.com/in of acme: it was disabled"
        ));
        assert!(told.subject.ends_with("(and 1 more)"), "{}", told.subject);
        let lines: Vec<&str> = told.text.lines().collect();
        assert!(
            lines[0].contains("ep2.example.com") && lines[0].contains("; 5 deliveries failed.")
        );
        assert!(lines[4].contains("ep1.example.com"), "{lines:#?}");
        let [below, first, .., last, _, more] = &lines[8..=14] else {
            panic!("{lines:#?}");
        };
        assert_eq!(*below, "What happened, in order:");
        let begin = "  2026-11-05 19:04:05 UTC  Endpoint https://ep1";
        assert!(first.starts_with(begin), "{first}");
        assert!(last.ends_with("3 deliveries failed"), "{last}");
        assert_eq!(*more, "1,234 more did not find room in this letter.");
    }

    #[test]
    fn whoever_reads_it_knows_when_it_was_and_what_to_do() {
        let raised = line("alert.raised", "ep1", json!({"name": "queue_age"}));
        let mut again = raised.clone();
        again.at = Timestamp(again.at.0 + 60_000);
        let told = wording(&letter(vec![raised, again]), None).text;
        for fact in [
            "  from 2026-11-05 19:04:05 UTC to 2026-11-05 19:05:05 UTC\n",
            "  ep1\n",
            "  what to do: docs/operations.md#queue_age\n",
        ] {
            assert!(told.contains(fact), "no {fact:?} in {told}");
        }
    }

    #[test]
    fn a_letter_without_room_for_anything_says_how_much_there_was() {
        let mut full = letter(Vec::new());
        full.omitted = 1_234;
        let told = wording(&full, None);
        assert_eq!(told.subject, "[posthaste] 1,234 more notices");
        let text = "1,234 more came while the last letter was sent, and found no room.\n\n-- ";
        assert!(told.text.starts_with(text), "{}", told.text);
    }

    #[test]
    fn the_head_says_that_nobody_need_answer() {
        let text = formatted(&letter(vec![line("endpoint.recovered", "ep1", json!({}))]));
        let (head, body) = text.split_once("\r\n\r\n").expect("head and text");
        for wanted in [
            "From: posthaste <posthaste@example.com>",
            "To: ops@example.com",
            "Date: Thu, 05 Nov 2026 19:04:05 +0000",
            "Auto-Submitted: auto-generated",
            "X-Auto-Response-Suppress: All",
            "List-Id: <notices.posthaste.example.com>",
            "Content-Type: text/plain; charset=utf-8",
        ] {
            assert!(head.lines().any(|line| line == wanted), "{wanted}\n{head}");
        }
        assert!(body.starts_with("Endpoint https://ep1.example.com/in of acme: it takes"));
    }

    #[test]
    fn the_same_letter_has_the_same_name() {
        let id = |letter: &PendingEmail| {
            let text = formatted(letter);
            let line = text.lines().find(|line| line.starts_with("Message-ID: "));
            line.expect("a name").to_owned()
        };
        let one = letter(vec![line("endpoint.recovered", "ep1", json!({}))]);
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
    fn strangers_add_nothing_to_the_head() {
        let evil = "x\r\nBcc: all@example.com\r\n\r\nEvil";
        let mut hostile = line("alert.raised", evil, json!({"name": evil, evil: evil}));
        hostile.tenant = Some(evil.to_owned());
        hostile.endpoint_url = Some(format!("https://u:hunter2@a.example/{evil}\u{202e}"));
        let text = formatted(&letter(vec![
            hostile,
            line(evil, "ep1", json!({evil: evil})),
        ]));
        let (head, _) = text.split_once("\r\n\r\n").expect("head and text");
        assert!(!head.lines().any(|line| line.starts_with("Bcc")), "{head}");
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.is_ascii());
        assert!(text.lines().all(|line| line.len() <= 998));
        assert!(
            !text.replace("\r\n", "").contains(['\r', '\n']),
            "no line ends of another kind"
        );
        let mut wrong = letter(Vec::new());
        wrong.recipient = evil.to_owned();
        assert_eq!(
            message(&wrong, &sender(), None, Timestamp(0)).err(),
            Some(AddressError)
        );
    }

    #[test]
    fn a_full_letter_is_bounded() {
        let long = "x".repeat(100_000);
        let lines = (0..50).map(|n| {
            line(
                "delivery.failed",
                &format!("{n}{long}"),
                json!({&long: &long}),
            )
        });
        let text = formatted(&letter(lines.collect()));
        assert!(text.len() < 100_000, "{}", text.len());
    }
}
