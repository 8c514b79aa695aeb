//! Tests of the vault: sealing and opening, key files, rotation.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use base64::prelude::{BASE64_STANDARD, Engine};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const ENDPOINT: EndpointId = EndpointId(7);

fn acme() -> TenantId {
    "acme".parse().expect("a name")
}

fn key(byte: u8) -> MasterKey {
    let text = BASE64_STANDARD.encode([byte; KEY_BYTES]);
    let mut keys = keys::read_text(&text, "test").expect("a key");
    keys.remove(0)
}

fn vault(bytes: &[u8]) -> Vault {
    Vault::new(bytes.iter().copied().map(key).collect())
}

fn from_text(text: &str) -> Result<Vault, VaultError> {
    Vault::open_or_create(KeySource::Text {
        text: text.to_owned(),
        origin: "POSTHASTE_MASTER_KEY".to_owned(),
    })
}

fn from_file(path: &Path, may_create: bool) -> Result<Vault, VaultError> {
    Vault::open_or_create(KeySource::File {
        path: path.to_owned(),
        may_create,
    })
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("posthaste.db.key");
    (folder, path)
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permitted");
}

fn files_in(folder: &TempDir) -> usize {
    fs::read_dir(folder.path()).expect("a folder").count()
}

proptest! {
    #[test]
    fn sealed_data_opens_only_for_its_own_row(
        plain in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let vault = vault(&[1]);
        let sealed = vault.seal(&acme(), ENDPOINT, Purpose::Headers, &plain);
        let opened = vault.open(&acme(), ENDPOINT, Purpose::Headers, &sealed);
        prop_assert_eq!(opened.expect("it is opened where it was sealed"), plain);
        let elsewhere = [
            ("acmf".parse().expect("a name"), ENDPOINT, Purpose::Headers),
            (acme(), EndpointId(8), Purpose::Headers),
            (acme(), ENDPOINT, Purpose::SigningKeys),
        ];
        for (tenant, endpoint, purpose) in elsewhere {
            let opened = vault.open(&tenant, endpoint, purpose, &sealed);
            prop_assert!(matches!(opened, Err(VaultError::Altered)), "{tenant} {endpoint}");
        }
    }
}

#[test]
fn a_flipped_bit_or_a_missing_byte_opens_nothing() {
    let vault = vault(&[1]);
    let sealed = vault.seal(&acme(), ENDPOINT, Purpose::Headers, b"X-Team: billing");
    let open = |sealed: &[u8]| vault.open(&acme(), ENDPOINT, Purpose::Headers, sealed);
    for bit in 0..sealed.len() * 8 {
        let mut flipped = sealed.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(open(&flipped).is_err(), "bit {bit}");
    }
    for length in 0..sealed.len() {
        assert!(open(&sealed[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn the_same_is_never_sealed_the_same() {
    let vault = vault(&[1]);
    let seal = || vault.seal(&acme(), ENDPOINT, Purpose::Headers, b"the same");
    let (one, two) = (seal(), seal());
    assert_ne!(one, two);
    assert_eq!(one.len(), two.len());
}

/// Stored data must open after an upgrade. The example was sealed by another implementation.
#[test]
fn the_layout_stays() {
    let example = [
        b"\x01\x92\x90\x03\xd6\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09\x09".as_slice(),
        b"\xf9\xe1\x97\x16\x0d\x23\x8c\x6b\xd8\xa6\x7e\x80\xd2\x81\xc1\xe7\x3c\xd2\xb2\x3a\xc0",
    ]
    .concat();
    let opened = vault(&[1]).open(&acme(), ENDPOINT, Purpose::SigningKeys, &example);
    assert_eq!(opened.expect("opens"), b"whsec");
    let vault = vault(&[1]);
    let sealed = vault.seal(&acme(), ENDPOINT, Purpose::SigningKeys, b"whsec");
    assert_eq!(sealed[0], 1);
    assert_eq!(sealed[1..5], vault.newest_key().0);
    assert_eq!(sealed.len(), 1 + 4 + 12 + 5 + 16);
    assert_eq!(
        associated_data(FORMAT, &acme(), ENDPOINT, Purpose::SigningKeys),
        b"\0\0\0\x0fposthaste vault\0\0\0\x01\x01\0\0\0\x04acme\
          \0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\x01\x01"
    );
}

#[test]
fn rotation_keeps_what_was_sealed_and_moves_it_over() {
    let old = vault(&[1]);
    let both = vault(&[2, 1]);
    let new = vault(&[2]);
    let open =
        |vault: &Vault, sealed: &[u8]| vault.open(&acme(), ENDPOINT, Purpose::SigningKeys, sealed);
    let sealed = old.seal(&acme(), ENDPOINT, Purpose::SigningKeys, b"whsec");
    assert_eq!(open(&both, &sealed).expect("an old key"), b"whsec");
    assert!(both.needs_resealing(&sealed) && !old.needs_resealing(&sealed));
    let unknown = open(&new, &sealed).expect_err("no such key");
    assert!(
        matches!(unknown, VaultError::UnknownKey { id } if id == old.newest_key()),
        "{unknown}"
    );
    let resealed = both
        .reseal(&acme(), ENDPOINT, Purpose::SigningKeys, &sealed)
        .expect("opens")
        .expect("needed it");
    assert_eq!(open(&new, &resealed).expect("the new key"), b"whsec");
    assert!(!both.needs_resealing(&resealed));
    assert!(!both.needs_resealing(b""), "nothing is sealed there");
}

#[test]
fn an_endpoint_is_moved_over_as_a_whole() {
    let (old, both, new) = (vault(&[1]), vault(&[2, 1]), vault(&[2]));
    let seal = |vault: &Vault, purpose| vault.seal(&acme(), ENDPOINT, purpose, b"hidden");
    let endpoint = Endpoint {
        sealed_headers: seal(&old, Purpose::Headers),
        sealed_keys: seal(&both, Purpose::SigningKeys),
        signature_style: posthaste_core::sign::SignatureStyle::Standard,
        sealed_credentials: seal(&old, Purpose::Credentials),
        owner_email_confirmed: true,
        revision: 3,
        ..Endpoint::new(
            ENDPOINT,
            acme(),
            "https://hooks.customer.com/".to_owned(),
            posthaste_core::time::Timestamp(0),
        )
    };
    let moved = both.reseal_endpoint(&endpoint).expect("opens");
    let moved = moved.expect("its headers needed it");
    assert_eq!(moved.sealed_keys, endpoint.sealed_keys);
    let headers = new.open(&acme(), ENDPOINT, Purpose::Headers, &moved.sealed_headers);
    assert_eq!(headers.expect("the new key"), b"hidden");
    let credentials = &moved.sealed_credentials;
    let credentials = new.open(&acme(), ENDPOINT, Purpose::Credentials, credentials);
    assert_eq!(credentials.expect("the new key"), b"hidden");
    assert_eq!(both.reseal_endpoint(&moved).expect("opens"), None);
    assert!(new.reseal_endpoint(&endpoint).is_err());
}

#[test]
fn the_first_start_makes_a_key_that_only_its_owner_reads() {
    let (folder, path) = folder();
    let made = from_file(&path, true).expect("a new key");
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(files_in(&folder), 1, "no draft is left behind");
    let sealed = made.seal(&acme(), ENDPOINT, Purpose::Headers, b"hidden");
    let again = from_file(&path, true).expect("the same key");
    let opened = again.open(&acme(), ENDPOINT, Purpose::Headers, &sealed);
    assert_eq!(opened.expect("opens after a restart"), b"hidden");
}

#[test]
fn where_data_is_sealed_a_missing_key_is_not_replaced() {
    let (folder, path) = folder();
    let error = from_file(&path, false).expect_err("no key").to_string();
    assert!(error.contains("restore it"), "{error}");
    assert_eq!(files_in(&folder), 0);

    let database = folder.path().join("posthaste.db");
    assert_eq!(key_file_beside(&database), path);
    fs::write(&database, "").expect("written");
    let source = KeySource::for_database(path.clone(), &database);
    assert!(matches!(
        source,
        KeySource::File {
            may_create: true,
            ..
        }
    ));
    fs::write(&database, "SQLite").expect("written");
    let source = KeySource::for_database(path, &database);
    assert!(matches!(
        source,
        KeySource::File {
            may_create: false,
            ..
        }
    ));
}

#[test]
fn of_two_that_create_at_once_both_use_the_same_key() {
    let (_folder, path) = folder();
    let ids: Vec<MasterKeyId> = std::thread::scope(|scope| {
        let make = || file::create(&path).expect("a key")[0].id();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, MasterKeyId>| thread.join();
        threads
            .into_iter()
            .map(|t| join(t).expect("an id"))
            .collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn a_file_that_others_reach_is_refused() {
    let (_folder, path) = folder();
    for mode in [0o644, 0o604, 0o602, 0o601, 0o620, 0o666] {
        write(&path, &key(1).line(), mode);
        let error = from_file(&path, true).expect_err("exposed").to_string();
        assert!(error.contains("chmod 600"), "{error}");
        assert!(error.contains(&format!("{mode:o}")), "{error}");
    }
    for mode in [0o600, 0o400] {
        write(&path, &key(1).line(), mode);
        assert!(from_file(&path, true).is_ok(), "{mode:o}");
    }
}

#[test]
fn malformed_keys_are_reported_by_line_and_never_shown() {
    let good = key(1).line();
    let good = good.trim();
    let (id, secret) = good.split_once(' ').expect("two words");
    let other = key(2).line();
    let (other_id, _) = other.split_once(' ').expect("two words");
    let short = BASE64_STANDARD.encode([1; 31]);
    let many: String = (0..=MAX_KEYS as u8).map(|byte| key(byte).line()).collect();
    let cases = [
        (String::new(), 1, Flaw::Empty),
        ("\n# only a remark\n".to_owned(), 1, Flaw::Empty),
        (format!("{good}\n{id} {short}\n"), 2, Flaw::Key),
        (format!("{good}\n\nnonsense!\n"), 3, Flaw::Key),
        (format!("{other_id} {secret}"), 1, Flaw::Id),
        (format!("{good} again"), 1, Flaw::Form),
        (format!("{good}\n{secret}\n"), 2, Flaw::Twice),
        (many, MAX_KEYS + 1, Flaw::TooMany),
        ("x".repeat(10_000), 1, Flaw::TooLong),
    ];
    let (_folder, path) = folder();
    for (text, at, expected) in cases {
        write(&path, &text, 0o600);
        let error = from_file(&path, true).expect_err("malformed");
        let shown = format!("{error} {error:?}");
        assert!(
            !shown.contains(secret) && !shown.contains(&short),
            "{shown}"
        );
        let VaultError::Malformed { line, flaw, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((line, flaw), (at, expected), "{text:.60}");
    }
    fs::write(&path, [0xff, 0xfe]).expect("written");
    let error = from_file(&path, true).expect_err("not text");
    assert!(
        matches!(
            error,
            VaultError::Malformed {
                flaw: Flaw::NotText,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_key_may_come_as_text() {
    let secret = BASE64_STANDARD.encode([1; KEY_BYTES]);
    let older = key(2).line();
    let alone = from_text(&format!(" {secret}\n")).expect("a key alone");
    assert_eq!(alone.newest_key(), key(1).id());
    let both = from_text(&format!("{secret}, {older}")).expect("two keys");
    assert_eq!((both.keys.len(), both.newest_key()), (2, key(1).id()));
    let error = from_text("swordfish").expect_err("no key").to_string();
    assert!(
        error.starts_with("POSTHASTE_MASTER_KEY, line 1: "),
        "{error}"
    );
    assert!(!error.contains("swordfish"), "{error}");
}

#[test]
fn rotating_the_file_puts_a_new_key_first() {
    let (folder, path) = folder();
    let old = from_file(&path, true).expect("a new key");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).expect("permitted");
    let sealed = old.seal(&acme(), ENDPOINT, Purpose::Headers, b"hidden");
    let fresh = rotate_key_file(&path).expect("rotated");
    let both = from_file(&path, false).expect("two keys");
    assert_eq!(both.newest_key(), fresh);
    assert!(both.needs_resealing(&sealed));
    let opened = both.open(&acme(), ENDPOINT, Purpose::Headers, &sealed);
    assert_eq!(opened.expect("the old key is kept"), b"hidden");
    assert_eq!(files_in(&folder), 1, "no draft is left behind");
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o400);
}

#[test]
fn a_rotation_that_fails_leaves_the_file_alone() {
    let (folder, path) = folder();
    assert!(matches!(
        rotate_key_file(&path),
        Err(VaultError::Missing { .. })
    ));

    write(&path, "nonsense", 0o600);
    assert!(matches!(
        rotate_key_file(&path),
        Err(VaultError::Malformed { .. })
    ));
    assert_eq!(files_in(&folder), 1, "no draft is left behind");

    let full: String = (0..MAX_KEYS as u8).map(|byte| key(byte).line()).collect();
    write(&path, &full, 0o600);
    let error = rotate_key_file(&path).expect_err("full").to_string();
    assert!(error.contains("remove the oldest"), "{error}");

    let draft = folder.path().join("posthaste.db.key.new");
    write(&draft, "", 0o600);
    let error = rotate_key_file(&path).expect_err("under way").to_string();
    assert!(error.contains("another rotation"), "{error}");
    assert!(draft.exists(), "it belongs to the other rotation");
    assert_eq!(fs::read_to_string(&path).expect("text"), full);
}

#[test]
fn debug_output_shows_no_key() {
    let secret = BASE64_STANDARD.encode([1; KEY_BYTES]);
    let source = KeySource::Text {
        text: secret.clone(),
        origin: "POSTHASTE_MASTER_KEY".to_owned(),
    };
    let shown = format!("{source:?} {:?} {:?}", key(1), vault(&[1]));
    assert!(
        !shown.contains(&secret) && !shown.contains("1, 1"),
        "{shown}"
    );
}
