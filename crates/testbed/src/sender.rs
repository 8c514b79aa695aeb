//! Who sent something: the node at the other end of a connection, found out from the system and not from what it says.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::sync::Mutex;

/// Nodes that run, by their processes.
static NODES: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// How often the system's table is read: it is no snapshot, and may miss one connection while others come and go.
const MAX_LOOKS: usize = 5;

/// A node was started.
pub(crate) fn started(pid: u32) {
    NODES.lock().unwrap().insert(pid);
}

/// A node has ended.
pub(crate) fn ended(pid: u32) {
    NODES.lock().unwrap().remove(&pid);
}

/// The process of the node that holds the other end of a connection, from `theirs` to `ours`. None if no node
/// does, or none any more.
pub(crate) fn of(theirs: SocketAddr, ours: SocketAddr) -> Option<u32> {
    let nodes = NODES.lock().unwrap().clone();
    if nodes.is_empty() {
        return None;
    }
    let inode = (0..MAX_LOOKS).find_map(|_| inode(theirs, ours))?;
    let socket = format!("socket:[{inode}]");
    nodes.into_iter().find(|pid| holds(*pid, &socket))
}

/// The number of the socket with these ends.
fn inode(theirs: SocketAddr, ours: SocketAddr) -> Option<String> {
    let (SocketAddr::V4(theirs), SocketAddr::V4(ours)) = (theirs, ours) else {
        return None;
    };
    let written = |address: std::net::SocketAddrV4| {
        let ip = u32::from_ne_bytes(address.ip().octets());
        format!("{ip:08X}:{:04X}", address.port())
    };
    let (theirs, ours) = (written(theirs), written(ours));
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let ends = (words.next()?, words.next()?);
        let is_it = ends == (theirs.as_str(), ours.as_str());
        is_it.then(|| words.nth(6).map(str::to_owned)).flatten()
    })
}

fn holds(pid: u32, socket: &str) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files.flatten().any(|file| {
        let leads_to = fs::read_link(file.path());
        leads_to.is_ok_and(|path| path.as_os_str() == socket)
    })
}
