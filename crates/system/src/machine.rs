//! The name under which this process is shown to operators.

use std::fs;

/// Returns the host name and the process id.
pub fn process_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let process = std::process::id();
    format!("{}/{process}", name.trim())
}
