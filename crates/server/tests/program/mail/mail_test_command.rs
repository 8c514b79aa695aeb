//! `posthaste mail test`, as an operator runs it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use posthaste_testbed::{MailServer, MailSetup, MailStep, MailTls as Serves, without_settings};
use tempfile::TempDir;

use super::PASSWORD;

struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new(server: &MailServer, mail: &str) -> Desk {
        let folder = tempfile::tempdir().expect("a folder");
        let bundle = folder.path().join("ca.pem");
        fs::write(&bundle, server.authority()).expect("written");
        let config = format!("ca_bundle = {bundle:?}\n[mail]\n{mail}");
        fs::write(folder.path().join("posthaste.toml"), config).expect("written");
        Desk { folder }
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
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).expect("text");
        assert!(!said.contains(PASSWORD), "{said}");
        (output.status.code(), said)
    }
}

#[tokio::test]
async fn the_operator_sees_the_answer_of_the_mail_server() {
    let setup = MailSetup::new(Serves::StartTls).require_login("me", PASSWORD);
    let server = setup.start();
    let url = format!("smtp://me@localhost:{}", server.port);
    let desk = Desk::new(
        &server,
        &format!("server = '{url}'\nfrom = 'posthaste@example.com'\nto = ['ops@example.com']\n"),
    );
    let (code, said) = desk.run(&[]);
    let place = format!("smtp://localhost:{}", server.port);
    let wanted = format!("{place} took the letter to ops@example.com: 250 2.0.0 kept\n");
    assert_eq!((code, said), (Some(0), wanted));
    let (code, said) = desk.run(&["--to", "me@example.com", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((code, &told["answer"]), (Some(0), &"250 2.0.0 kept".into()));
    let arrived = server.arrivals(2).await;
    assert_eq!(arrived[0].to, ["ops@example.com"]);
    assert_eq!(arrived[1].to, ["me@example.com"]);
    assert!(arrived[0].secure && arrived[0].user.as_deref() == Some("me"));
    assert_eq!(arrived[0].header("subject"), "[posthaste] Letters arrive");

    server.refuse(MailStep::Recipient, "550 5.1.1 nobody of that name");
    let (code, said) = desk.run(&[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("did not take the letter to ops@example.com"),
        "{said}"
    );
    assert!(said.contains("nobody of that name"), "{said}");
}

#[test]
fn missing_mail_settings_are_reported_before_sending() {
    let server = MailSetup::new(Serves::None).start();
    let url = format!("smtp://me@localhost:{}", server.port);
    for (mail, more, code, told) in [
        ("", &[][..], 2, "mail.server: is needed with mail.password"),
        (
            &format!("server = '{url}'\n"),
            &[],
            2,
            "mail.from: is needed with mail.server",
        ),
        (
            &format!("server = '{url}'\nfrom = 'a@example.com'\n"),
            &[],
            2,
            "mail.to is empty: say who is to get it by --to",
        ),
        (
            &format!("server = '{url}'\nfrom = 'a@example.com'\n"),
            &["--to", "nobody"],
            2,
            "--to must be one e-mail address",
        ),
        (
            &format!(
                "server = '{url}'\nfrom = 'nobody'\nto = ['x', 'a@b.example']\ntls = 'maybe'\n"
            ),
            &[],
            2,
            "3 mistakes",
        ),
    ] {
        let desk = Desk::new(&server, mail);
        let (ended, said) = desk.run(more);
        assert_eq!(ended, Some(code), "{said}");
        assert!(said.contains(told), "{said}\nshould say {told}");
    }
    assert!(server.emails().is_empty());
}
