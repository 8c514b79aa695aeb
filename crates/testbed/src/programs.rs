//! PostgreSQL's own programs: where they are, and as whom they run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where distributions put each version.
const BY_VERSION: &str = "/usr/lib/postgresql";

/// PostgreSQL's programs, of the newest version there is.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    bin: PathBuf,
    user: Option<String>,
}

impl Programs {
    /// Finds them. Panics with what to do if there are none.
    pub(crate) fn find() -> Programs {
        let bin = newest(Path::new(BY_VERSION)).or_else(in_path);
        let bin = bin.expect("PostgreSQL is needed for this test: scripts/test installs it");
        Programs {
            bin,
            user: unprivileged(),
        }
    }

    /// The one of this name, run by somebody whom PostgreSQL serves: it refuses root.
    pub(crate) fn command(&self, name: &str) -> Command {
        let program = self.bin.join(name);
        let Some(user) = &self.user else {
            return Command::new(program);
        };
        let mut command = Command::new("runuser");
        command.args(["-u", user, "--"]).arg(program);
        // The folder that tests run in may be closed to others.
        command.current_dir("/");
        command
    }

    /// Gives a folder to whoever runs the programs.
    pub(crate) fn hand_over(&self, folder: &Path) {
        let Some(user) = &self.user else { return };
        let id = |flag: &str| {
            let told = said(Command::new("id").arg(flag).arg(user));
            told.trim().parse().expect("a number")
        };
        std::os::unix::fs::chown(folder, Some(id("-u")), Some(id("-g"))).expect("root may");
    }
}

/// The folder of the newest version below this one.
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

/// Who is to run them, if this is root.
fn unprivileged() -> Option<String> {
    if said(Command::new("id").arg("-u")).trim() != "0" {
        return None;
    }
    let known = |user: &&str| {
        let asked = Command::new("id").arg(user).output();
        asked.is_ok_and(|output| output.status.success())
    };
    let user = ["postgres", "nobody"].into_iter().find(known);
    Some(user.expect("a user besides root").to_owned())
}

fn said(command: &mut Command) -> String {
    let Output { stdout, .. } = command.output().expect("it can be run");
    String::from_utf8(stdout).expect("UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_taken_by_number() {
        let folder = tempfile::tempdir().expect("a directory");
        for version in ["9", "13", "16", "common"] {
            let bin = folder.path().join(version).join("bin");
            std::fs::create_dir_all(&bin).expect("a folder");
            std::fs::write(bin.join("initdb"), "").expect("a file");
        }
        // Only its client is installed.
        std::fs::create_dir_all(folder.path().join("17/bin")).expect("a folder");
        let newest = newest(folder.path());
        assert_eq!(newest, Some(folder.path().join("16/bin")));
    }
}
