//! `posthaste mail test`: sends a test email.
//!
//! [`TestArgs`] name the configuration and the recipients. The email is sent by the same mailer as real ones, one
//! recipient after the other, and the answer of the mail server is printed without the password.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use posthaste_notify::notifications::mail::address;
use posthaste_system::clock::Clock;
use serde_json::json;

use super::error::CommandError;
use super::output;
use super::runtime;
use crate::config::{Config, Flags};

/// Examples in the help.
pub const TEST_EXAMPLES: &str = "\
Examples:
  posthaste mail test --config posthaste.toml
  posthaste mail test --config posthaste.toml --to me@example.com
  POSTHASTE_MAIL_PASSWORD=… posthaste mail test --set mail.server=smtp://user@smtp.example.com \\
    --set mail.from=posthaste@example.com --to me@example.com

Settings come from the file, the environment and --set, as for `posthaste serve`. Without
--to the email goes to all addresses in mail.to.

Exit codes: 0 accepted by the mail server, 1 rejected, 2 wrong usage or configuration.";

/// Commands for emails.
#[derive(Debug, Subcommand)]
pub enum MailCommand {
    /// Send a test email and print the mail server's response
    #[command(after_help = TEST_EXAMPLES)]
    Test(TestArgs),
}

/// `mail test`.
#[derive(Args)]
pub struct TestArgs {
    /// Settings from a TOML file [env: POSTHASTE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Any setting, by its key in the configuration file; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Recipient [default: all addresses in mail.to]
    #[arg(long, value_name = "ADDRESS")]
    pub to: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl std::fmt::Debug for TestArgs {
    /// Omits the settings, which may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestArgs")
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

/// Sends an email to each recipient, one after the other.
pub fn test(args: &TestArgs) -> Result<(), CommandError> {
    let flags = Flags {
        config: args.config.clone(),
        set: args.set.clone(),
        ..Flags::default()
    };
    let config = Config::load(flags, std::env::vars_os()).map_err(CommandError::Config)?;
    config.check_mail().map_err(CommandError::Config)?;
    let mailer = config.mailer().map_err(CommandError::Roots)?;
    let (Some(mailer), Some(server)) = (mailer, &config.mail.server) else {
        return Err(CommandError::NoMail(
            "mail.server is not set, so no emails are sent: set it in the file, in POSTHASTE_MAIL_SERVER or with --set mail.server=smtp://user@host",
        ));
    };
    let recipients = match &args.to {
        Some(to) => std::slice::from_ref(to),
        None => &config.mail.to[..],
    };
    if args
        .to
        .as_deref()
        .is_some_and(|to| address::read(to).is_err())
    {
        return Err(CommandError::NoMail(
            "--to must be one email address, such as ops@example.com",
        ));
    }
    if recipients.is_empty() {
        return Err(CommandError::NoMail(
            "mail.to is empty: pass the recipient with --to",
        ));
    }
    let runtime = runtime::multi_threaded()?;
    for recipient in recipients {
        let sending = mailer.send_test(recipient, Clock::system().wall());
        let answer = runtime
            .block_on(sending)
            .map_err(|error| CommandError::EmailRefused {
                server: server.to_string(),
                recipient: recipient.clone(),
                reason: error.to_string(),
            })?;
        if args.json {
            let answer = json!({"server": server.to_string(), "to": recipient, "answer": answer});
            output::print_raw(&format!("{answer}\n"))?;
        } else {
            output::print(&format!(
                "{server} accepted the email to {recipient}: {answer}\n"
            ))?;
        }
    }
    Ok(())
}
