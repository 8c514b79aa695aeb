//! The clock of the database, by which all nodes correct theirs.
//!
//! Each heartbeat reads the clock, and what the nodes have stored about it, in its own statement, so this takes no round
//! trip. What is to be stored goes with the next heartbeat. The first reading is made when the store is opened, so a node
//! writes nothing by its own wall clock.

use std::rc::Rc;

use posthaste_core::time::{
    ClockJump, ClockReading, ClockSync, MAX_CLOCK_LEAD, StoredClock, Tick, Timestamp,
};
use tokio_postgres::types::ToSql;

use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::meta;
use crate::postgres::settings::PostgresSettings;

/// Log target of this module.
const LOG_TARGET: &str = "posthaste_store::postgres::clock";

/// Reads the clock in milliseconds, the end of the lead and the saved time.
const READ: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
     (SELECT value FROM meta WHERE name = $1), \
     (SELECT value FROM meta WHERE name = $2)";

/// Names of the stored values.
pub(super) const NAMES: [&(dyn ToSql + Sync); 2] = [&meta::CLOCK_LEAD_UNTIL, &meta::CLOCK_SAVED_AT];

/// Follows the clock of the database.
pub(in crate::postgres) struct DatabaseClock {
    settings: Rc<PostgresSettings>,
    sync: ClockSync,
    /// The values that the last reading found, and those that replace them.
    to_store: Option<(StoredClock, StoredClock)>,
}

impl DatabaseClock {
    /// Reads the clock for the first time.
    pub(in crate::postgres) async fn open(
        conn: &PgConnection,
        settings: Rc<PostgresSettings>,
    ) -> Result<DatabaseClock, DbError> {
        let mut clock = DatabaseClock {
            settings,
            sync: ClockSync::default(),
            to_store: None,
        };
        // The first execution prepares the statement too, which takes a round trip of its own.
        conn.query_one(READ, &NAMES).await?;
        let sent = clock.now();
        let row = conn.query_one(READ, &NAMES).await?;
        clock.take(sent, &row, 0);
        Ok(clock)
    }

    /// Returns the monotonic time.
    pub(super) fn now(&self) -> Tick {
        (self.settings.clock)()
    }

    /// Returns the parameters of the statement that stores the clock: the end of the lead, the end that it replaces, and the
    /// saved time. All are null if there is nothing to store.
    pub(super) fn parameters(&self) -> [Option<i64>; 3] {
        match &self.to_store {
            None => [None; 3],
            Some((found, new)) => {
                [new.lead_until, found.lead_until, new.saved_at].map(|at| Some(at.0 as i64))
            }
        }
    }

    /// Takes the reading in a row, whose columns begin at `first`. The request was sent at `sent`.
    pub(super) fn take(&mut self, sent: Tick, row: &tokio_postgres::Row, first: usize) {
        let received = self.now();
        let time = |value: i64| Timestamp(u64::try_from(value).unwrap_or_default());
        let stored_time =
            |column: usize| row.get::<_, Option<i64>>(column).map_or(Timestamp(0), time);
        let reading = ClockReading {
            sent,
            received,
            reference: time(row.get(first)),
        };
        let stored = StoredClock {
            lead_until: stored_time(first + 1),
            saved_at: stored_time(first + 2),
        };
        let update = self.sync.handle(reading, stored);
        self.to_store = update.store.map(|new| (stored, new));
        (self.settings.set_time)(update.time);
        if let Some(jump) = update.jump {
            log_jump(jump);
        }
    }
}

fn log_jump(jump: ClockJump) {
    match jump {
        ClockJump::Forward(by) => {
            tracing::warn!(target: LOG_TARGET, %by, "the database's clock is ahead of this node's time, which follows it");
        }
        ClockJump::Held(by) => {
            tracing::warn!(target: LOG_TARGET, %by, "the database's clock was set back; the nodes' time runs slower until both agree");
        }
        ClockJump::Back(by) => {
            tracing::error!(target: LOG_TARGET, %by, limit = %MAX_CLOCK_LEAD, "the database's clock was set back by more than the limit; the nodes' time follows it, and waiting deliveries are delayed");
        }
    }
}
