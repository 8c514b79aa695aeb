//! Letters: what the owner of an endpoint and the operator are told by mail.
//!
//! [`compose`] makes a letter's words of what has gathered, purely. [`post`] hands it to the operator's mail server,
//! through the one door out, and says what came of it: whether to try again is not decided here. It promises:
//!
//! - a letter is a text, in ASCII on the wire (but for a recipient whose name is not), and nothing that strangers wrote
//!   can add a line to its head;
//! - nobody's vacation answers it, and the same letter sent twice has the same `Message-ID`;
//! - passwords, those in the addresses of endpoints included, stand in no letter, log or error.

pub mod address;
pub mod compose;
pub mod post;
pub mod settings;
mod words;

pub use post::{Post, PostError, Sending, SmtpPost};
pub use settings::{MailSettings, MailTls, ServerUrl};
