//! A temporary PostgreSQL database for one benchmark run.
//!
//! [`Database::create`] creates a new database on the server that the URL names; dropping the [`Database`] deletes it.
//! The database in the URL itself is only used for the connection and not written to. [`Database::cpu`] adds up the
//! processor time of all processes of the database server, if it runs on this machine.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use posthaste_engine::database::{EgressDialer, with_password};
use posthaste_store::OpenError;
use posthaste_store::postgres::{Dial, ServerAddress, ServerUrl, Session};
use rustix::param::clock_ticks_per_second;
use url::Url;

use super::error::BenchError;
use super::usage::{Processes, process_ticks};

/// A database that is deleted when this value is dropped.
pub struct Database {
    server: ServerUrl,
    name: String,
    url: String,
}

/// Returns whether a store setting is a PostgreSQL URL.
pub fn is_database(store: &str) -> bool {
    store.starts_with("postgres:") || store.starts_with("postgresql:")
}

/// Parses the URL of a database server.
pub fn server_of(store: &str) -> Result<ServerUrl, BenchError> {
    let server: Result<ServerUrl, _> = store.parse();
    let server = server.map_err(|error| BenchError::Usage(format!("--store {error}")))?;
    Ok(with_password(&server))
}

fn dialer() -> Arc<dyn Dial> {
    Arc::new(EgressDialer)
}

impl Database {
    /// Creates a database.
    pub async fn create(store: &str, name: &str) -> Result<Database, BenchError> {
        let server = server_of(store)?;
        let several_hosts =
            |_| BenchError::Usage("--store must name one host to measure on".to_owned());
        let mut url = Url::parse(store).map_err(several_hosts)?;
        url.set_path(name);
        let database = Database {
            server,
            name: name.to_owned(),
            url: url.to_string(),
        };
        let sql = format!("CREATE DATABASE {name}");
        database.on_server(&sql).await?;
        Ok(database)
    }

    /// Returns its URL, for the server that is measured.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Opens a connection to it.
    pub async fn session(&self) -> Result<Session, BenchError> {
        let own = self.server.clone().with_database(&self.name);
        Session::open(&own, &dialer()).await.map_err(refused)
    }

    async fn on_server(&self, sql: &str) -> Result<(), BenchError> {
        let session = Session::open(&self.server, &dialer()).await;
        let session = session.map_err(refused)?;
        session.batch(sql).await.map_err(refused)
    }

    /// Returns the processor time of all processes of the database server; `None` if they are not visible from here.
    pub async fn cpu(&self) -> Option<Duration> {
        let is_visible = self.server.addresses().iter().all(is_local);
        let session = self.session().await.ok().filter(|_| is_visible)?;
        let pid = session
            .numbers("SELECT pg_backend_pid()::bigint")
            .await
            .ok()?;
        let ours = u32::try_from(*pid.first()?).ok()?;
        cpu_of_server(&LinuxProcesses, ours)
    }
}

/// Deletes the database: the results do not depend on its content.
impl Drop for Database {
    fn drop(&mut self) {
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let server = self.server.clone();
        // The caller may be on a runtime thread, which must not block on another runtime.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                if let Ok(session) = Session::open(&server, &dialer()).await {
                    let _ = session.batch(&sql).await;
                }
            });
        });
        let _ = dropping.join();
    }
}

/// Describes the database server, for readers of the results.
pub fn describe(store: &str) -> Vec<String> {
    let Ok(server) = server_of(store) else {
        return Vec::new();
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return Vec::new();
    };
    runtime.block_on(async {
        let Ok(session) = Session::open(&server, &dialer()).await else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        if let Ok(version) = session.text("SHOW server_version").await {
            lines.push(format!("the store is PostgreSQL {version}"));
        }
        if let Ok("off") = session.text("SHOW fsync").await.as_deref() {
            lines.push("fsync is off, so nothing is safe and the figures mean little".to_owned());
        }
        if !server.addresses().iter().all(is_local) {
            lines.push("its processor time is not seen from here".to_owned());
        }
        lines
    })
}

fn refused(error: OpenError) -> BenchError {
    BenchError::Usage(error.to_string())
}

fn is_local(host: &ServerAddress) -> bool {
    match host {
        ServerAddress::Unix { .. } => true,
        ServerAddress::Tcp { host, .. } => {
            let ip: Result<std::net::IpAddr, _> = host.parse();
            host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
        }
    }
}

/// The processes of this machine.
struct LinuxProcesses;

impl Processes for LinuxProcesses {
    fn stat(&self, pid: u32) -> Option<String> {
        fs::read_to_string(format!("/proc/{pid}/stat")).ok()
    }

    fn all(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let pid =
            |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        entries.filter_map(pid).collect()
    }
}

/// Returns the processor time of a session's database server: of its main process, of that process's finished
/// children, and of all running children.
fn cpu_of_server(processes: &impl Processes, session: u32) -> Option<Duration> {
    let stat = processes.stat(session)?;
    // In another container, the same process id may belong to another program.
    if !stat.contains("(postgres") {
        return None;
    }
    let first = process_ticks(&stat)?.parent;
    let root = process_ticks(&processes.stat(first)?)?;
    let children = processes.all().into_iter().filter_map(|pid| {
        let ticks = process_ticks(&processes.stat(pid)?)?;
        (ticks.parent == first).then_some(ticks.own)
    });
    let ticks = root.own + root.waited_for + children.sum::<u64>();
    let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(clock_ticks_per_second().max(1));
    Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with two child processes, and an unrelated process.
    struct FakeProcesses;

    impl Processes for FakeProcesses {
        fn stat(&self, pid: u32) -> Option<String> {
            let line = |parent: u32, own: u64, waited_for: u64| {
                Some(format!(
                    "{pid} (postgres) S {parent} 1 1 0 -1 0 0 0 0 0 {own} 0 {waited_for} 0 20 0 1"
                ))
            };
            match pid {
                10 => line(1, 5, 1_000),
                11 => line(10, 30, 0),
                12 => line(10, 7, 0),
                13 => line(1, 100_000, 0),
                _ => None,
            }
        }

        fn all(&self) -> Vec<u32> {
            vec![10, 11, 12, 13]
        }
    }

    #[test]
    fn the_usage_of_a_server_includes_all_its_processes() {
        let used = cpu_of_server(&FakeProcesses, 12).unwrap();
        let ticks = used.as_nanos() * u128::from(clock_ticks_per_second()) / 1_000_000_000;
        assert_eq!(ticks, 5 + 1_000 + 30 + 7);
        assert_eq!(cpu_of_server(&FakeProcesses, 99), None);
    }

    #[test]
    fn only_a_loopback_host_is_local() {
        let local = |host: &str| {
            is_local(&ServerAddress::Tcp {
                host: host.to_owned(),
                port: 5_432,
            })
        };
        assert!(local("127.0.0.1") && local("::1") && local("localhost"));
        assert!(!local("10.0.0.1") && !local("db.example"));
    }

    #[test]
    fn postgres_urls_are_recognised() {
        assert!(is_database("postgres://a@b/c") && is_database("postgresql://a@b/c"));
        assert!(!is_database("sqlite:postgres.db"));
        assert!(server_of("postgres://").is_err_and(|error| error.exit_code() == 2));
    }
}
