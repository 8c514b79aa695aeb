//! The address of a database server ([`ServerUrl`]), and the trait that opens connections to it ([`Dial`]).
//!
//! The store opens no sockets itself. The program that opens the store provides a [`Dial`], which connects and
//! performs the TLS handshake if one is wanted.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The port of a URL without one.
const DEFAULT_PORT: u16 = 5_432;

/// The network address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A TCP port.
    Tcp {
        /// Host name or IP address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket of this machine.
    Unix {
        /// Path of the socket.
        path: PathBuf,
    },
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Tcp { host, port } if host.contains(':') => {
                write!(formatter, "[{host}]:{port}")
            }
            ServerAddress::Tcp { host, port } => write!(formatter, "{host}:{port}"),
            ServerAddress::Unix { path } => write!(formatter, "{}", path.display()),
        }
    }
}

/// The `sslmode` of a connection: whether TLS is used and what is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// No TLS.
    Disable,
    /// TLS if the server offers it.
    #[default]
    Prefer,
    /// TLS. The certificate is verified only if a root certificate file is given.
    Require,
    /// TLS, with a certificate of a trusted authority.
    VerifyCa,
    /// TLS, with a certificate of a trusted authority for this host.
    VerifyFull,
}

/// TLS settings of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The `sslmode`.
    pub mode: TlsMode,
    /// A file with the trusted authorities, instead of the default ones.
    pub root_cert: Option<PathBuf>,
}

/// A bidirectional byte stream.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// The future that [`Dial::dial`] returns.
pub type DialFuture = Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send>>;

/// Opens connections to a server.
pub trait Dial: Send + Sync {
    /// Connects to an address and negotiates TLS as PostgreSQL does: a request of eight bytes, an answer of one byte,
    /// then the handshake. The returned stream is ready for the PostgreSQL protocol.
    fn dial(&self, address: &ServerAddress, tls: &Tls) -> DialFuture;
}

/// The addresses, user, database and TLS settings of a server. Its password is never shown.
#[derive(Clone)]
pub struct ServerUrl {
    config: Config,
    addresses: Vec<ServerAddress>,
    tls: Tls,
    /// Index of the address to try first. Shared by all clones.
    first: Arc<AtomicUsize>,
}

/// The reason why a text is not a server URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerUrlError {
    /// It cannot be parsed.
    #[error("is not a PostgreSQL URL such as postgres://user@host:5432/database: {0}")]
    Malformed(String),
    /// It has no host.
    #[error("has no host: write postgres://user@host:5432/database")]
    NoHost,
    /// It has more than one `@`, so the host cannot be separated from the password.
    #[error("has more than one @: write %40 for @ in a user name or password")]
    AmbiguousHost,
    /// Its `sslmode` is unknown.
    #[error("sslmode must be disable, prefer, require, verify-ca or verify-full, not {0:?}")]
    TlsMode(String),
}

impl ServerUrl {
    /// The addresses, in the order of the URL.
    pub fn addresses(&self) -> &[ServerAddress] {
        &self.addresses
    }

    /// Returns the addresses with their indexes, starting with the one that is most likely to answer.
    pub(super) fn addresses_to_try(&self) -> impl Iterator<Item = (usize, &ServerAddress)> {
        let first = self.first.load(Ordering::Relaxed) % self.addresses.len();
        let numbered = || self.addresses.iter().enumerate();
        numbered().skip(first).chain(numbered().take(first))
    }

    /// Sets the address that the next connection attempt starts with.
    pub(super) fn set_first_address(&self, address: usize) {
        self.first.store(address, Ordering::Relaxed);
    }

    /// The TLS settings.
    pub fn tls(&self) -> &Tls {
        &self.tls
    }

    /// The name of the database.
    pub fn database(&self) -> &str {
        let named = self.config.get_dbname().or(self.config.get_user());
        named.unwrap_or("postgres")
    }

    /// The name of the user.
    pub fn user(&self) -> &str {
        self.config.get_user().unwrap_or("postgres")
    }

    /// Returns whether the URL has a password.
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Sets this password, unless the URL has one.
    pub fn with_default_password(mut self, password: &str) -> ServerUrl {
        if !self.has_password() {
            self.config.password(password);
        }
        self
    }

    /// Replaces the database.
    pub fn with_database(mut self, database: &str) -> ServerUrl {
        self.config.dbname(database);
        self
    }

    /// Replaces the addresses with a single one.
    pub fn with_address(mut self, address: ServerAddress) -> ServerUrl {
        self.addresses = vec![address];
        self.first = Arc::default();
        self
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }
}

/// Without the password.
impl fmt::Display for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "postgres://{}@", self.user())?;
        for (number, address) in self.addresses.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            write!(formatter, "{comma}{address}")?;
        }
        write!(formatter, "/{}", self.database())
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<ServerUrl, ServerUrlError> {
        // The two TLS parameters are parsed here, the rest by the library.
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let mut tls = Tls::default();
        let mut rest = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", mode)) => tls.mode = mode.parse()?,
                Some(("sslrootcert", file)) => tls.root_cert = Some(unescaped(file).into()),
                Some(_) | None => rest.push(parameter),
            }
        }
        let mut plain = path.to_owned();
        if !rest.is_empty() {
            plain.push('?');
            plain.push_str(&rest.join("&"));
        }
        let config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
            let why =
                std::error::Error::source(&error).map_or(error.to_string(), |it| it.to_string());
            ServerUrlError::Malformed(why)
        })?;
        let addresses = addresses(&config);
        if addresses.is_empty() {
            return Err(ServerUrlError::NoHost);
        }
        // The text before the last `@` belongs to the password, and hosts and databases are shown.
        if path.matches('@').count() > 1 {
            return Err(ServerUrlError::AmbiguousHost);
        }
        Ok(ServerUrl {
            config,
            addresses,
            tls,
            first: Arc::default(),
        })
    }
}

impl FromStr for TlsMode {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<TlsMode, ServerUrlError> {
        Ok(match text {
            "disable" => TlsMode::Disable,
            "prefer" => TlsMode::Prefer,
            "require" => TlsMode::Require,
            "verify-ca" => TlsMode::VerifyCa,
            "verify-full" => TlsMode::VerifyFull,
            other => return Err(ServerUrlError::TlsMode(other.to_owned())),
        })
    }
}

fn addresses(config: &Config) -> Vec<ServerAddress> {
    let ports = config.get_ports();
    let port_of = |number: usize| {
        let port = ports.get(number).or(ports.first());
        port.copied().unwrap_or(DEFAULT_PORT)
    };
    let hosts = config.get_hosts().iter().enumerate();
    hosts
        .map(|(number, host)| match host {
            Host::Tcp(host) => ServerAddress::Tcp {
                host: host.clone(),
                port: port_of(number),
            },
            #[cfg(unix)]
            Host::Unix(directory) => ServerAddress::Unix {
                path: directory.join(format!(".s.PGSQL.{}", port_of(number))),
            },
        })
        .collect()
}

/// Decodes the percent-encoding of a URL.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = tail.get(..2).filter(|_| *first == b'%');
        let hex = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> ServerUrl {
        text.parse().expect("a URL")
    }

    #[test]
    fn urls_name_server_and_user() {
        let url = read(
            "postgres://ada:secret@db.example:6432/hooks?sslmode=verify-full&sslrootcert=%2Fca.pem",
        );
        let address = ServerAddress::Tcp {
            host: "db.example".to_owned(),
            port: 6_432,
        };
        assert_eq!(url.addresses(), [address]);
        assert_eq!((url.user(), url.database()), ("ada", "hooks"));
        assert_eq!(url.tls().mode, TlsMode::VerifyFull);
        assert_eq!(url.tls().root_cert, Some(PathBuf::from("/ca.pem")));
        assert!(url.has_password());
    }

    #[test]
    fn passwords_are_never_shown() {
        let url = read("postgres://ada:hunter2@db.example/hooks");
        for shown in [url.to_string(), format!("{url:?}")] {
            assert!(!shown.contains("hunter2"), "{shown}");
            assert_eq!(shown, "postgres://ada@db.example:5432/hooks");
        }
    }

    #[test]
    fn sockets_of_this_machine_and_several_hosts_are_places() {
        let url = read("postgres://ada@%2Frun%2Fpostgresql/hooks");
        let path = PathBuf::from("/run/postgresql/.s.PGSQL.5432");
        assert_eq!(url.addresses(), [ServerAddress::Unix { path }]);
        let url = read("postgres://ada@one:1,two:2/hooks");
        assert_eq!(url.to_string(), "postgres://ada@one:1,two:2/hooks");
    }

    #[test]
    fn an_unresponsive_server_is_tried_last_next_time() {
        let url = read("postgres://ada@one:1,two:2,three:3/hooks");
        let order = |url: &ServerUrl| {
            url.addresses_to_try()
                .map(|(number, _)| number)
                .collect::<Vec<_>>()
        };
        assert_eq!(order(&url), [0, 1, 2]);
        url.clone().set_first_address(1);
        assert_eq!(order(&url), [1, 2, 0]);
        url.set_first_address(3);
        assert_eq!(order(&url), [0, 1, 2]);
    }

    #[test]
    fn no_part_of_a_password_is_taken_for_a_host() {
        for text in [
            "postgres://ada:hunter2@hunter3@db/hooks",
            "postgres://ada:p@hunter/hun#ter@db/hooks",
            "postgres://ada:hun?ter2@db/hooks",
            "postgres://ada:hunter2@db:hunter3/hooks",
            "postgres://ada:hun/ter2@db/hooks",
            "postgres://ada:%zzhunter2@db/hooks",
        ] {
            let said = match text.parse::<ServerUrl>() {
                Ok(url) => url.to_string(),
                Err(error) => error.to_string(),
            };
            assert!(!said.contains("ter"), "{text}: {said}");
        }
        let url = read("postgres://ada:hunter%402%3F@db/hooks");
        assert_eq!(url.config().get_password(), Some(&b"hunter@2?"[..]));
    }

    #[test]
    fn invalid_urls_are_refused() {
        for text in [
            "postgres:///hooks",
            "postgres://ada@db/x?sslmode=perhaps",
            "postgres://ada@db/x?nonsense=1",
        ] {
            assert!(text.parse::<ServerUrl>().is_err(), "{text}");
        }
    }
}
