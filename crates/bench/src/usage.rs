//! Resource usage of processes, read from Linux's `/proc`.
//!
//! [`Usage`] is the processor time, memory and bytes written of one process. [`process_ticks`] reads the processor time
//! of any process and its children, for the database server. A value that `/proc` lacks is an error, never zero.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Resource usage of a process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, user and system.
    pub cpu: Duration,
    /// Maximum memory.
    pub peak_memory_bytes: u64,
    /// Current memory.
    pub memory_bytes: u64,
    /// Bytes written to storage. Zero if the storage is in memory (tmpfs).
    pub written_bytes: u64,
}

impl Usage {
    /// Reads the usage of a process. Fails if `/proc` lacks a value.
    pub fn of(pid: u32) -> io::Result<Usage> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let (stat, status, io) = (read("stat")?, read("status")?, read("io")?);
        Usage::parse(&stat, &status, &io, rustix::param::clock_ticks_per_second())
            .ok_or_else(|| io::Error::other("/proc is not as expected"))
    }

    /// Returns the sum of two usages.
    pub fn plus(&self, other: &Usage) -> Usage {
        Usage {
            cpu: self.cpu + other.cpu,
            peak_memory_bytes: self.peak_memory_bytes + other.peak_memory_bytes,
            memory_bytes: self.memory_bytes + other.memory_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }

    fn parse(stat: &str, status: &str, io: &str, ticks_per_second: u64) -> Option<Usage> {
        let ticks = cpu_ticks(stat)?;
        let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second.max(1));
        let kib = |name| field(status, name)?.checked_mul(1_024);
        Some(Usage {
            cpu: Duration::from_nanos(u64::try_from(nanos).ok()?),
            peak_memory_bytes: kib("VmHWM")?,
            memory_bytes: kib("VmRSS")?,
            written_bytes: field(io, "write_bytes")?,
        })
    }
}

/// The processes of a machine, as in `/proc`.
pub trait Processes {
    /// Returns the `stat` line of a process.
    fn stat(&self, pid: u32) -> Option<String>;
    /// Returns the ids of all processes.
    fn all(&self) -> Vec<u32>;
}

/// Parent and processor time of a process, in clock ticks, from its `stat` line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessTicks {
    /// Process id of the parent.
    pub parent: u32,
    /// Time of the process itself.
    pub own: u64,
    /// Time of ended children that it has waited for.
    pub waited_for: u64,
}

/// Parses a `stat` line.
pub fn process_ticks(stat: &str) -> Option<ProcessTicks> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(ProcessTicks {
        parent: fields.get(1)?.parse().ok()?,
        own: number(11)?.checked_add(number(12)?)?,
        waited_for: number(13)?.checked_add(number(14)?)?,
    })
}

/// Parses user and system time from a `stat` line. The process name before them may contain spaces and brackets.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    user.checked_add(system)
}

/// Parses a number from lines such as `VmHWM:  1234 kB`, without its unit.
fn field(lines: &str, name: &str) -> Option<u64> {
    lines.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        value.split_whitespace().next()?.parse().ok()
    })
}

/// Returns the type of the file system that a path is on, according to `/proc/mounts`: that of the deepest mount
/// above it.
pub fn file_system<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let at = words.next()?;
        let kind = words.next()?;
        path.starts_with(at).then_some((at.len(), kind))
    });
    // Of two mounts at the same path, the later one is visible.
    mounts.max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "41 (a (b) c) S 1 41 41 0 -1 4194560 99 0 0 0 250 50 7 9 20 0 4 0 1 2 3";
    const STATUS: &str = "Name:\tposthaste\nVmPeak:\t  90 kB\nVmHWM:\t   40 kB\nVmRSS:\t   30 kB\n";
    const IO: &str = "rchar: 1\nwchar: 2\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n";

    #[test]
    fn usage_is_read_for_any_process_name() {
        let usage = Usage::parse(STAT, STATUS, IO, 100).unwrap();
        assert_eq!(usage.cpu, Duration::from_secs(3));
        assert_eq!(usage.peak_memory_bytes, 40 * 1_024);
        assert_eq!(usage.memory_bytes, 30 * 1_024);
        assert_eq!(usage.written_bytes, 8_192);
    }

    #[test]
    fn a_missing_value_is_an_error() {
        assert_eq!(Usage::parse("41 (a) S 1", STATUS, IO, 100), None);
        assert_eq!(Usage::parse(STAT, "Name: x\n", IO, 100), None);
        assert_eq!(Usage::parse(STAT, STATUS, "rchar: 1\n", 100), None);
    }

    #[test]
    fn this_process_has_used_memory() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.memory_bytes > 0);
        assert!(usage.peak_memory_bytes >= usage.memory_bytes);
    }

    #[test]
    fn the_deepest_mount_counts() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nx /tm xfs rw 0 0\n\
                      y /tmp/a btrfs rw 0 0\n";
        let on = |path: &str| file_system(mounts, Path::new(path));
        assert_eq!(on("/tmp/bench"), Some("tmpfs"));
        assert_eq!(on("/tmpfoo"), Some("ext4"));
        assert_eq!(on("/tmp/a/b"), Some("btrfs"));
        assert_eq!(file_system("", Path::new("/")), None);
    }
}
