//! Finds PostgreSQL's own programs and the user that runs them.
//!
//! PostgreSQL does not run as root. If the tests run as root, the programs run as another user, who owns their
//! folders.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Folder with one subfolder per installed PostgreSQL version (Debian layout).
const BY_VERSION: &str = "/usr/lib/postgresql";

/// PostgreSQL's programs, of the newest version that is installed.
#[derive(Clone, Debug)]
pub(crate) struct PostgresPrograms {
    bin: PathBuf,
    user: Option<String>,
}

impl PostgresPrograms {
    /// Finds the programs. Panics with instructions if there are none.
    pub(crate) fn find() -> PostgresPrograms {
        let bin = newest(Path::new(BY_VERSION)).or_else(in_path);
        let bin = bin.expect("PostgreSQL is needed for this test: scripts/test installs it");
        PostgresPrograms {
            bin,
            user: unprivileged(),
        }
    }

    /// Returns the command for a program. PostgreSQL refuses to run as root, so root runs it as another user.
    pub(crate) fn command(&self, name: &str) -> Command {
        let program = self.bin.join(name);
        let Some(user) = &self.user else {
            return Command::new(program);
        };
        let mut command = Command::new("runuser");
        command.args(["-u", user, "--"]).arg(program);
        // The other user may have no access to the working directory of the tests.
        command.current_dir("/");
        command
    }

    /// Makes the user that runs the programs the owner of a folder.
    pub(crate) fn hand_over(&self, folder: &Path) {
        let Some(user) = &self.user else { return };
        let id = |flag: &str| {
            let id_text = stdout_of(Command::new("id").arg(flag).arg(user));
            id_text.trim().parse().expect("a number")
        };
        std::os::unix::fs::chown(folder, Some(id("-u")), Some(id("-g")))
            .expect("root can change the owner");
    }
}

/// Returns the `bin` folder of the newest version below this folder.
fn newest(folder: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(folder).ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let version: u32 = path.file_name()?.to_str()?.parse().ok()?;
        let bin = path.join("bin");
        bin.join("initdb").exists().then_some((version, bin))
    });
    versions.max().map(|(_, bin)| bin)
}

fn in_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|folder| folder.join("initdb").exists())
}

/// Returns the user that runs the programs if this process is root.
fn unprivileged() -> Option<String> {
    if stdout_of(Command::new("id").arg("-u")).trim() != "0" {
        return None;
    }
    let known = |user: &&str| {
        let asked = Command::new("id").arg(user).output();
        asked.is_ok_and(|output| output.status.success())
    };
    let user = ["postgres", "nobody"].into_iter().find(known);
    Some(user.expect("a user other than root").to_owned())
}

fn stdout_of(command: &mut Command) -> String {
    let Output { stdout, .. } = command.output().expect("the program can be run");
    String::from_utf8(stdout).expect("UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_chosen_by_number() {
        let folder = tempfile::tempdir().expect("a directory");
        for version in ["9", "13", "16", "common"] {
            let bin = folder.path().join(version).join("bin");
            std::fs::create_dir_all(&bin).expect("a folder");
            std::fs::write(bin.join("initdb"), "").expect("a file");
        }
        // Version 17 has only its client installed.
        std::fs::create_dir_all(folder.path().join("17/bin")).expect("a folder");
        let newest = newest(folder.path());
        assert_eq!(newest, Some(folder.path().join("16/bin")));
    }
}
