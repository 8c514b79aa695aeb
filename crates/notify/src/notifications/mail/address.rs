//! Email addresses.
//!
//! [`read`] parses one address; [`Sender`] is an address with an optional display name. A parsed address contains no
//! control characters, so it cannot add a header line, and its domain is in ASCII form.

use std::fmt;
use std::str::FromStr;

use lettre::Address;
use lettre::message::Mailbox;
use url::Host;

/// Maximum length of an address that mail servers accept, in bytes.
pub const MAX_ADDRESS_BYTES: usize = 254;
/// Maximum length of a display name, in characters.
const MAX_NAME_CHARS: usize = 100;

/// Error for a text that is not an email address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one email address, such as ops@example.com")]
pub struct AddressError;

/// Parses an address. The domain is converted to its ASCII (DNS) form, which every mail server accepts.
pub fn read(text: &str) -> Result<Address, AddressError> {
    let (local, domain) = text.rsplit_once('@').ok_or(AddressError)?;
    // Quoted local parts may contain any character, and are practically never used.
    let is_forbidden = |c: char| c.is_whitespace() || c.is_control() || c == '"';
    if text.len() > MAX_ADDRESS_BYTES || text.contains(is_forbidden) {
        return Err(AddressError);
    }
    let domain = match Host::parse(domain).map_err(|_| AddressError)? {
        Host::Domain(domain) => domain,
        Host::Ipv4(_) | Host::Ipv6(_) => return Err(AddressError),
    };
    Address::new(local, domain).map_err(|_| AddressError)
}

/// Domains whose addresses get emails without a confirmation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedDomains(Vec<String>);

impl AllowedDomains {
    /// Returns true if the domain of an address is one of these. Subdomains are other domains.
    pub fn allows(&self, address: &str) -> bool {
        let Ok(address) = read(address) else {
            return false;
        };
        let mut domains = self.0.iter();
        domains.any(|domain| domain.eq_ignore_ascii_case(address.domain()))
    }
}

impl FromIterator<AllowedDomain> for AllowedDomains {
    fn from_iter<T: IntoIterator<Item = AllowedDomain>>(domains: T) -> AllowedDomains {
        AllowedDomains(domains.into_iter().map(|AllowedDomain(it)| it).collect())
    }
}

/// One domain of [`AllowedDomains`], in its ASCII form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedDomain(String);

/// Error for a text that is not the domain of email addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a domain, such as example.com")]
pub struct DomainError;

impl FromStr for AllowedDomain {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<AllowedDomain, DomainError> {
        let address = read(&format!("x@{text}")).map_err(|_| DomainError)?;
        match text.contains('@') {
            false => Ok(AllowedDomain(address.domain().to_owned())),
            true => Err(DomainError),
        }
    }
}

/// Sender of emails: an address with an optional name, as in `posthaste <posthaste@example.com>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Sender(Mailbox);

impl Sender {
    /// Returns the address and the name.
    pub fn mailbox(&self) -> &Mailbox {
        &self.0
    }

    /// Returns the domain of the address.
    pub fn domain(&self) -> &str {
        self.0.email.domain()
    }
}

impl FromStr for Sender {
    type Err = SenderError;

    fn from_str(text: &str) -> Result<Sender, SenderError> {
        let (name, address) = match text.trim().strip_suffix('>') {
            None => (None, text.trim()),
            Some(text) => {
                let (name, address) = text.rsplit_once('<').ok_or(SenderError)?;
                (Some(name.trim().trim_matches('"').trim()), address)
            }
        };
        let address = read(address).map_err(|_| SenderError)?;
        let name = name.filter(|name| !name.is_empty());
        let is_forbidden = |c: char| c.is_control() || "<>\"".contains(c);
        let fits =
            |name: &str| name.chars().count() <= MAX_NAME_CHARS && !name.contains(is_forbidden);
        if !name.is_none_or(fits) {
            return Err(SenderError);
        }
        Ok(Sender(Mailbox::new(name.map(str::to_owned), address)))
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error for a text that is not a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be one email address, such as \"posthaste@example.com\" or \"posthaste <posthaste@example.com>\""
)]
pub struct SenderError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        for (text, written) in [
            ("ops@example.com", "ops@example.com"),
            (
                "o'neil+hooks@mail.example.com",
                "o'neil+hooks@mail.example.com",
            ),
            ("ops@Bücher.example", "ops@xn--bcher-kva.example"),
            ("jürgen@example.com", "jürgen@example.com"),
        ] {
            assert_eq!(read(text).map(|read| read.to_string()), Ok(written.into()));
        }
        for wrong in [
            "",
            "ops",
            "@example.com",
            "ops@",
            "ops@127.0.0.1",
            "ops@[127.0.0.1]",
            "ops@example.com, other@example.com",
            "ops@example.com\r\nBcc: all@example.com",
            "\"a b\"@example.com",
            "ops@exa mple.com",
            "<ops@example.com>",
            &format!("{}@example.com", "x".repeat(MAX_ADDRESS_BYTES)),
        ] {
            assert_eq!(read(wrong), Err(AddressError), "{wrong:?}");
        }
    }

    #[test]
    fn domains_are_allowed_exactly() {
        let domains = ["Example.com", "bücher.example"].map(|it| it.parse().expect("a domain"));
        let domains: AllowedDomains = domains.into_iter().collect();
        for (address, is_allowed) in [
            ("ops@example.com", true),
            ("ops@EXAMPLE.com", true),
            ("ops@xn--bcher-kva.example", true),
            ("ops@mail.example.com", false),
            ("ops@badexample.com", false),
            ("ops@example.com.evil.example", false),
            ("example.com", false),
        ] {
            assert_eq!(domains.allows(address), is_allowed, "{address}");
        }
        for wrong in [
            "",
            "@example.com",
            "a@b.example",
            "exa mple",
            "127.0.0.1",
            "*.",
        ] {
            assert_eq!(wrong.parse::<AllowedDomain>(), Err(DomainError), "{wrong}");
        }
    }

    #[test]
    fn a_sender_may_have_a_display_name() {
        for (text, written) in [
            ("a@example.com", "a@example.com"),
            ("<a@example.com>", "a@example.com"),
            ("posthaste <a@example.com>", "posthaste <a@example.com>"),
            (
                "\"Web, Hooks\" <a@example.com>",
                "\"Web, Hooks\" <a@example.com>",
            ),
        ] {
            let sender: Sender = text.parse().expect(text);
            assert_eq!(sender.to_string(), written);
            assert_eq!(sender.domain(), "example.com");
        }
        for wrong in [
            "",
            "posthaste",
            "a@b, c@d",
            "x\ny <a@example.com>",
            "a <b",
            "<<a@b.c>>",
        ] {
            assert_eq!(wrong.parse::<Sender>(), Err(SenderError), "{wrong:?}");
        }
    }
}
