//! The clock skew of ids: how far the time part of an id is ahead of the time at which its event was accepted.
//!
//! The skew is 0, unless a clock was set back, very many ids were made at once, or a delivery was made of an old
//! event. The greatest skew is stored, so that a search by time can be turned into a range of ids.

use posthaste_core::id::{first_sequence, id_of, sequence_of};
use posthaste_core::time::Timestamp;

use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;

/// The ids above `above` and below `below`.
#[derive(Clone, Copy, Debug)]
pub(in crate::postgres) struct IdRange {
    pub(in crate::postgres) above: u128,
    pub(in crate::postgres) below: u128,
}

impl IdRange {
    /// Returns the range of ids that rows accepted in this time can have, if ids are ahead of their time by at most
    /// `clock_skew` milliseconds.
    pub(super) fn between(
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        clock_skew: u64,
    ) -> IdRange {
        let least = |at| id_of(first_sequence(at), 0);
        IdRange {
            above: since.map_or(0, |since| least(since).saturating_sub(1)),
            below: until.map_or(u128::MAX, |until| {
                least(Timestamp(until.0.saturating_add(clock_skew)))
            }),
        }
    }

    pub(in crate::postgres) fn contains(self, id: u128) -> bool {
        self.above < id && id < self.below
    }
}

/// Returns the milliseconds by which an id is ahead of a time, rounded up to a power of two so that the stored value
/// rarely changes.
pub(in crate::postgres) fn clock_skew_of(id: u128, accepted_at: Timestamp) -> i64 {
    let moments = sequence_of(id).saturating_sub(first_sequence(accepted_at));
    match moments >> 12 {
        0 => 0,
        some => some.next_power_of_two() as i64,
    }
}

/// Stores a clock skew under one of the two names, if it is the greatest so far.
pub(in crate::postgres) async fn store_clock_skew(
    conn: &PgConnection,
    name: &str,
    clock_skew: i64,
) -> Result<(), DbError> {
    if clock_skew > 0 {
        let sql = "UPDATE meta SET value = $2 WHERE name = $1 AND value < $2";
        conn.execute(sql, &[&name, &clock_skew]).await?;
    }
    Ok(())
}

/// Returns the range of ids that rows accepted in a time range can have, using the clock skew with this name.
pub(in crate::postgres) async fn ids_between(
    conn: &PgConnection,
    name: &str,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
) -> Result<IdRange, DbError> {
    let clock_skew = match until {
        None => 0,
        Some(_) => {
            let sql = "SELECT value FROM meta WHERE name = $1";
            conn.query_one(sql, &[&name]).await?.get::<_, i64>(0) as u64
        }
    };
    Ok(IdRange::between(since, until, clock_skew))
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::id::IdGenerator;
    use posthaste_core::rng::Rng;

    #[test]
    fn ids_of_a_time_range_lie_in_its_id_range() {
        let mut id_generator = IdGenerator::new(Rng::seeded(7));
        let mut clock_skew = 0;
        let mut made = Vec::new();
        // The clock is set back by 100 seconds, and ids run ahead for as long.
        for ms in (0..500).chain(0..500) {
            let at = Timestamp(1_800_000_000_000 + 200 * ms);
            let id: u128 = id_generator.next(at);
            clock_skew = clock_skew.max(clock_skew_of(id, at));
            made.push((at, id));
        }
        assert!(clock_skew >= 90_000, "{clock_skew}");
        for (at, id) in made {
            let range = IdRange::between(Some(at), Some(Timestamp(at.0 + 1)), clock_skew as u64);
            assert!(range.above < id && id < range.below, "{at:?}");
        }
    }
}
