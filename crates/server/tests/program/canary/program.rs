//! The real binary, with everything it says.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use super::support::posthaste;

/// How lines look, and where the master key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Lines for people, the master key in the environment.
    Human,
    /// Lines in JSON, the master key in a file that the server makes.
    Json,
}

/// A server whose words are all kept.
pub(crate) struct Program {
    child: Child,
    /// Where it listens.
    pub(crate) address: String,
    /// Where its store lies.
    pub(crate) directory: PathBuf,
    /// Where its words lie: apart, as they are searched apart.
    words: PathBuf,
    setting: Setting,
    secrets: Secrets,
    starts: u32,
}

/// What it is told at the start that nobody else may know.
#[derive(Clone)]
pub(crate) struct Secrets {
    /// The key that reaches everything.
    pub(crate) admin_key: String,
    /// What it seals with, where it does not make that itself.
    pub(crate) master_key: String,
    /// What it signs in to the mail server with.
    pub(crate) mail_password: String,
    /// The proxy that everything goes through, if there is one.
    pub(crate) proxy: Option<String>,
}

impl Program {
    /// Starts a server on a new store.
    pub(crate) fn start(root: &Path, setting: Setting, secrets: Secrets) -> Program {
        let directory = root.join("store");
        let words = root.join("words");
        for folder in [&directory, &words] {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        let (child, address) = launch(&directory, &words, setting, &secrets, 0);
        Program {
            child,
            address,
            directory,
            words,
            setting,
            secrets,
            starts: 1,
        }
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(&mut self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
        assert!(sent.expect("kill can be run").success());
        assert!(self.child.wait().expect("it ends").success());
    }

    /// Starts it again.
    pub(crate) fn restart(&mut self) {
        let (directory, words) = (&self.directory, &self.words);
        let started = launch(directory, words, self.setting, &self.secrets, self.starts);
        (self.child, self.address) = started;
        self.starts += 1;
    }

    /// Everything it has said, in all its lives.
    pub(crate) fn words(&self) -> Vec<(String, Vec<u8>)> {
        files_in(&self.words)
    }

    /// Every file of its store.
    pub(crate) fn store(&self) -> Vec<(String, Vec<u8>)> {
        files_in(&self.directory)
    }

    /// Runs another command of the program, and keeps what it says.
    pub(crate) fn command(
        &self,
        name: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> i32 {
        let mut command = posthaste();
        command.args(arguments).current_dir(&self.directory);
        command.envs(variables.iter().copied());
        let output = command.output().expect("the program can be started");
        let said = [output.stdout, output.stderr].concat();
        std::fs::write(self.words.join(name), said).expect("a file");
        output.status.code().expect("a code")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn files_in(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        files.push((name, std::fs::read(&path).expect("a file")));
    }
    files
}

fn launch(
    directory: &Path,
    words: &Path,
    setting: Setting,
    secrets: &Secrets,
    number: u32,
) -> (Child, String) {
    let errors = File::create(words.join(format!("stderr-{number}"))).expect("a file");
    let mut command = posthaste();
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .arg("--store")
        .arg(format!(
            "sqlite:{}",
            directory.join("posthaste.db").display()
        ))
        .args(["--allow-network", "127.0.0.0/8", "--allow-http"])
        .args(["--log-level", "trace", "--grace", "1s"])
        .env("POSTHASTE_ADMIN_KEY", &secrets.admin_key)
        // Nobody serves mail there.
        .env("POSTHASTE_MAIL_SERVER", "smtp://me@127.0.0.1:1")
        .env("POSTHASTE_MAIL_PASSWORD", &secrets.mail_password)
        .env("POSTHASTE_MAIL_FROM", "posthaste@example.com")
        .env("POSTHASTE_MAIL_TO", "ops@example.com")
        .env("RUST_BACKTRACE", "full")
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(errors);
    if let Some(proxy) = &secrets.proxy {
        command.env("POSTHASTE_EGRESS_PROXY", proxy);
    }
    match setting {
        Setting::Human => {
            command.args(["--log-format", "human"]);
            command.env("POSTHASTE_MASTER_KEY", &secrets.master_key);
        }
        Setting::Json => {
            command.args(["--log-format", "json"]);
        }
    }
    let mut child = command.spawn().expect("the program can be started");
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut kept = File::create(words.join(format!("stdout-{number}"))).expect("a file");
    let (first, heard) = mpsc::channel();
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            writeln!(kept, "{line}").expect("a disk");
            let _ = first.send(line);
        }
    });
    let line: String = heard.recv().expect("it says where it listens");
    let address = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("http://"))
        .unwrap_or_else(|| panic!("no address in {line:?}"));
    (child, address.to_owned())
}
