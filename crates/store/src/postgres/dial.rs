//! The way to the server, opened by somebody else.
//!
//! The store opens no sockets: whoever opens the store says how its server is reached, and speaks TLS
//! with it first if that is wanted.

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

/// The port of a server whose URL does not say.
const DEFAULT_PORT: u16 = 5_432;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On a port of a host.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// On a socket of this machine.
    Unix {
        /// The socket's file.
        path: PathBuf,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp { host, port } if host.contains(':') => write!(formatter, "[{host}]:{port}"),
            Place::Tcp { host, port } => write!(formatter, "{host}:{port}"),
            Place::Unix { path } => write!(formatter, "{}", path.display()),
        }
    }
}

/// How far the way to the server is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// No TLS.
    Disable,
    /// TLS if the server offers it.
    #[default]
    Prefer,
    /// TLS, whoever answers.
    Require,
    /// TLS, with a certificate of a trusted authority.
    VerifyCa,
    /// TLS, with a certificate of a trusted authority for this host.
    VerifyFull,
}

/// Which TLS is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// How far the way is trusted.
    pub mode: TlsMode,
    /// A file with the authorities that are trusted instead of the usual ones.
    pub root_cert: Option<PathBuf>,
}

/// Bytes in both directions.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// What dialling will answer.
pub type Dialled = Pin<Box<dyn Future<Output = io::Result<Box<dyn Wire>>> + Send>>;

/// Opens the way to a server.
pub trait Dial: Send + Sync {
    /// Connects to a place and, if that is wanted, asks it for TLS as PostgreSQL has it done: a request of
    /// eight bytes, an answer of one, then the handshake. What comes back is ready for the protocol.
    fn dial(&self, place: &Place, tls: &Tls) -> Dialled;
}

/// Where a server is, and as whom one speaks to it. Its password is never shown.
#[derive(Clone)]
pub struct ServerUrl {
    config: Config,
    places: Vec<Place>,
    tls: Tls,
    /// The place to try first. Clones share what they learn.
    first: Arc<AtomicUsize>,
}

/// Why a text is no URL of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerUrlError {
    /// It does not read as one.
    #[error("is not a PostgreSQL URL like postgres://user@host:5432/database: {0}")]
    Malformed(String),
    /// It names no host.
    #[error("names no host: write postgres://user@host:5432/database")]
    NoHost,
    /// Its name and password are not told from its host.
    #[error("has an @ too many: in a name or a password write %40 for @")]
    AmbiguousHost,
    /// It asks for TLS in a way that does not exist.
    #[error("sslmode may be disable, prefer, require, verify-ca or verify-full, not {0:?}")]
    TlsMode(String),
}

impl ServerUrl {
    /// The places to try, one after the other.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The places with their numbers, beginning with the one that is most likely to answer.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = (usize, &Place)> {
        let first = self.first.load(Ordering::Relaxed) % self.places.len();
        let numbered = || self.places.iter().enumerate();
        numbered().skip(first).chain(numbered().take(first))
    }

    /// The next who tries begins with this one.
    pub(super) fn begin_with(&self, place: usize) {
        self.first.store(place, Ordering::Relaxed);
    }

    /// Which TLS is wanted.
    pub fn tls(&self) -> &Tls {
        &self.tls
    }

    /// The database, by name.
    pub fn database(&self) -> &str {
        let named = self.config.get_dbname().or(self.config.get_user());
        named.unwrap_or("postgres")
    }

    /// As whom one speaks to it.
    pub fn user(&self) -> &str {
        self.config.get_user().unwrap_or("postgres")
    }

    /// Whether a password is known.
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// The same with this password, unless it has one.
    pub fn or_password(mut self, password: &str) -> ServerUrl {
        if !self.has_password() {
            self.config.password(password);
        }
        self
    }

    /// The same server, another database of it.
    pub fn with_database(mut self, database: &str) -> ServerUrl {
        self.config.dbname(database);
        self
    }

    /// The same, reached at another place.
    pub fn with_place(mut self, place: Place) -> ServerUrl {
        self.places = vec![place];
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
        for (number, place) in self.places.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            write!(formatter, "{comma}{place}")?;
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
        // Two parameters are ours to understand; the rest is the library's.
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
        let places = places(&config);
        if places.is_empty() {
            return Err(ServerUrlError::NoHost);
        }
        // What stands before the last one is part of a password, and hosts and databases are shown.
        if path.matches('@').count() > 1 {
            return Err(ServerUrlError::AmbiguousHost);
        }
        Ok(ServerUrl {
            config,
            places,
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

fn places(config: &Config) -> Vec<Place> {
    let ports = config.get_ports();
    let port_of = |number: usize| {
        let port = ports.get(number).or(ports.first());
        port.copied().unwrap_or(DEFAULT_PORT)
    };
    let hosts = config.get_hosts().iter().enumerate();
    hosts
        .map(|(number, host)| match host {
            Host::Tcp(host) => Place::Tcp {
                host: host.clone(),
                port: port_of(number),
            },
            #[cfg(unix)]
            Host::Unix(directory) => Place::Unix {
                path: directory.join(format!(".s.PGSQL.{}", port_of(number))),
            },
        })
        .collect()
}

/// Undoes the escapes of a URL.
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
    fn urls_say_where_and_as_whom() {
        let url = read(
            "postgres://ada:secret@db.example:6432/hooks?sslmode=verify-full&sslrootcert=%2Fca.pem",
        );
        let place = Place::Tcp {
            host: "db.example".to_owned(),
            port: 6_432,
        };
        assert_eq!(url.places(), [place]);
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
        assert_eq!(url.places(), [Place::Unix { path }]);
        let url = read("postgres://ada@one:1,two:2/hooks");
        assert_eq!(url.to_string(), "postgres://ada@one:1,two:2/hooks");
    }

    #[test]
    fn a_place_that_keeps_silent_is_tried_last_the_next_time() {
        let url = read("postgres://ada@one:1,two:2,three:3/hooks");
        let order = |url: &ServerUrl| url.in_turn().map(|(number, _)| number).collect::<Vec<_>>();
        assert_eq!(order(&url), [0, 1, 2]);
        url.clone().begin_with(1);
        assert_eq!(order(&url), [1, 2, 0]);
        url.begin_with(3);
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
    fn what_is_no_url_is_refused() {
        for text in [
            "postgres:///hooks",
            "postgres://ada@db/x?sslmode=perhaps",
            "postgres://ada@db/x?nonsense=1",
        ] {
            assert!(text.parse::<ServerUrl>().is_err(), "{text}");
        }
    }
}
