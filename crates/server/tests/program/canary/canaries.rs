//! The canary words, and every encoding in which they could appear.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, Engine};

/// Confidentiality of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Shown only on explicit request, and never stored unencrypted.
    Secret,
    /// Never in logs, metrics, error responses or panics.
    Private,
}

use Kind::{Private, Secret};

/// All words that the test plants. Each has the length of a key pair's seed, so that it can be used as one. Secrets
/// that the server generates are [added](Canaries::add) when they are known.
pub(crate) const CANARIES: &[(&str, &str, Kind)] = &[
    ("admin key", "CANARYadminKey0q3v8x1m5n7b9c2d4f", Secret),
    ("wrong key", "CANARYwrongKey0q3v8x1m5n7b9c2d4f", Secret),
    ("master key", "CANARYmasterKey0q3v8x1m5n7b9c2d4", Secret),
    ("brought secret", "CANARYbroughtSecret0q3v8x1m5n7b9", Secret),
    ("rotated secret", "CANARYrotatedSecret0q3v8x1m5n7b9", Secret),
    ("private key", "CANARYprivateKey0q3v8x1m5n7b9c2d", Secret),
    (
        "authorization header",
        "CANARYauthHeader0q3v8x1m5n7b9c2d",
        Secret,
    ),
    ("custom header", "CANARYcustomHeader0q3v8x1m5n7b9c", Secret),
    ("changed header", "CANARYchangedHeader0q3v8x1m5n7b9", Secret),
    ("proxy password", "CANARYproxyPass0q3v8x1m5n7b9c2d4", Secret),
    ("proxy answer", "CANARYproxyAnsw0q3v8x1m5n7b9c2d4", Private),
    ("mail password", "CANARYmailPass0q3v8x1m5n7b9c2d4f", Secret),
    ("password", "CANARYpassword0q3v8x1m5n7b9c2d4f", Secret),
    ("key as a name", "CANARYkeyAsName0q3v8x1m5n7b9c2d4", Secret),
    ("bearer token", "CANARYbearerTok0q3v8x1m5n7b9c2d4", Secret),
    ("client secret", "CANARYclientSec0q3v8x1m5n7b9c2d4", Secret),
    ("fetched token", "CANARYfetchedTo0q3v8x1m5n7b9c2d4", Secret),
    ("refused token", "CANARYrefusedTo0q3v8x1m5n7b9c2d4", Secret),
    (
        "misplaced secret",
        "CANARYmisplaced0q3v8x1m5n7b9c2d4",
        Secret,
    ),
    (
        "userinfo password",
        "CANARYuserinfo0q3v8x1m5n7b9c2d4f",
        Secret,
    ),
    ("JSON payload", "CANARYjsonPayload0q3v8x1m5n7b9c2", Private),
    ("raw payload", "CANARYrawPayload0q3v8x1m5n7b9c2d", Private),
    ("batch payload", "CANARYbatchPayload0q3v8x1m5n7b9c", Private),
    (
        "refused payload",
        "CANARYrefusedPayload0q3v8x1m5n7b",
        Private,
    ),
    (
        "idempotency key",
        "CANARYidempotency0q3v8x1m5n7b9c2",
        Private,
    ),
    ("ordering key", "CANARYorderingKey0q3v8x1m5n7b9c2", Private),
    ("URL query", "CANARYurlQuery0q3v8x1m5n7b9c2d4f", Private),
    ("request query", "CANARYrequestQuery0q3v8x1m5n7b9c", Private),
    ("answer body", "CANARYanswerBody0q3v8x1m5n7b9c2d", Private),
    ("answer header", "CANARYanswerHeader0q3v8x1m5n7b9c", Private),
    ("answer cookie", "CANARYanswerCookie0q3v8x1m5n7b9c", Secret),
    (
        "answer garbage",
        "CANARYanswerGarbage0q3v8x1m5n7b9",
        Private,
    ),
    ("redirect", "CANARYredirect0q3v8x1m5n7b9c2d4f", Private),
];

/// Length of a prefix that is unique among the words.
const ENOUGH_BYTES: usize = 16;

/// A word that must not appear.
#[derive(Clone, Debug)]
pub(crate) struct Canary {
    name: String,
    kind: Kind,
    forms: Vec<Form>,
}

/// All canary words.
pub(crate) struct Canaries {
    all: Vec<Canary>,
    used: Mutex<BTreeSet<&'static str>>,
}

impl Canaries {
    /// Creates the words of [`CANARIES`].
    pub(crate) fn new() -> Canaries {
        let all = CANARIES
            .iter()
            .map(|(name, text, kind)| Canary::new(name, text.as_bytes(), *kind));
        Canaries {
            all: all.collect(),
            used: Mutex::default(),
        }
    }

    /// Returns the word of this name and marks it as planted.
    pub(crate) fn plant(&self, name: &'static str) -> &'static str {
        let found = CANARIES.iter().find(|(known, ..)| *known == name);
        let (_, text, _) = found.unwrap_or_else(|| panic!("{name} is not in the table"));
        self.used.lock().unwrap().insert(name);
        text
    }

    /// Adds a secret that the server generated.
    pub(crate) fn add(&mut self, name: &str, bytes: &[u8]) {
        assert!(
            bytes.len() >= ENOUGH_BYTES,
            "{name} is short enough to appear by chance"
        );
        self.all.push(Canary::new(name, bytes, Secret));
    }

    /// Adds the private key of a certificate, from the random bytes of its PKCS #8 form.
    pub(crate) fn add_private_key(&mut self, name: &str, der: &[u8]) {
        // From here the bytes start a new line of the PEM, so that no line break splits them.
        self.add(name, &der[48..68]);
    }

    /// Adds a signing secret that the server generated, as text and as bytes.
    pub(crate) fn add_secret(&mut self, name: &str, written: &str) {
        let (_, text) = written.split_once('_').expect("a prefix");
        self.add(name, text.as_bytes());
        let bytes = BASE64_STANDARD.decode(text).expect("base64");
        self.add(name, &bytes);
    }

    /// Returns a description of each word found in a place.
    ///
    /// Scans the place once for all words, because stores and logs are large.
    pub(crate) fn found_in(&self, place: &[u8], kinds: &[Kind]) -> Vec<String> {
        let wanted = self.all.iter().filter(|one| kinds.contains(&one.kind));
        let begin_of = |bytes: &[u8]| {
            let begin: [u8; 2] = [bytes[0], bytes[1]].map(|byte| byte.to_ascii_lowercase());
            usize::from(u16::from_le_bytes(begin))
        };
        // Indexed by the first two bytes. An array, because it is read for each byte of the place.
        let mut forms: Vec<Vec<(&str, &Form)>> = vec![Vec::new(); 1 << 16];
        for canary in wanted {
            for form in &canary.forms {
                forms[begin_of(&form.bytes)].push((&canary.name, form));
            }
        }
        let mut found = BTreeMap::new();
        for (at, begin) in place.windows(2).enumerate() {
            for (name, form) in &forms[begin_of(begin)] {
                if form.is_at(&place[at..]) {
                    let from = at.saturating_sub(120);
                    let around = &place[from..(at + form.bytes.len() + 60).min(place.len())];
                    let around = String::from_utf8_lossy(around).into_owned();
                    let finding = format!("the {name} ({}) in …{around}…", form.name);
                    found.entry((*name, form.name)).or_insert(finding);
                }
            }
        }
        found.into_values().collect()
    }

    /// Panics unless every word of [`CANARIES`] was planted.
    pub(crate) fn assert_all_used(&self) {
        let used = self.used.lock().unwrap();
        for (name, ..) in CANARIES {
            assert!(used.contains(name), "the {name} was planted nowhere");
        }
    }
}

/// An encoding of a word.
#[derive(Clone, Debug)]
struct Form {
    name: &'static str,
    bytes: Vec<u8>,
    /// True for encodings that may appear in either case, such as header names and hexadecimal digits.
    any_case: bool,
}

impl Form {
    fn is_at(&self, place: &[u8]) -> bool {
        let Some(there) = place.get(..self.bytes.len()) else {
            return false;
        };
        match self.any_case {
            true => there.eq_ignore_ascii_case(&self.bytes),
            false => there == self.bytes,
        }
    }
}

impl Canary {
    fn new(name: &str, bytes: &[u8], kind: Kind) -> Canary {
        // A truncated word is a leak, too.
        let bytes = &bytes[..ENOUGH_BYTES];
        let form = |name, bytes, any_case| Form {
            name,
            bytes,
            any_case,
        };
        let mut forms = vec![
            form("plain", bytes.to_vec(), true),
            form("hex", hex(bytes).into_bytes(), true),
            form("list of bytes", list(bytes).into_bytes(), false),
            form("lines of bytes", lines(bytes).into_bytes(), false),
        ];
        for before in 0..3 {
            forms.push(form(
                "base64",
                core_of(&BASE64_STANDARD, bytes, before),
                false,
            ));
            forms.push(form(
                "base64url",
                core_of(&BASE64_URL_SAFE, bytes, before),
                false,
            ));
        }
        Canary {
            name: name.to_owned(),
            kind,
            forms,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes as `{:?}` writes them.
fn list(bytes: &[u8]) -> String {
    let list = format!("{bytes:?}");
    list.trim_matches(['[', ']']).to_owned()
}

/// The bytes as `{:#?}` writes them, without indentation.
fn lines(bytes: &[u8]) -> String {
    let list = format!("{bytes:#?}");
    list.trim_matches(['[', ']', '\n']).to_owned()
}

/// Returns the part of the base64 text that depends only on `bytes`, if `before` other bytes precede them.
fn core_of(encoding: &impl Engine, bytes: &[u8], before: usize) -> Vec<u8> {
    let shifted = [&vec![0; before], bytes].concat();
    let whole = shifted.len() / 3 * 3;
    let text = encoding.encode(&shifted[..whole]).into_bytes();
    // The first group contains bits of the preceding bytes.
    let from = if before == 0 { 0 } else { 4 };
    text[from..].to_vec()
}

/// Checks the search itself: one that finds nothing would pass every test.
#[test]
fn a_planted_leak_is_found_in_every_form() {
    let mut canaries = Canaries::new();
    canaries.add("made up", b"\x00\xff\x10 sixteen bytes \x80\x7f");
    let found = |place: &[u8]| canaries.found_in(place, &[Secret, Private]).len();
    assert_eq!(found(b"nothing to see, CANARY though it may say"), 0);
    let words = CANARIES.iter().map(|(_, text, _)| text.as_bytes());
    for word in words.chain([&b"\x00\xff\x10 sixteen bytes \x80\x7f"[..]]) {
        for before in 0..4 {
            let noise = vec![b'x'; before];
            let embedded = [&noise, word, b"yz"].concat();
            for leak in [
                embedded.clone(),
                embedded.to_ascii_lowercase(),
                hex(&embedded).into_bytes(),
                hex(&embedded).to_ascii_uppercase().into_bytes(),
                BASE64_STANDARD.encode(&embedded).into_bytes(),
                BASE64_URL_SAFE.encode(&embedded).into_bytes(),
                format!("Key({embedded:?})").into_bytes(),
                format!("{embedded:#?}").into_bytes(),
            ] {
                let leak = [b"some text ", &leak[..], b" and more"].concat();
                assert!(found(&leak) >= 1, "{}", String::from_utf8_lossy(&leak));
            }
        }
    }
    assert_eq!(
        canaries
            .found_in(b"canaryjsonpayload03v8x1m5n7b9c2d4", &[Secret])
            .len(),
        0
    );
}

#[test]
fn canary_words_are_unique() {
    for (index, (name, text, _)) in CANARIES.iter().enumerate() {
        assert!(text.len() == 32, "{name} has {} bytes", text.len());
        for (other, later, _) in &CANARIES[index + 1..] {
            assert_ne!(
                text[..ENOUGH_BYTES],
                later[..ENOUGH_BYTES],
                "{name} and {other}"
            );
        }
    }
}
