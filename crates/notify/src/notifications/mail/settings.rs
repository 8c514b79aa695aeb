//! Settings of emails.
//!
//! [`MailSettings`] holds the configured values; [`MailSettings::errors`] finds contradictions between them, and
//! [`MailSettings::mailer`] creates the sender. [`MailServerUrl`] is the parsed `mail.server`. `Debug` and `Display` never
//! show a password.

use std::fmt;
use std::str::FromStr;

use posthaste_core::secret::Secret;
use posthaste_core::time::Span;
use posthaste_egress::Roots;
use posthaste_egress::mail::{Security, Server};
use posthaste_store::OwnerEmailLimits;
use url::Url;

use super::address::{AllowedDomains, Sender};
use super::smtp::{Login, SmtpMailer};

/// Default port of `smtp://`: plain text, upgraded by STARTTLS.
const SUBMISSION_PORT: u16 = 587;
/// Default port of `smtps://`: TLS from the first byte.
const SUBMISSIONS_PORT: u16 = 465;
/// Maximum length of a user name and of a password, in bytes.
pub const MAX_LOGIN_BYTES: usize = 512;

/// Settings of emails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailSettings {
    /// The mail server. Without it no emails are created.
    pub server: Option<MailServerUrl>,
    /// Password, if it is not in the server's URL.
    pub password: Option<Secret>,
    /// Encryption of the connection, if it differs from the default for the URL.
    pub tls: Option<MailTls>,
    /// Sender of the emails.
    pub from: Option<Sender>,
    /// The operator's addresses, which receive all notifications.
    pub to: Vec<String>,
    /// Minimum interval between two emails to one recipient.
    pub every: Span,
    /// Domains whose addresses get emails without a confirmation.
    pub allowed_domains: AllowedDomains,
    /// Limits of a tenant's emails to owners of endpoints.
    pub tenant_limits: OwnerEmailLimits,
}

impl Default for MailSettings {
    fn default() -> MailSettings {
        MailSettings {
            server: None,
            password: None,
            tls: None,
            from: None,
            to: Vec::new(),
            every: Span::from_mins(10),
            allowed_domains: AllowedDomains::default(),
            tenant_limits: OwnerEmailLimits {
                emails: 200,
                recipients: 20,
            },
        }
    }
}

impl MailSettings {
    /// Returns every error in these settings: a key and what is wrong with it.
    pub fn errors(&self) -> Vec<(&'static str, String)> {
        let mut errors = Vec::new();
        let Some(server) = &self.server else {
            let given = [
                ("mail.password", self.password.is_some()),
                ("mail.tls", self.tls.is_some()),
                ("mail.from", self.from.is_some()),
                ("mail.to", !self.to.is_empty()),
            ];
            if let Some((key, _)) = given.iter().find(|(_, given)| *given) {
                let message = format!("is required with {key}: without it no emails are sent");
                errors.push(("mail.server", message));
            }
            return errors;
        };
        if self.from.is_none() {
            let message = "is required with mail.server: it is the sender's address";
            errors.push(("mail.from", message.to_owned()));
        }
        let has_password = self.password.is_some() || server.password.is_some();
        match (&server.user, has_password) {
            (Some(_), false) => {
                let message = "is required because mail.server has a user name; set it in POSTHASTE_MAIL_PASSWORD";
                errors.push(("mail.password", message.to_owned()));
            }
            (None, true) => {
                let message =
                    "must have the user name that the password belongs to, as in smtp://user@host";
                errors.push(("mail.server", message.to_owned()));
            }
            (Some(_), true) | (None, false) => {}
        }
        if server.is_smtps && !self.tls.is_none_or(|tls| tls == MailTls::Implicit) {
            let message = "conflicts with mail.server: smtps:// means implicit TLS";
            errors.push(("mail.tls", message.to_owned()));
        }
        errors
    }

    /// Returns a warning about a setting that is allowed but unsafe.
    pub fn warning(&self) -> Option<String> {
        let server = self.server.as_ref()?;
        let is_unencrypted = self.security(server) == Security::None && server.user.is_some();
        is_unencrypted
            .then(|| format!("mail.tls is \"none\": the password for {server} is sent unencrypted"))
    }

    /// Returns the email sender, if there is a mail server. Links in emails lead to `base_url`, if it is set.
    pub fn mailer(&self, base_url: Option<String>, roots: Roots) -> Option<SmtpMailer> {
        let (server, from) = (self.server.as_ref()?, self.from.clone()?);
        let password = self.password.as_ref().or(server.password.as_ref());
        let login = server.user.as_ref().zip(password);
        let login = login.map(|(user, password)| Login {
            user: user.clone(),
            password: password.clone(),
        });
        let server = Server {
            host: server.host.clone(),
            port: server.port,
            security: self.security(server),
            hello: from.domain().to_owned(),
        };
        Some(SmtpMailer::new(server, roots, login, from, base_url))
    }

    fn security(&self, server: &MailServerUrl) -> Security {
        match self.tls {
            Some(MailTls::Implicit) => Security::Implicit,
            Some(MailTls::Required) => Security::StartTls,
            Some(MailTls::None) => Security::None,
            None if server.is_smtps || server.port == SUBMISSIONS_PORT => Security::Implicit,
            None => Security::StartTls,
        }
    }
}

/// Encryption of the connection to the mail server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailTls {
    /// STARTTLS is required; otherwise nothing is sent.
    Required,
    /// TLS from the first byte.
    Implicit,
    /// No encryption.
    None,
}

/// Error for an unknown encryption mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be \"required\" (STARTTLS), \"implicit\" (TLS on connect) or \"none\"")]
pub struct UnknownTls;

impl FromStr for MailTls {
    type Err = UnknownTls;

    fn from_str(text: &str) -> Result<MailTls, UnknownTls> {
        match text {
            "required" => Ok(MailTls::Required),
            "implicit" => Ok(MailTls::Implicit),
            "none" => Ok(MailTls::None),
            _ => Err(UnknownTls),
        }
    }
}

/// Address of a mail server, with optional user and password. The password is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct MailServerUrl {
    is_smtps: bool,
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<Secret>,
}

/// Error for a text that is not a mail server URL. The text is not repeated, because it may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a URL such as \"smtp://user@smtp.example.com:587\" or \"smtps://user@smtp.example.com\"; percent-encode special characters in the user name"
)]
pub struct MailServerUrlError;

impl FromStr for MailServerUrl {
    type Err = MailServerUrlError;

    fn from_str(text: &str) -> Result<MailServerUrl, MailServerUrlError> {
        let url = Url::parse(text.trim()).map_err(|_| MailServerUrlError)?;
        let (is_smtps, default_port) = match url.scheme() {
            "smtp" => (false, SUBMISSION_PORT),
            "smtps" => (true, SUBMISSIONS_PORT),
            _ => return Err(MailServerUrlError),
        };
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port().unwrap_or(default_port);
        let is_bare = ["", "/"].contains(&url.path()) && url.query().or(url.fragment()).is_none();
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:_".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host) || port == 0 || !is_bare {
            return Err(MailServerUrlError);
        }
        let user = percent_decoded(url.username())?;
        let password = url.password().map(percent_decoded).transpose()?;
        if user.is_empty() && password.is_some() {
            return Err(MailServerUrlError);
        }
        Ok(MailServerUrl {
            is_smtps,
            host: host.to_owned(),
            port,
            user: Some(user).filter(|user| !user.is_empty()),
            password: password.map(Secret::new),
        })
    }
}

/// Decodes a percent-encoded part of a URL.
fn percent_decoded(encoded: &str) -> Result<String, MailServerUrlError> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, after) = after.split_at_checked(2).ok_or(MailServerUrlError)?;
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(MailServerUrlError);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = after;
    }
    let text = String::from_utf8(bytes).map_err(|_| MailServerUrlError)?;
    match text.len() <= MAX_LOGIN_BYTES && !text.contains(char::is_control) {
        true => Ok(text),
        false => Err(MailServerUrlError),
    }
}

impl fmt::Display for MailServerUrl {
    /// Formats the URL without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_smtps { "smtps" } else { "smtp" };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for MailServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(server: &str) -> MailSettings {
        MailSettings {
            server: Some(server.parse().expect(server)),
            from: Some("posthaste@example.com".parse().expect("a valid sender")),
            ..MailSettings::default()
        }
    }

    #[test]
    fn server_urls_are_parsed() {
        for (text, shown, user, password) in [
            ("smtp://mx.example", "smtp://mx.example:587", None, None),
            ("smtps://mx.example", "smtps://mx.example:465", None, None),
            (
                "smtp://127.0.0.1:2525/",
                "smtp://127.0.0.1:2525",
                None,
                None,
            ),
            ("smtp://[::1]:25", "smtp://[::1]:25", None, None),
            (
                "smtp://u@mx.example:25",
                "smtp://mx.example:25",
                Some("u"),
                None,
            ),
            (
                "smtp://ops%40example.com:p%3Aw%25@mx.example",
                "smtp://mx.example:587",
                Some("ops@example.com"),
                Some("p:w%"),
            ),
        ] {
            let server: MailServerUrl = text.parse().expect(text);
            assert_eq!(server.to_string(), shown);
            assert_eq!(server.user.as_deref(), user, "{text}");
            let known = server.password.as_ref().map(Secret::reveal);
            assert_eq!(known, password, "{text}");
        }
        for wrong in [
            "",
            "mx.example",
            "mx.example:587",
            "http://mx.example",
            "smtp://",
            "smtp://:p@mx.example",
            "smtp://mx.example/path",
            "smtp://mx.example?tls=none",
            "smtp://mx.example:0",
            "smtp://u:%0d%0a@mx.example",
            "smtp://u:%zz@mx.example",
            "smtp://mx%20example",
        ] {
            assert_eq!(
                wrong.parse::<MailServerUrl>(),
                Err(MailServerUrlError),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_connection_is_encrypted_by_default() {
        for (server, tls, security) in [
            ("smtp://mx.example", None, Security::StartTls),
            ("smtp://mx.example:25", None, Security::StartTls),
            ("smtp://mx.example:465", None, Security::Implicit),
            ("smtps://mx.example", None, Security::Implicit),
            ("smtps://mx.example:2465", None, Security::Implicit),
            (
                "smtp://mx.example:2465",
                Some(MailTls::Implicit),
                Security::Implicit,
            ),
            (
                "smtp://mx.example:465",
                Some(MailTls::Required),
                Security::StartTls,
            ),
            ("smtp://mx.example", Some(MailTls::None), Security::None),
        ] {
            let mut settings = settings(server);
            settings.tls = tls;
            let url = settings.server.clone().expect("a server");
            assert_eq!(settings.security(&url), security, "{server} {tls:?}");
            assert_eq!(settings.errors(), [], "{server} {tls:?}");
        }
    }

    #[test]
    fn contradicting_settings_are_errors() {
        let keys = |settings: &MailSettings| -> Vec<&str> {
            settings.errors().iter().map(|(key, _)| *key).collect()
        };
        assert_eq!(keys(&MailSettings::default()), Vec::<&str>::new());
        let mut wrong = settings("smtps://u@mx.example");
        (wrong.from, wrong.tls) = (None, Some(MailTls::None));
        assert_eq!(keys(&wrong), ["mail.from", "mail.password", "mail.tls"]);
        let mut wrong = settings("smtp://mx.example");
        wrong.password = Some(Secret::new("hunter2"));
        assert_eq!(keys(&wrong), ["mail.server"]);
        let lonely = MailSettings {
            to: vec!["ops@example.com".to_owned()],
            ..MailSettings::default()
        };
        assert_eq!(keys(&lonely), ["mail.server"]);
    }

    #[test]
    fn an_unencrypted_password_gives_a_warning() {
        let mut settings = settings("smtp://u:hunter2@127.0.0.1:25");
        assert_eq!(settings.warning(), None);
        settings.tls = Some(MailTls::None);
        let warning = settings.warning().expect("a warning");
        assert!(warning.contains("unencrypted") && !warning.contains("hunter2"));
        settings.server = Some("smtp://127.0.0.1:25".parse().expect("a server"));
        assert_eq!(settings.warning(), None);
    }

    #[test]
    fn debug_output_contains_no_passwords() {
        let mut settings = settings("smtp://u:hunter2@mx.example");
        settings.password = Some(Secret::new("swordfish"));
        let mailer = settings.mailer(None, Roots::none()).expect("a mailer");
        let shown = format!("{settings:?} {settings:#?} {mailer:?}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("swordfish"),
            "{shown}"
        );
    }
}
