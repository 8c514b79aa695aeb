//! `posthaste mail test`, as an operator runs it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use posthaste_testbed::{MailServer, MailSetup, MailStep, MailTls as Serves, without_settings};
use tempfile::TempDir;

use super::PASSWORD;

struct MailTestCommand {
    folder: TempDir,
}

impl MailTestCommand {
    fn new(server: &MailServer, mail: &str) -> MailTestCommand {
        let folder = tempfile::tempdir().expect("a folder");
        let bundle = folder.path().join("ca.pem");
        fs::write(&bundle, server.authority()).expect("written");
        let config = format!("ca_bundle = {bundle:?}\n[mail]\n{mail}");
        fs::write(folder.path().join("posthaste.toml"), config).expect("written");
        MailTestCommand { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("posthaste.toml")
    }

    /// Runs the program and returns its exit code and output.
    fn run(&self, more: &[&str]) -> (Option<i32>, String) {
        let mut command = without_settings(Command::new(env!("CARGO_BIN_EXE_posthaste")));
        command
            .args(["mail", "test", "--config"])
            .arg(self.file())
            .args(more)
            .env("POSTHASTE_MAIL_PASSWORD", PASSWORD);
        let output: Output = command.output().expect("the program can be started");
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8(printed).expect("text");
        assert!(!printed.contains(PASSWORD), "{printed}");
        (output.status.code(), printed)
    }
}

#[tokio::test]
async fn the_operator_sees_the_answer_of_the_mail_server() {
    let setup = MailSetup::new(Serves::StartTls).require_login("me", PASSWORD);
    let server = setup.start();
    let url = format!("smtp://me@localhost:{}", server.port);
    let command = MailTestCommand::new(
        &server,
        &format!("server = '{url}'\nfrom = 'posthaste@example.com'\nto = ['ops@example.com']\n"),
    );
    let (code, printed) = command.run(&[]);
    let address = format!("smtp://localhost:{}", server.port);
    let wanted = format!("{address} accepted the email to ops@example.com: 250 2.0.0 kept\n");
    assert_eq!((code, printed), (Some(0), wanted));
    let (code, printed) = command.run(&["--to", "me@example.com", "--json"]);
    let printed: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(
        (code, &printed["answer"]),
        (Some(0), &"250 2.0.0 kept".into())
    );
    let arrived = server.arrivals(2).await;
    assert_eq!(arrived[0].to, ["ops@example.com"]);
    assert_eq!(arrived[1].to, ["me@example.com"]);
    assert!(arrived[0].secure && arrived[0].user.as_deref() == Some("me"));
    assert_eq!(arrived[0].header("subject"), "[posthaste] Test email");

    server.refuse(MailStep::Recipient, "550 5.1.1 no such mailbox");
    let (code, printed) = command.run(&[]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("rejected the email to ops@example.com"),
        "{printed}"
    );
    assert!(printed.contains("no such mailbox"), "{printed}");
}

#[test]
fn missing_mail_settings_are_reported_before_sending() {
    let server = MailSetup::new(Serves::None).start();
    let url = format!("smtp://me@localhost:{}", server.port);
    for (mail, more, code, expected) in [
        (
            "",
            &[][..],
            2,
            "mail.server: is required with mail.password",
        ),
        (
            &format!("server = '{url}'\n"),
            &[],
            2,
            "mail.from: is required with mail.server",
        ),
        (
            &format!("server = '{url}'\nfrom = 'a@example.com'\n"),
            &[],
            2,
            "mail.to is empty: pass the recipient with --to",
        ),
        (
            &format!("server = '{url}'\nfrom = 'a@example.com'\n"),
            &["--to", "nobody"],
            2,
            "--to must be one email address",
        ),
        (
            &format!(
                "server = '{url}'\nfrom = 'sender'\nto = ['x', 'a@b.example']\ntls = 'maybe'\n"
            ),
            &[],
            2,
            "3 errors",
        ),
    ] {
        let command = MailTestCommand::new(&server, mail);
        let (ended, printed) = command.run(more);
        assert_eq!(ended, Some(code), "{printed}");
        assert!(
            printed.contains(expected),
            "{printed}\nshould say {expected}"
        );
    }
    assert!(server.emails().is_empty());
}
