//! Emails to the operator and to the owners of endpoints.
//!
//! [`compose`] writes an email from the collected lines, purely. [`smtp`] sends it through the operator's mail server,
//! using the egress crate, and returns the result; it does not decide about retries. The module guarantees:
//!
//! - An email is plain text, ASCII on the wire (except a recipient whose address is not). Text from third parties
//!   cannot add a header line.
//! - Emails suppress automatic replies. The same email sent twice has the same `Message-ID`.
//! - Passwords, including those in endpoint URLs, appear in no email, log line or error.

pub mod address;
pub mod compose;
pub mod settings;
pub mod smtp;
mod text;

pub use settings::{MailServerUrl, MailSettings, MailTls};
pub use smtp::{EmailError, SendEmail, SendFuture, SmtpMailer};
