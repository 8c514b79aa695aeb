//! Shards: the fixed parts of all endpoints.
//!
//! Every endpoint belongs to one of [`SHARD_COUNT`] shards. [`Shard::of`] computes it from the endpoint id alone,
//! so all nodes agree without asking each other. The number of shards and the function never change, because stored
//! data depends on both.

use crate::id::{EndpointId, ScheduleId, TenantId};

/// Number of shards. Stored data depends on it, so it never changes.
pub const SHARD_COUNT: u16 = 256;

/// A fixed part of all endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(u16);

impl Shard {
    /// Returns the shard of an endpoint. Stored data depends on it, so it never changes.
    pub fn of(endpoint: EndpointId) -> Shard {
        // The low bits of an id are random. The high bits are folded in for ids that were made in another way.
        let id = endpoint.0;
        let folded = (id as u64) ^ ((id >> 64) as u64);
        let spread = folded.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Shard((spread >> 56) as u16)
    }

    /// Returns the shard of a schedule. Stored data depends on it, so it never changes.
    pub fn of_schedule(tenant: &TenantId, schedule: &ScheduleId) -> Shard {
        // FNV-1a over both ids. A byte that no id contains separates them.
        let ids = [
            tenant.as_str().as_bytes(),
            b"/",
            schedule.as_str().as_bytes(),
        ];
        let hash = ids
            .into_iter()
            .flatten()
            .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
            });
        let spread = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Shard((spread >> 56) as u16)
    }

    /// Returns the shard with this number, if there is one.
    pub fn numbered(number: u16) -> Option<Shard> {
        (number < SHARD_COUNT).then_some(Shard(number))
    }

    /// Returns the shard's number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Returns every shard.
    pub fn all() -> impl Iterator<Item = Shard> {
        (0..SHARD_COUNT).map(Shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::IdGenerator;
    use crate::rng::Rng;
    use crate::time::Timestamp;

    #[test]
    fn endpoints_spread_over_all_shards() {
        let mut id_generator = IdGenerator::new(Rng::seeded(5));
        let mut sizes = [0_u32; SHARD_COUNT as usize];
        for number in 0..25_600 {
            let endpoint: EndpointId = id_generator.next(Timestamp(1_800_000_000_000 + number));
            sizes[usize::from(Shard::of(endpoint).number())] += 1;
        }
        assert!(
            sizes.iter().all(|size| (50..=160).contains(size)),
            "{sizes:?}"
        );
    }

    #[test]
    fn the_shard_of_an_endpoint_never_changes() {
        let shards = [
            1_u128,
            77,
            u128::MAX,
            0x0192_4567_89ab_7cde_8f01_2345_6789_abcd,
        ];
        let numbers = shards.map(|id| Shard::of(EndpointId(id)).number());
        assert_eq!(numbers, [158, 150, 0, 111]);
    }
}
