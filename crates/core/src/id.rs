//! Names of things.
//!
//! An id is 128 bits laid out as a UUIDv7: 48 bits of milliseconds, then chance. It therefore sorts
//! by the time it was made, indexes well, and makes old data a range. It is written with a prefix
//! that says what it names, as in `evt_01jd2k…`, in 26 characters whose order is the id's order.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::dice::Dice;
use crate::time::Timestamp;

/// Crockford's base 32: no letters that look alike, and in the order of their values.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const ENCODED_CHARS: usize = 26;
const VERSION_7: u128 = 0x7 << 76;
const VARIANT: u128 = 0b10 << 62;
const RANDOM_BITS: u128 = (1 << 76) - 1;

/// Makes ids that grow: each is greater than every one before it, whatever the clock does.
#[derive(Clone, Debug)]
pub struct Mint {
    dice: Dice,
    last: u128,
}

impl Mint {
    /// A mint whose ids follow from its dice and the times it is given.
    pub fn new(dice: Dice) -> Mint {
        Mint { dice, last: 0 }
    }

    /// The next id, as of `now`.
    pub fn next<T: From<u128>>(&mut self, now: Timestamp) -> T {
        let chance =
            (u128::from(self.dice.bits()) << 64 | u128::from(self.dice.bits())) & RANDOM_BITS;
        let fresh = stamped(now, chance);
        // Within one millisecond, or after the clock stepped back, count on from the last id: by a
        // random step, so that an id does not betray its neighbour.
        self.last = if fresh > self.last {
            fresh
        } else {
            let step = u128::from(self.dice.between(1, u64::from(u32::MAX)));
            restamped(self.last, step)
        };
        T::from(self.last)
    }
}

/// Lays out a UUIDv7: time, version, 12 random bits, variant, 62 random bits.
fn stamped(now: Timestamp, chance: u128) -> u128 {
    let ms = u128::from(now.0) & ((1 << 48) - 1);
    let high = (chance >> 62) & 0xfff;
    let low = chance & ((1 << 62) - 1);
    ms << 80 | VERSION_7 | high << 64 | VARIANT | low
}

/// Adds to an id without disturbing its version and variant bits.
fn restamped(id: u128, step: u128) -> u128 {
    let ms = id >> 80;
    let chance = ((id >> 64) & 0xfff) << 62 | id & ((1 << 62) - 1);
    let next = chance + step;
    let overflow = next >> 74;
    stamped(Timestamp((ms + overflow) as u64), next & ((1 << 74) - 1))
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

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

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

    proptest! {
        #[test]
        fn text_keeps_value_and_order(a: u128, b: u128) {
            let (a, b) = (EventId(a), EventId(b));
            prop_assert_eq!(a.to_string().parse(), Ok(a));
            prop_assert_eq!(a.to_string().cmp(&b.to_string()), a.cmp(&b));
        }
    }
}
