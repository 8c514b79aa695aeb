//! Reads the settings of emails.

use posthaste_core::secret::Secret;
use posthaste_core::time::Span;
use posthaste_core::validation::Fields;
use posthaste_notify::notifications::mail::MailSettings;
use posthaste_notify::notifications::mail::address::{
    self, AddressError, AllowedDomain, AllowedDomains, DomainError,
};
use posthaste_notify::notifications::mail::settings::MAX_LOGIN_BYTES;
use serde_json::Value;

use super::fields::{MAX_COUNT, parsed, read_items, set};

/// Maximum number of addresses that get every notification. For more, use a mailing list.
const MAX_RECIPIENTS: usize = 20;
/// Maximum number of domains whose addresses need no confirmation.
const MAX_DOMAINS: usize = 1_000;
/// Maximum interval between two emails. With a longer one, recipients would be informed too late.
const MAX_EVERY: Span = Span::from_days(1);

pub(super) fn read(settings: &mut MailSettings, mut fields: Fields<'_, '_>) {
    let server = parsed(&mut fields, "server", str::parse);
    settings.server = server.or(settings.server.take());
    let password = parsed(&mut fields, "password", read_password);
    settings.password = password.or(settings.password.take());
    let tls = parsed(&mut fields, "tls", str::parse);
    settings.tls = tls.or(settings.tls);
    let from = parsed(&mut fields, "from", str::parse);
    settings.from = from.or(settings.from.take());
    let to = read_items(&mut fields, "to", MAX_RECIPIENTS, read_recipient);
    set(&mut settings.to, to.map(without_duplicates));
    set(
        &mut settings.every,
        fields.span("every", Span::ZERO, MAX_EVERY),
    );
    let domains = read_items(&mut fields, "allowed_domains", MAX_DOMAINS, read_domain);
    let domains = domains.map(AllowedDomains::from_iter);
    set(&mut settings.allowed_domains, domains);
    let limits = &mut settings.tenant_limits;
    for (name, limit) in [
        ("tenant_emails_per_day", &mut limits.emails),
        ("tenant_new_recipients_per_day", &mut limits.recipients),
    ] {
        set(limit, fields.count(name, 0, MAX_COUNT));
    }
    fields.finish();
}

fn read_domain(item: &Value) -> Result<AllowedDomain, DomainError> {
    item.as_str().unwrap_or_default().parse()
}

/// The message does not repeat the password.
fn read_password(text: &str) -> Result<Secret, String> {
    let fits = (1..=MAX_LOGIN_BYTES).contains(&text.len()) && !text.contains(char::is_control);
    match fits {
        true => Ok(Secret::new(text)),
        false => Err(format!(
            "must have 1 to {MAX_LOGIN_BYTES} bytes on one line"
        )),
    }
}

fn read_recipient(item: &Value) -> Result<String, AddressError> {
    let text = item.as_str().unwrap_or_default();
    address::read(text).map(|address| address.to_string())
}

/// Removes duplicate addresses and keeps the order, so that each recipient gets each email once.
fn without_duplicates(addresses: Vec<String>) -> Vec<String> {
    let mut unique: Vec<String> = Vec::with_capacity(addresses.len());
    for address in addresses {
        if !unique.iter().any(|it| it.eq_ignore_ascii_case(&address)) {
            unique.push(address);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_addresses_are_removed() {
        let addresses = ["ops@example.com", "night@example.com", "Ops@Example.com"];
        let addresses = addresses.map(str::to_owned).to_vec();
        assert_eq!(
            without_duplicates(addresses),
            ["ops@example.com", "night@example.com"]
        );
    }
}
