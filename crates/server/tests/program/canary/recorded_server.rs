//! The built program, with all its output recorded.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use super::fixture::posthaste;

/// The log format and the source of the master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Human-readable log lines, and the master key in the environment.
    Human,
    /// Log lines in JSON, and the master key in a file that the server creates.
    Json,
}

/// A server with all its output in files.
pub(crate) struct Program {
    child: Child,
    /// Address that the server listens on.
    pub(crate) address: String,
    /// Folder of the store.
    pub(crate) directory: PathBuf,
    /// Folder of the output. Separate, because it is searched separately.
    words: PathBuf,
    setting: Setting,
    secrets: Secrets,
    starts: u32,
}

/// The secrets that the server gets at the start.
#[derive(Clone)]
pub(crate) struct Secrets {
    /// The admin key.
    pub(crate) admin_key: String,
    /// The master key, where the server does not create it.
    pub(crate) master_key: String,
    /// The password for the mail server.
    pub(crate) mail_password: String,
    /// The egress proxy, if there is one.
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

    /// Kills the server, as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the program runs");
        self.child.wait().expect("the process ends");
    }

    /// Asks the server to stop and waits until it has ended.
    pub(crate) fn stop(&mut self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
        assert!(sent.expect("kill can be run").success());
        assert!(self.child.wait().expect("the process ends").success());
    }

    /// Starts the server again.
    pub(crate) fn restart(&mut self) {
        let (directory, words) = (&self.directory, &self.words);
        let started = launch(directory, words, self.setting, &self.secrets, self.starts);
        (self.child, self.address) = started;
        self.starts += 1;
    }

    /// Returns all output of all its starts.
    pub(crate) fn words(&self) -> Vec<(String, Vec<u8>)> {
        files_in(&self.words)
    }

    /// Returns every file of the store.
    pub(crate) fn store(&self) -> Vec<(String, Vec<u8>)> {
        files_in(&self.directory)
    }

    /// Runs another command of the program and records its output.
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
        // No mail server listens there.
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
    let output = BufReader::new(child.stdout.take().expect("a piped stream"));
    let mut kept = File::create(words.join(format!("stdout-{number}"))).expect("a file");
    let (first, first_line) = mpsc::channel();
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            writeln!(kept, "{line}").expect("a disk");
            let _ = first.send(line);
        }
    });
    let line: String = first_line
        .recv()
        .expect("the program did not print its address");
    let address = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("http://"))
        .unwrap_or_else(|| panic!("no address in {line:?}"));
    (child, address.to_owned())
}
