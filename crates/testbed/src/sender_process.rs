//! Finds the node that sent a request, from the operating system's data about the connection.
//!
//! Nodes register when they start. The sender of a request is the node that has a socket with the ends of its
//! connection, so a test sees which node has really sent it, whatever the request says.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::{fs, io};

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, getpeername, getsockname};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Process ids of the running nodes.
static NODES: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Error message for a system where this process may not copy descriptors of its children.
const REMEDY: &str = "cannot tell which node sent a request (pidfd_getfd, Linux 5.6; in a container add \
     `--cap-add SYS_PTRACE`)";

/// Registers a node that was started.
pub(crate) fn started(pid: u32) {
    NODES.lock().unwrap().insert(pid);
}

/// Removes a node that has ended.
pub(crate) fn ended(pid: u32) {
    NODES.lock().unwrap().remove(&pid);
}

/// Returns the process id of the node that holds the other end of a connection from `theirs` to `ours`. `None` if no
/// running node holds it.
pub(crate) fn of(theirs: SocketAddr, ours: SocketAddr) -> Option<u32> {
    let nodes = NODES.lock().unwrap().clone();
    nodes.into_iter().find(|pid| {
        let holds = holds(*pid, theirs, ours);
        holds.unwrap_or_else(|error| {
            let has_ended = error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(Errno::SRCH.raw_os_error());
            assert!(has_ended, "{REMEDY}: {error}");
            false
        })
    })
}

/// Returns true if a process has the socket with these ends. Reads the addresses from a copy of the descriptor: the
/// system's table of all connections (`/proc/net/tcp`) takes seconds to read when many tests run at once.
fn holds(pid: u32, theirs: SocketAddr, ours: SocketAddr) -> io::Result<bool> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = pidfd_open(number.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
    for file in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let is_socket = fs::read_link(file.path()).is_ok_and(|target| {
            target
                .as_os_str()
                .as_encoded_bytes()
                .starts_with(b"socket:")
        });
        let descriptor = file.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(descriptor) = descriptor.filter(|_| is_socket) else {
            continue;
        };
        let copy = match pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty()) {
            Ok(copy) => copy,
            // The process has closed it since.
            Err(Errno::BADF) => continue,
            Err(error) => return Err(error.into()),
        };
        let is = |end: Option<SocketAddrAny>, address: SocketAddr| {
            end.and_then(|end| SocketAddr::try_from(end).ok()) == Some(address)
        };
        let (from, to) = (getsockname(&copy).ok(), getpeername(&copy).ok().flatten());
        if is(from, theirs) && is(to, ours) {
            return Ok(true);
        }
    }
    Ok(false)
}
