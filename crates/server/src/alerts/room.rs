//! How much room the store has left.

use std::path::Path;

/// The free share of the disk on which a file lies, as far as it can be seen.
pub fn free_share_of_disk(file: &Path) -> Option<f64> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    let disk = rustix::fs::statvfs(folder).ok()?;
    // What only the superuser may use is not free for us.
    (disk.f_blocks > 0).then(|| disk.f_bavail as f64 / disk.f_blocks as f64)
}

/// The free share of what the store may take up.
pub fn free_share_of_limit(stored_bytes: u64, limit_bytes: u64) -> f64 {
    1.0 - (stored_bytes as f64 / limit_bytes.max(1) as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_a_free_share_and_a_place_that_is_not_there_has_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let share = free_share_of_disk(&directory.path().join("posthaste.db"));
        assert!(share.is_some_and(|share| (0.0..=1.0).contains(&share)));
        assert!(free_share_of_disk(Path::new("posthaste.db")).is_some());
        let nowhere = directory.path().join("nowhere/posthaste.db");
        assert_eq!(free_share_of_disk(&nowhere), None);
    }

    #[test]
    fn a_store_past_its_limit_has_nothing_free() {
        assert_eq!(free_share_of_limit(25, 100), 0.75);
        assert_eq!(free_share_of_limit(200, 100), 0.0);
        assert_eq!(free_share_of_limit(0, 0), 1.0);
    }
}
