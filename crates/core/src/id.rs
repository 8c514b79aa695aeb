//! Names of things.
//!
//! An id is 128 bits laid out as a UUIDv7: 48 bits of milliseconds, a count of 12 bits within the
//! millisecond, then 62 bits of chance. It therefore sorts by the time it was made, indexes well, and
//! makes old data a range. Time and count alone tell apart what one mint has made, so a store may use
//! them as its key. An id is written with a prefix that says what it names, as in `evt_01jd2k…`, in 26
//! characters whose order is the id's order.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use crate::dice::Dice;
use crate::time::Timestamp;

/// Crockford's base 32: no letters that look alike, and in the order of their values.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const ENCODED_CHARS: usize = 26;
const VERSION_7: u128 = 0x7 << 76;
const VARIANT: u128 = 0b10 << 62;
const COUNT_BITS: u32 = 12;
const CHANCE_BITS: u32 = 62;

/// Makes ids that grow: each is greater than every one before it, whatever the clock does.
#[derive(Clone, Debug)]
pub struct Mint {
    dice: Dice,
    /// Milliseconds and count of the last id made.
    last: u64,
}

impl Mint {
    /// A mint whose ids follow from its dice and the times it is given.
    pub fn new(dice: Dice) -> Mint {
        Mint { dice, last: 0 }
    }

    /// A mint that goes on after `last`, which an earlier one made: even if the clock was set back in
    /// between, no id comes twice.
    pub fn resume(dice: Dice, last: u128) -> Mint {
        Mint {
            dice,
            last: moment_of(last),
        }
    }

    /// The next id, as of `now`.
    pub fn next<T: From<u128>>(&mut self, now: Timestamp) -> T {
        // Within one millisecond, or after the clock stepped back, count on; a full count runs over
        // into the next millisecond.
        self.last = (now.0 << COUNT_BITS).max(self.last + 1);
        T::from(stamped(self.last, self.dice.bits()))
    }
}

/// The millisecond and the count of an id, as one number that grows from id to id of one mint.
pub fn moment_of(id: u128) -> u64 {
    let ms = (id >> 80) as u64;
    let count = (id >> 64) as u64 & ((1 << COUNT_BITS) - 1);
    ms << COUNT_BITS | count
}

/// The least moment an id made at `at` can have. A range of time is a range of moments.
pub fn first_moment(at: Timestamp) -> u64 {
    at.0.min((1 << 48) - 1) << COUNT_BITS
}

/// The id of this moment whose last 64 bits are `tail`.
pub fn id_of(moment: u64, tail: u64) -> u128 {
    let ms = u128::from(moment >> COUNT_BITS);
    let count = u128::from(moment & ((1 << COUNT_BITS) - 1));
    ms << 80 | VERSION_7 | count << 64 | u128::from(tail)
}

/// Lays out a UUIDv7: time, version, count, variant, chance.
fn stamped(moment: u64, chance: u64) -> u128 {
    let chance = u128::from(chance) & ((1 << CHANCE_BITS) - 1);
    id_of(moment, (VARIANT | chance) as u64)
}

/// Why a text does not name what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not an id of this kind: it should look like {prefix}_01jd2kq8z3w5x7y9a1b2c3d4e5")]
pub struct IdError {
    prefix: &'static str,
}

fn encode(mut value: u128, prefix: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0u8; ENCODED_CHARS];
    for place in text.iter_mut().rev() {
        *place = ALPHABET[(value & 31) as usize];
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
        // 26 characters hold 130 bits: the first may carry only three.
        if value >> 123 != 0 {
            return Err(error);
        }
        value = value << 5 | worth as u128;
    }
    Ok(value)
}

/// The least and the greatest value whose text begins with `text`, of which at least one character stands
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
            /// The ids whose text begins with this: from the least there can be to the greatest. At least
            /// one character must stand after the prefix.
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
    /// Names an endpoint: a URL somebody subscribed.
    EndpointId = "ep";
    /// Names an event: what an application handed over.
    EventId = "evt";
    /// Names a delivery: one event on its way to one endpoint. Receivers see it as `webhook-id`.
    DeliveryId = "dlv";
    /// Names a bulk replay.
    ReplayId = "rpl";
    /// Names an API key.
    KeyId = "key";
    /// Names a pass: what lets somebody in for a while, as a session or a link does.
    PassId = "pass";
    /// Names an entry of the audit.
    AuditId = "aud";
    /// Names an alert.
    AlertId = "alr";
}

/// The longest name a tenant may have.
pub const MAX_TENANT_CHARS: usize = 64;

/// Names a tenant. Its caller may choose it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

/// Why a text cannot name a tenant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be 1 to {MAX_TENANT_CHARS} letters, digits, '-', '_' or '.', beginning with a letter or digit"
)]
pub struct TenantIdError;

impl TenantId {
    /// The name as text.
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
    use proptest::prelude::*;

    #[test]
    fn ids_grow_whatever_the_clock_does() {
        let mut mint = Mint::new(Dice::seeded(3));
        let mut last = EventId(0);
        for ms in [5_000, 5_000, 5_001, 1, 1, 9_000, 0, 9_000] {
            for _ in 0..1_000 {
                let id: EventId = mint.next(Timestamp(ms));
                assert!(id > last, "{id} after {last}");
                assert_eq!(id.0 >> 76 & 0xf, 7, "version of {id}");
                assert_eq!(id.0 >> 62 & 0b11, 0b10, "variant of {id}");
                last = id;
            }
        }
    }

    #[test]
    fn moments_tell_ids_apart_and_a_mint_goes_on_where_another_stopped() {
        let mut mint = Mint::new(Dice::seeded(4));
        let ids: Vec<u128> = (0..9_000).map(|_| mint.next(Timestamp(7_000))).collect();
        assert!(ids.is_sorted_by(|a, b| moment_of(*a) < moment_of(*b)));
        // More than fit into one millisecond run over into the next.
        assert_eq!(moment_of(ids[0]), first_moment(Timestamp(7_000)));
        assert!(moment_of(ids[8_999]) >= first_moment(Timestamp(7_002)));
        let last = ids[8_999];
        let next: u128 = Mint::resume(Dice::seeded(4), last).next(Timestamp(5));
        assert_eq!(moment_of(next), moment_of(last) + 1);
        assert_eq!(id_of(moment_of(last), last as u64), last);
    }

    #[test]
    fn an_id_of_one_kind_is_not_one_of_another() {
        let event = EventId(77).to_string();
        assert!(event.parse::<DeliveryId>().is_err());
        assert_eq!(event.parse(), Ok(EventId(77)));
    }

    #[test]
    fn refuses_what_is_no_id() {
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
    fn tenants_are_named_with_care() {
        for name in ["acme", "Acme-2", "a.b_c", "7"] {
            assert!(name.parse::<TenantId>().is_ok(), "{name}");
        }
        let long = "x".repeat(65);
        for name in ["", "-a", "a b", "a/b", "ü", "..", long.as_str()] {
            assert!(name.parse::<TenantId>().is_err(), "{name}");
        }
    }

    #[test]
    fn a_beginning_that_no_id_has_is_refused() {
        let long = format!("{}0", EventId(7));
        for text in [
            "", "evt", "evt_", "dlv_01", "evt_8", "evt_u", "evt_é", "evtß1", &long,
        ] {
            assert!(EventId::beginning(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_keeps_value_and_order(a: u128, b: u128) {
            let (a, b) = (EventId(a), EventId(b));
            prop_assert_eq!(a.to_string().parse(), Ok(a));
            prop_assert_eq!(a.to_string().cmp(&b.to_string()), a.cmp(&b));
        }

        #[test]
        fn a_beginning_means_just_those_that_begin_so(a: u128, b: u128, chars in 1usize..=26) {
            let (a, b) = (EventId(a), EventId(b));
            let text = a.to_string();
            let beginning = &text[..4 + chars];
            let meant = EventId::beginning(beginning).expect("a beginning");
            prop_assert!(meant.contains(&a));
            prop_assert_eq!(meant.contains(&b), b.to_string().starts_with(beginning));
            let next = EventId(meant.end().0.saturating_add(1));
            prop_assert!(next == *meant.end() || !next.to_string().starts_with(beginning));
        }
    }
}
