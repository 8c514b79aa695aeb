//! TLS to the database, and the verification of its certificate.

use posthaste_testbed::{Database, Node, NodeOptions, PrivatePostgres};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::start::{PROGRAM, failing};

/// Creates an authority and a certificate for one name: authority, certificate and key.
fn certificate_for(name: &str) -> (String, String, String) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(authority, key).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new([name.to_owned()]).expect("parameters");
    let certificate = certificate
        .signed_by(&key, &authority)
        .expect("a certificate");
    (authority.pem(), certificate.pem(), key.serialize_pem())
}

#[test]
fn the_certificate_of_the_database_is_verified() {
    let (authority, certificate, key) = certificate_for("localhost");
    let (other, _, _) = certificate_for("localhost");
    let server = PrivatePostgres::start_with_tls(&certificate, &key);
    let database = Database::on(&server);
    let sessions = "SELECT count(*) FROM pg_stat_ssl WHERE ssl";
    let home = tempfile::tempdir().expect("a directory");
    let keep = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string().replace('/', "%2F")
    };
    let (authority, other) = (
        keep("authority.pem", &authority),
        keep("other_authority.pem", &other),
    );
    let port = server.address().port();
    let name = database
        .url()
        .rsplit('/')
        .next()
        .map(str::to_owned)
        .expect("a name");
    let url = |host: &str, trust: &str| format!("postgres://postgres@{host}:{port}/{name}?{trust}");

    for (trust, words) in [
        // A certificate for another name, from an unknown authority, or from the wrong authority.
        (
            url(
                "127.0.0.1",
                &format!("sslmode=verify-full&sslrootcert={authority}"),
            ),
            "name",
        ),
        (url("localhost", "sslmode=verify-full"), "certificate"),
        (
            url(
                "localhost",
                &format!("sslmode=verify-ca&sslrootcert={other}"),
            ),
            "certificate",
        ),
    ] {
        let serve = ["serve", "--store", &trust, "--listen", "127.0.0.1:0"];
        let (code, said) = failing(&serve);
        assert_eq!(code, Some(1), "{trust}: {said}");
        assert!(said.contains(words), "{trust}: {said}");
    }
    for trust in [
        url(
            "localhost",
            &format!("sslmode=verify-full&sslrootcert={authority}"),
        ),
        url(
            "127.0.0.1",
            &format!("sslmode=verify-ca&sslrootcert={authority}"),
        ),
        url("127.0.0.1", "sslmode=require"),
        url("127.0.0.1", "sslmode=prefer"),
    ] {
        let launch = NodeOptions::new(PROGRAM, &trust, home.path());
        let mut node = Node::start(&launch);
        assert!(database.number(sessions) > 0, "{trust}");
        assert!(node.stop().success(), "{trust}");
    }
}
