//! Sends the requests of the membership state machine ([`MembershipState`](posthaste_core::cluster::MembershipState)) to the tables
//! `nodes`, `beats` and `shards`.
//!
//! Each request is one statement and one round trip. No transaction stays open between requests, so a node that
//! freezes blocks no other. A request that is not answered in time is abandoned together with its connection. It may
//! still be executed later, which the state machine tolerates.

use std::rc::Rc;
use std::time::Duration;

use posthaste_core::cluster::{
    Capacity, Command, Epoch, Input, NodeNo, NodeRow, OwnedShard, ReportedSpeed, RoundTrips, Shard,
    ShardRow, TableView, Timings,
};
use posthaste_core::time::Span;
use tokio::time::timeout;

use super::database_clock::{self, DatabaseClock};
use crate::postgres::cancellable_connection::CancellableConnection;
use crate::postgres::connection::{Params, PgConnection};
use crate::postgres::db_error::{DbError, ErrorKind};
use crate::postgres::schema::{FORMAT, meta};
use crate::postgres::settings::PostgresSettings;
use crate::postgres::shared::{RequiredSchema, Shared};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::roster";

/// Registers the node, with the version of this program and the newest schema version that it knows.
const ENTER: &str = "SELECT enter($1, $2, $3, $4, $5, $6, $7)";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The role with which a node registers. The other nodes make room for it when its first heartbeat has reported its capacity:
/// a node with a slow link that registers again takes no shards.
const NO_SHARDS_YET: i16 = 0;
/// Sends a heartbeat, and reads all nodes and shards in the same statement. Notifies the other nodes if this node's
/// wish for shards or its capacity has changed.
///
/// Reads the clock too ([`DatabaseClock`]). What is to be stored about it is not stored if another node has changed it since
/// the last reading.
const BEAT: &str = "WITH mine AS (UPDATE beats SET beat = beat + 1, works = $2, lease_ms = $3, \
     at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint, capacity = $9, heartbeat_ms = $10, \
     fetch_ms = $11, record_ms = $12, offset_ms = $13 WHERE node = $1 RETURNING node), \
     told AS (SELECT count(pg_notify('posthaste', 'members ' || node)) AS told FROM beats \
     WHERE node = $1 AND (works <> $2 OR capacity <> $9)), \
     lead AS (INSERT INTO meta (name, value) SELECT $7::text, $4::bigint WHERE $4 IS NOT NULL \
     ON CONFLICT (name) DO UPDATE SET value = $4 WHERE meta.value = $5::bigint RETURNING name), \
     saved AS (INSERT INTO meta (name, value) SELECT $8::text, $6::bigint FROM lead \
     ON CONFLICT (name) DO UPDATE SET value = $6) \
     SELECT (SELECT count(*) FROM mine), (SELECT told FROM told), n.*, s.*, \
     (extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
     (SELECT value FROM meta WHERE name = $7), \
     (SELECT value FROM meta WHERE name = $8) FROM \
     (SELECT array_agg(node ORDER BY node), array_agg(beat ORDER BY node), \
     array_agg(works ORDER BY node), array_agg(lease_ms ORDER BY node), \
     array_agg(capacity ORDER BY node), array_agg(heartbeat_ms ORDER BY node), \
     array_agg(fetch_ms ORDER BY node), array_agg(record_ms ORDER BY node) FROM beats) AS n, \
     (SELECT array_agg(no ORDER BY no), array_agg(owner ORDER BY no), array_agg(epoch ORDER BY no) \
     FROM shards) AS s";
/// The first of the three columns about the clock.
const FIRST_CLOCK_COLUMN: usize = 13;
const CLAIM: &str = "SELECT shard, claimed FROM claim($1, $2, $3, $4)";
const RELEASE: &str = "SELECT release($1, $2, $3)";
const REMOVE_NODE: &str = "SELECT strike_off($1, $2, $3)";

/// The connection for these requests.
pub(super) struct ClusterTable {
    settings: Rc<PostgresSettings>,
    timings: Timings,
    connection: CancellableConnection,
    clock: DatabaseClock,
    required_schema: RequiredSchema,
    failures: u32,
}

impl ClusterTable {
    /// Creates the sender of requests, without opening a connection.
    pub(in crate::postgres) fn new(
        shared: &Shared,
        settings: Rc<PostgresSettings>,
        timings: Timings,
        clock: DatabaseClock,
    ) -> ClusterTable {
        ClusterTable {
            connection: CancellableConnection::new(settings.clone()),
            settings,
            timings,
            clock,
            required_schema: shared.required_schema.clone(),
            failures: 0,
        }
    }

    /// Sends a request and returns its result. Waits at most a third of the lease, so that there is time for another
    /// try.
    pub(in crate::postgres) async fn send(
        &mut self,
        me: Option<NodeNo>,
        request: &Command,
    ) -> Input {
        let time_limit = Duration::from_millis(self.timings.lease.as_millis() / 3);
        let answer = match timeout(time_limit, self.try_send(me, request)).await {
            Ok(answer) => answer,
            Err(_) => Err("no response in time".to_owned()),
        };
        match answer {
            Ok(input) => {
                if self.failures > 0 {
                    tracing::info!(target: LOG_TARGET, "lease renewals work again");
                }
                self.failures = 0;
                input
            }
            Err(why) => {
                self.connection.cut();
                if self.failures == 0 {
                    tracing::warn!(target: LOG_TARGET, %why, "cannot renew the lease; this node stops sending if this continues");
                }
                self.failures = self.failures.saturating_add(1);
                Input::Failed
            }
        }
    }

    async fn try_send(&mut self, me: Option<NodeNo>, request: &Command) -> Result<Input, String> {
        let conn = self.connection.get().await?;
        let lease = self.timings.lease;
        let clock = &mut self.clock;
        let sent = execute(&conn, &self.settings, clock, lease, me, request).await;
        match sent {
            Ok(input) => Ok(input),
            Err(fault) if fault.kind() == ErrorKind::Fenced => Ok(Input::Expelled),
            Err(fault) if matches!(request, Command::Register) => {
                // The function is refused, or a later version has removed it.
                let required = required_schema(&conn).await.unwrap_or_default();
                self.required_schema.raise(required);
                match required > FORMAT {
                    true => Ok(Input::TooOld),
                    false => Err(fault.to_string()),
                }
            }
            Err(fault) => Err(fault.to_string()),
        }
    }
}

/// Returns the schema version that a node must know.
async fn required_schema(conn: &PgConnection) -> Result<u32, DbError> {
    let sql = "SELECT value FROM meta WHERE name = $1";
    let row = conn.query_one(sql, &[&meta::FORMAT]).await?;
    Ok(row.get::<_, i64>(0) as u32)
}

async fn execute(
    conn: &PgConnection,
    settings: &PostgresSettings,
    clock: &mut DatabaseClock,
    lease: Span,
    me: Option<NodeNo>,
    request: &Command,
) -> Result<Input, DbError> {
    let lease_ms = lease.as_millis() as i64;
    let me = me.map_or(0, |node| node.0 as i64);
    match request {
        Command::Register => {
            let row = conn
                .query_one(
                    ENTER,
                    &[
                        &NO_SHARDS_YET,
                        &settings.name,
                        &lease_ms,
                        &settings.role_name,
                        &VERSION,
                        &(clock.now().0 as i64),
                        &i64::from(FORMAT),
                    ],
                )
                .await?;
            Ok(Input::Registered(NodeNo(row.get::<_, i64>(0) as u64)))
        }
        Command::Heartbeat {
            wants_shards,
            report,
        } => {
            let [lead, replaced_lead, saved] = clock.parameters();
            let sent = clock.now();
            let [lead_name, saved_name] = database_clock::NAMES;
            let ms = |round_trip: Option<Span>| round_trip.map(|it| it.as_millis() as i64);
            let RoundTrips {
                heartbeat,
                fetch,
                record,
            } = report.round_trips;
            let parameters: Params<'_> = &[
                &me,
                wants_shards,
                &lease_ms,
                &lead,
                &replaced_lead,
                &saved,
                lead_name,
                saved_name,
                &i16::from(report.capacity.quarters()),
                &ms(heartbeat),
                &ms(fetch),
                &ms(record),
                &(settings.clock_offset)(),
            ];
            let row = conn.query_one(BEAT, parameters).await?;
            clock.take(sent, &row, FIRST_CLOCK_COLUMN);
            if row.get::<_, i64>(0) == 0 {
                return Ok(Input::Expelled);
            }
            Ok(Input::HeartbeatDone(read_view(&row)?))
        }
        Command::Fence {
            node,
            heartbeats: beat,
        } => {
            let (node_no, seen) = (node.0 as i64, *beat as i64);
            let row = conn.query_one(REMOVE_NODE, &[&node_no, &seen, &me]).await?;
            if row.get(0) {
                tracing::warn!(target: LOG_TARGET, %node, "a node has failed; other nodes take over its endpoints");
            }
            Ok(Input::Fenced)
        }
        Command::Claim { own, free } => {
            let (shards, epochs) = columns(own);
            let free = *free as i64;
            let rows = conn.query(CLAIM, &[&me, &shards, &epochs, &free]).await?;
            let claimed: Result<Vec<OwnedShard>, DbError> = rows
                .iter()
                .map(|row| holding(row.get(0), row.get(1)))
                .collect();
            Ok(Input::Claimed(claimed?))
        }
        Command::Release(holdings) => {
            let (shards, epochs) = columns(holdings);
            conn.execute(RELEASE, &[&me, &shards, &epochs]).await?;
            Ok(Input::Released)
        }
        Command::Leave => {
            conn.query_one(REMOVE_NODE, &[&me, &None::<i64>, &me])
                .await?;
            Ok(Input::Left)
        }
        Command::SetLease { .. }
        | Command::Grant(_)
        | Command::Revoke(_)
        | Command::CapacityChanged(_)
        | Command::Expire
        | Command::Retired => panic!("{request:?} is not asked of the table"),
    }
}

fn columns(holdings: &[OwnedShard]) -> (Vec<i16>, Vec<i64>) {
    holdings
        .iter()
        .map(|holding| (holding.shard.number() as i16, holding.epoch.0 as i64))
        .unzip()
}

fn holding(shard: i16, epoch: i64) -> Result<OwnedShard, DbError> {
    let number = u16::try_from(shard).ok();
    let shard = number
        .and_then(Shard::numbered)
        .ok_or_else(|| DbError::Corrupt(format!("there is no shard {shard}")))?;
    let epoch = Epoch(epoch as u64);
    Ok(OwnedShard { shard, epoch })
}

fn read_view(row: &tokio_postgres::Row) -> Result<TableView, DbError> {
    let nodes: Vec<i64> = row.get::<_, Option<_>>(2).unwrap_or_default();
    let beats: Vec<i64> = row.get::<_, Option<_>>(3).unwrap_or_default();
    let wants_shards: Vec<bool> = row.get::<_, Option<_>>(4).unwrap_or_default();
    let leases: Vec<i64> = row.get::<_, Option<_>>(5).unwrap_or_default();
    let capacities: Vec<Option<i16>> = row.get::<_, Option<_>>(6).unwrap_or_default();
    let round_trips =
        |column: usize| -> Vec<Option<i64>> { row.get::<_, Option<_>>(column).unwrap_or_default() };
    let (heartbeats, fetches, records) = (round_trips(7), round_trips(8), round_trips(9));
    let span = |ms: Option<i64>| ms.map(|ms| Span::from_millis(ms.max(0) as u64));
    let round_trips = heartbeats.into_iter().zip(fetches).zip(records);
    let speeds = capacities.into_iter().zip(round_trips);
    let speeds = speeds.map(|(capacity, ((heartbeat, fetch), record))| {
        Some(ReportedSpeed {
            capacity: Capacity::of_quarters(capacity?.max(0) as u8),
            round_trips: RoundTrips {
                heartbeat: span(heartbeat),
                fetch: span(fetch),
                record: span(record),
            },
        })
    });
    let nodes = nodes.into_iter().zip(beats).zip(wants_shards);
    let nodes = nodes.zip(leases.into_iter().zip(speeds));
    let nodes = nodes.map(
        |(((node, beat), wants_shards), (lease_ms, speed))| NodeRow {
            node: NodeNo(node as u64),
            heartbeats: beat as u64,
            wants_shards,
            lease: Span::from_millis(lease_ms as u64),
            speed,
        },
    );
    let shards: Vec<i16> = row.get(10);
    let owners: Vec<Option<i64>> = row.get(11);
    let epochs: Vec<i64> = row.get(12);
    let shards = shards.into_iter().zip(owners).zip(epochs);
    let shards = shards.map(|((shard, owner), epoch)| {
        Ok(ShardRow {
            ownership: holding(shard, epoch)?,
            owner: owner.map(|owner| NodeNo(owner as u64)),
        })
    });
    Ok(TableView {
        nodes: nodes.collect(),
        shards: shards.collect::<Result<_, DbError>>()?,
    })
}
