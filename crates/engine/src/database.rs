//! Opens connections to a PostgreSQL database through the egress crate.
//!
//! [`EgressDialer`] is what the store connects with. TLS is verified as PostgreSQL's own clients do, and
//! [`with_password`] takes a missing password from `PGPASSWORD`.

use std::fs;
use std::io;
use std::path::Path;

use posthaste_egress::Roots;
use posthaste_egress::database::{self, TlsVerification};
use posthaste_store::postgres::{
    ByteStream, Dial, DialFuture, ServerAddress, ServerUrl, Tls, TlsMode,
};

/// Maximum size of a file of root certificates, in bytes.
const MAX_ROOTS_BYTES: u64 = 16 << 20;

/// Returns the server with a password. If its URL has none, `PGPASSWORD` is used, as by PostgreSQL's own programs.
pub fn with_password(server: &ServerUrl) -> ServerUrl {
    match std::env::var("PGPASSWORD") {
        Ok(password) if !password.is_empty() => server.clone().with_default_password(&password),
        Ok(_) | Err(_) => server.clone(),
    }
}

/// Opens connections to a database.
pub struct EgressDialer;

impl Dial for EgressDialer {
    fn dial(&self, address: &ServerAddress, tls: &Tls) -> DialFuture {
        let address = match address.clone() {
            ServerAddress::Tcp { host, port } => database::ServerAddress::Tcp { host, port },
            ServerAddress::Unix { path } => database::ServerAddress::Unix(path),
        };
        let trust = tls_verification(tls);
        Box::pin(async move {
            let wire = database::dial(&address, &trust?).await?;
            Ok(Box::new(wire) as Box<dyn ByteStream>)
        })
    }
}

/// Converts the TLS settings in the way of PostgreSQL's own clients: with a root certificate file, `require` verifies
/// the certificate too.
fn tls_verification(tls: &Tls) -> io::Result<TlsVerification> {
    let named = tls.root_cert.as_deref();
    Ok(match (tls.mode, named) {
        (TlsMode::Disable, _) => TlsVerification::Disable,
        (TlsMode::Prefer, _) => TlsVerification::Prefer,
        (TlsMode::Require, None) => TlsVerification::Require,
        (TlsMode::Require | TlsMode::VerifyCa, named) => TlsVerification::VerifyCa(roots(named)?),
        (TlsMode::VerifyFull, named) => TlsVerification::VerifyFull(roots(named)?),
    })
}

/// Reads the root certificates of a file. Without a file, returns Mozilla's.
fn roots(file: Option<&Path>) -> io::Result<Roots> {
    let Some(file) = file else {
        return Ok(Roots::mozilla());
    };
    let path = file.display();
    let unreadable = |error| io::Error::other(format!("sslrootcert {path}: {error}"));
    if fs::metadata(file).map_err(unreadable)?.len() > MAX_ROOTS_BYTES {
        let large = format!("sslrootcert {path} is too large to be a bundle of certificates");
        return Err(io::Error::other(large));
    }
    let pem = fs::read(file).map_err(unreadable)?;
    let roots = Roots::none().with_bundle(&pem);
    roots.map_err(|error| io::Error::other(format!("sslrootcert {path}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(mode: TlsMode, root_cert: Option<&str>) -> String {
        let tls = Tls {
            mode,
            root_cert: root_cert.map(Into::into),
        };
        match tls_verification(&tls) {
            Ok(TlsVerification::Disable) => "plain".to_owned(),
            Ok(TlsVerification::Prefer) => "if offered".to_owned(),
            Ok(TlsVerification::Require) => "anybody".to_owned(),
            Ok(TlsVerification::VerifyCa(_)) => "authority".to_owned(),
            Ok(TlsVerification::VerifyFull(_)) => "host".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn tls_is_verified_as_the_url_asks() {
        assert_eq!(kind(TlsMode::Disable, None), "plain");
        assert_eq!(kind(TlsMode::Prefer, None), "if offered");
        assert_eq!(kind(TlsMode::Require, None), "anybody");
        assert_eq!(kind(TlsMode::VerifyCa, None), "authority");
        assert_eq!(kind(TlsMode::VerifyFull, None), "host");
        let missing = kind(TlsMode::Require, Some("/nowhere/ca.pem"));
        assert!(missing.contains("sslrootcert /nowhere/ca.pem"), "{missing}");
    }
}
