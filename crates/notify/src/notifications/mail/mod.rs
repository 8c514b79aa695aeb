//! Emails to the operator and to the owners of endpoints.
//!
//! [`compose`] writes an email from the collected lines, purely. [`post`] sends it through the operator's mail server,
//! using the egress crate, and returns the result; it does not decide about retries. The module guarantees:
//!
//! - An email is plain text, ASCII on the wire (except a recipient whose address is not). Text from third parties
//!   cannot add a header line.
//! - Emails suppress automatic replies. The same email sent twice has the same `Message-ID`.
//! - Passwords, including those in endpoint URLs, appear in no email, log line or error.

pub mod address;
pub mod compose;
pub mod post;
pub mod settings;
mod words;

pub use post::{EmailError, SendEmail, Sending, SmtpMailer};
pub use settings::{MailSettings, MailTls, ServerUrl};
