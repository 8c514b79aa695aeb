//! Resource usage of this process and of the disk below its store, as the operating system reports it.

use std::fs;
use std::path::Path;

/// Resources that this process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Resident memory, in bytes.
    pub memory_bytes: u64,
    /// Open files and sockets.
    pub open_files: u64,
}

impl Process {
    /// Reads the resource usage, if the system provides it.
    pub fn read() -> Option<Process> {
        let statm = fs::read_to_string("/proc/self/statm").ok()?;
        let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
        let open_files = fs::read_dir("/proc/self/fd").ok()?.count();
        Some(Process {
            memory_bytes: pages.saturating_mul(rustix::param::page_size() as u64),
            // Listing the directory opens one itself.
            open_files: (open_files as u64).saturating_sub(1),
        })
    }
}

/// Returns the ratio of the file system below `path` that is free for this process, if the system provides it.
pub fn free_ratio(path: &Path) -> Option<f64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    // Blocks reserved for the superuser count neither as free nor as total.
    let total = disk.f_blocks.checked_sub(disk.f_bfree)? + disk.f_bavail;
    (total > 0).then(|| disk.f_bavail as f64 / total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_and_disk_are_readable() {
        let process = Process::read().expect("Linux reports it");
        assert!(process.memory_bytes > 1 << 20, "{process:?}");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("file");
        let files: Vec<_> = (0..8)
            .map(|number| fs::File::create(path.with_extension(number.to_string())))
            .collect();
        let more = Process::read().expect("Linux reports it").open_files;
        assert!(more >= process.open_files.max(8), "{more}");
        drop(files);
        let free = free_ratio(directory.path()).expect("Linux reports it");
        assert!((0.0..=1.0).contains(&free), "{free}");
        assert_eq!(free_ratio(&path), None, "no such file");
    }
}
