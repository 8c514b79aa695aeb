//! Ids: typed, time-ordered identifiers and their text form.
//!
//! An id has 128 bits in the layout of a UUIDv7: 48 bits of milliseconds, a 12-bit counter within the millisecond,
//! and 62 random bits. It sorts by creation time, so old data is one range of an index. Time and counter alone
//! distinguish the ids of one [`IdGenerator`], so a store may use them as its key. The text form is a prefix for the
//! kind and 26 characters that sort like the id, as in `evt_01jd2k…`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use crate::rng::Rng;
use crate::time::Timestamp;

/// Crockford's base 32: no letters that look alike, in the order of their values.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const ENCODED_CHARS: usize = 26;
const VERSION_7: u128 = 0x7 << 76;
const VARIANT: u128 = 0b10 << 62;
const COUNT_BITS: u32 = 12;
const RANDOM_BITS: u32 = 62;

/// Generates ids that always increase, even if the clock goes back.
#[derive(Clone, Debug)]
pub struct IdGenerator {
    rng: Rng,
    /// Milliseconds and counter of the last id.
    last: u64,
}

impl IdGenerator {
    /// Creates a generator whose ids depend only on its RNG and on the given times.
    pub fn new(rng: Rng) -> IdGenerator {
        IdGenerator { rng, last: 0 }
    }

    /// Creates a generator that continues after `last`, an id of an earlier generator. Even if the clock was set
    /// back in between, no id is generated twice.
    pub fn resume(rng: Rng, last: u128) -> IdGenerator {
        IdGenerator {
            rng,
            last: sequence_of(last),
        }
    }

    /// Returns the next id, created at `now`.
    pub fn next<T: From<u128>>(&mut self, now: Timestamp) -> T {
        // Within one millisecond, or after the clock went back, the counter goes on. A full counter overflows into
        // the next millisecond.
        self.last = (now.0 << COUNT_BITS).max(self.last + 1);
        T::from(stamped(self.last, self.rng.bits()))
    }
}

/// Returns milliseconds and counter of an id as one number, which increases with every id of one generator.
pub fn sequence_of(id: u128) -> u64 {
    let ms = (id >> 80) as u64;
    let count = (id >> 64) as u64 & ((1 << COUNT_BITS) - 1);
    ms << COUNT_BITS | count
}

/// Returns the smallest sequence of an id created at `at`. A range of time is a range of sequences.
pub fn first_sequence(at: Timestamp) -> u64 {
    at.0.min((1 << 48) - 1) << COUNT_BITS
}

/// Returns the id with this sequence and with `tail` as its last 64 bits.
pub fn id_of(sequence: u64, tail: u64) -> u128 {
    let ms = u128::from(sequence >> COUNT_BITS);
    let count = u128::from(sequence & ((1 << COUNT_BITS) - 1));
    ms << 80 | VERSION_7 | count << 64 | u128::from(tail)
}

/// Returns a UUIDv7: time, version, counter, variant, random bits.
fn stamped(sequence: u64, random: u64) -> u128 {
    let random = u128::from(random) & ((1 << RANDOM_BITS) - 1);
    id_of(sequence, (VARIANT | random) as u64)
}

/// The text is not an id of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a valid id: it should look like {prefix}_01jd2kq8z3w5x7y9a1b2c3d4e5")]
pub struct IdError {
    prefix: &'static str,
}

fn encode(mut value: u128, prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0u8; ENCODED_CHARS];
    for character in text.iter_mut().rev() {
        *character = ALPHABET[(value & 31) as usize];
        value >>= 5;
    }
    let text = std::str::from_utf8(&text).expect("the alphabet is ASCII");
    write!(f, "{prefix}_{text}")
}

fn decode(text: &str, prefix: &'static str) -> Result<u128, IdError> {
    let error = IdError { prefix };
    let digits = text
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('_'))
        .filter(|digits| digits.len() == ENCODED_CHARS)
        .ok_or(error.clone())?;
    let mut value: u128 = 0;
    for digit in digits.bytes() {
        let worth = ALPHABET
            .iter()
            .position(|letter| *letter == digit)
            .ok_or(error.clone())?;
        // 26 characters hold 130 bits, so the first one may only carry three.
        if value >> 123 != 0 {
            return Err(error);
        }
        value = value << 5 | worth as u128;
    }
    Ok(value)
}

/// Returns the smallest and the largest value whose text starts with `text`, which must have at least one character
/// after the prefix.
fn decode_beginning(text: &str, prefix: &'static str) -> Result<RangeInclusive<u128>, IdError> {
    let given = text.len().saturating_sub(prefix.len() + 1);
    if !(1..=ENCODED_CHARS).contains(&given) {
        return Err(IdError { prefix });
    }
    let filled = |digit: &str| format!("{text}{}", digit.repeat(ENCODED_CHARS - given));
    Ok(decode(&filled("0"), prefix)?..=decode(&filled("z"), prefix)?)
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl $name {
            /// Returns the range of ids whose text starts with `text`, which must have at least one character after
            /// the prefix.
            pub fn beginning(text: &str) -> Result<RangeInclusive<$name>, IdError> {
                let (least, greatest) = decode_beginning(text, $prefix)?.into_inner();
                Ok($name(least)..=$name(greatest))
            }
        }

        impl From<u128> for $name {
            fn from(value: u128) -> Self {
                $name(value)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                encode(self.0, $prefix, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                decode(text, $prefix).map($name)
            }
        }
    )*};
}

ids! {
    /// Identifies an endpoint: a URL of a tenant that events are delivered to.
    EndpointId = "ep";
    /// Identifies an event that an application sent.
    EventId = "evt";
    /// Identifies a delivery: one event on its way to one endpoint. Receivers see it as `webhook-id`.
    DeliveryId = "dlv";
    /// Identifies a bulk replay.
    ReplayId = "rpl";
    /// Identifies an API key.
    KeyId = "key";
    /// Identifies a session: a time-limited login of the dashboard, or of a portal link.
    SessionId = "pass";
    /// Identifies an entry of the audit log.
    AuditId = "aud";
    /// Identifies an alert.
    AlertId = "alr";
}

/// Maximum length of a tenant id, in characters.
pub const MAX_TENANT_CHARS: usize = 64;

/// Identifies a tenant. The caller who creates the tenant may choose it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

/// The text is not a valid tenant id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be 1 to {MAX_TENANT_CHARS} letters, digits, '-', '_' or '.', beginning with a letter or digit"
)]
pub struct TenantIdError;

impl TenantId {
    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TenantId {
    type Err = TenantIdError;

    fn from_str(text: &str) -> Result<TenantId, TenantIdError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let fits = (1..=MAX_TENANT_CHARS).contains(&text.len())
            && text.bytes().all(allowed)
            && text.as_bytes()[0].is_ascii_alphanumeric();
        if fits {
            Ok(TenantId(text.into()))
        } else {
            Err(TenantIdError)
        }
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    #[test]
    fn ids_increase_even_if_the_clock_goes_back() {
        let mut id_generator = IdGenerator::new(Rng::seeded(3));
        let mut last = EventId(0);
        for ms in [5_000, 5_000, 5_001, 1, 1, 9_000, 0, 9_000] {
            for _ in 0..1_000 {
                let id: EventId = id_generator.next(Timestamp(ms));
                assert!(id > last, "{id} is not greater than {last}");
                assert_eq!(id.0 >> 76 & 0xf, 7, "wrong UUID version of {id}");
                assert_eq!(id.0 >> 62 & 0b11, 0b10, "wrong UUID variant of {id}");
                last = id;
            }
        }
    }

    #[test]
    fn ids_contain_their_time_and_a_generator_continues_after_another() {
        let mut id_generator = IdGenerator::new(Rng::seeded(4));
        let ids: Vec<u128> = (0..9_000)
            .map(|_| id_generator.next(Timestamp(7_000)))
            .collect();
        assert!(ids.is_sorted_by(|a, b| sequence_of(*a) < sequence_of(*b)));
        // More ids than fit into one millisecond overflow into the next.
        assert_eq!(sequence_of(ids[0]), first_sequence(Timestamp(7_000)));
        assert!(sequence_of(ids[8_999]) >= first_sequence(Timestamp(7_002)));
        let last = ids[8_999];
        let next: u128 = IdGenerator::resume(Rng::seeded(4), last).next(Timestamp(5));
        assert_eq!(sequence_of(next), sequence_of(last) + 1);
        assert_eq!(id_of(sequence_of(last), last as u64), last);
    }

    #[test]
    fn an_id_of_one_kind_does_not_parse_as_another() {
        let event = EventId(77).to_string();
        assert!(event.parse::<DeliveryId>().is_err());
        assert_eq!(event.parse(), Ok(EventId(77)));
    }

    #[test]
    fn invalid_ids_are_refused() {
        for text in [
            "",
            "evt_",
            "evt_01jd",
            "evt_zzzzzzzzzzzzzzzzzzzzzzzzzz",
            "evt_0000000000000000000000000u",
            "EVT_00000000000000000000000000",
        ] {
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
    }

    #[test]
    fn tenant_ids_have_a_restricted_alphabet_and_length() {
        for name in ["acme", "Acme-2", "a.b_c", "7"] {
            assert!(name.parse::<TenantId>().is_ok(), "{name}");
        }
        let long = "x".repeat(65);
        for name in ["", "-a", "a b", "a/b", "ü", "..", long.as_str()] {
            assert!(name.parse::<TenantId>().is_err(), "{name}");
        }
    }

    #[test]
    fn an_impossible_id_prefix_is_refused() {
        let long = format!("{}0", EventId(7));
        for text in [
            "", "evt", "evt_", "dlv_01", "evt_8", "evt_u", "evt_é", "evtß1", &long,
        ] {
            assert!(EventId::beginning(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_preserves_value_and_order(a: u128, b: u128) {
            let (a, b) = (EventId(a), EventId(b));
            prop_assert_eq!(a.to_string().parse(), Ok(a));
            prop_assert_eq!(a.to_string().cmp(&b.to_string()), a.cmp(&b));
        }

        #[test]
        fn an_id_prefix_matches_exactly_the_ids_that_start_with_it(a: u128, b: u128, chars in 1usize..=26) {
            let (a, b) = (EventId(a), EventId(b));
            let text = a.to_string();
            let beginning = &text[..4 + chars];
            let meant = EventId::beginning(beginning).expect("the prefix is valid");
            prop_assert!(meant.contains(&a));
            prop_assert_eq!(meant.contains(&b), b.to_string().starts_with(beginning));
            let next = EventId(meant.end().0.saturating_add(1));
            prop_assert!(next == *meant.end() || !next.to_string().starts_with(beginning));
        }
    }
}
