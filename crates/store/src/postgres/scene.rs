//! What operations work with, and what a transaction leaves behind.
//!
//! A cold operation begins with what it relies on, in this order: [`Scene::own_directory`] if it changes
//! tenants, endpoints or keys, [`Scene::share_directory`] if it routes by them, [`Scene::guard`] if it is an
//! owner's. Then it reads and writes through [`Scene::link`], says what it changed ([`Scene::change`],
//! [`Scene::count`], [`Scene::tell`]), and all of that is written with it when it is done.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use posthaste_core::id::{EndpointId, Mint, TenantId};
use posthaste_core::time::{Month, Timestamp};

use rustc_hash::FxHashMap;
use tokio_postgres::types::ToSql;

use super::changelog;
use super::columns::Id;
use super::fault::Fault;
use super::floors::Floors;
use super::holdings::{Holdings, Tenure};
use super::link::Link;
use super::partitions::{Day, Partitions};
use super::routes::{Routes, TenantRoutes};
use super::schema::lock;
use super::tally::{self, Tally};
use super::tidings::{self, Work};
use super::tidy::Progress;
use crate::codes::RowStatus;
use crate::{Change, StoreSettings};

/// What operations work with.
pub(super) struct Scene {
    /// The writer's connection.
    pub(super) link: Rc<Link>,
    /// Who wants what; exact once the directory is owned or shared.
    pub(super) routes: Routes,
    /// Makes ids, for both writers: so they grow in the order in which this node gives them.
    pub(super) mint: Rc<RefCell<Mint>>,
    pub(super) settings: StoreSettings,
    pub(super) holdings: Arc<Holdings>,
    pub(super) floors: Arc<Floors>,
    pub(super) partitions: Partitions,
    /// The numbers of endpoints, which never change.
    pub(super) numbers: FxHashMap<EndpointId, i64>,
    /// The leads that are known to be stored, of events and of deliveries.
    pub(super) leads: (i64, i64),
    pub(super) effects: Effects,
    pub(super) memory: Memory,
    /// From this size on, a day's rows are removed as a whole.
    pub(super) large_day_bytes: u64,
    /// What the flushes of this process are told from those of others by.
    pub(super) flusher: Id,
    /// Whether this is the writer beside the first, for whoever is limited.
    pub(super) is_metered: bool,
}

/// What the writer remembers that may be wrong without harm.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// How far tidying is.
    pub(super) tidying: Progress,
    /// The month in which old months were last forgotten.
    pub(super) forgot_in: Option<Month>,
}

/// What a transaction changes besides its rows.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// How much waits and how much has failed.
    pub(super) tally: Tally,
    /// What others keep in mind.
    pub(super) changes: Vec<Change>,
    /// What is due.
    pub(super) work: Work,
    /// How far tidying has come, if this was a step of it.
    pub(super) tidying: Option<Progress>,
}

/// Checks what a transaction relies on.
pub(super) const GUARD: &str = "SELECT guard($1, $2, $3, $4)";

impl Scene {
    /// Nobody else changes the directory from here to the commit, and no event is routed by it; what is
    /// known of it is exact. Comes first in a transaction, so that nobody waits for what it holds.
    pub(super) async fn own_directory(&mut self) -> Result<(), Fault> {
        let sql = "SELECT pg_advisory_xact_lock($1)";
        self.link.execute(sql, &[&lock::DIRECTORY]).await?;
        self.routes.catch_up(&self.link, &self.settings).await
    }

    /// Nobody changes the directory from here to the commit; what is known of it is exact.
    pub(super) async fn share_directory(&mut self) -> Result<(), Fault> {
        let sql = "SELECT pg_advisory_xact_lock_shared($1)";
        self.link.execute(sql, &[&lock::DIRECTORY]).await?;
        self.routes.catch_up(&self.link, &self.settings).await
    }

    /// This node owns the endpoint, and nobody else can before the commit. Otherwise the operation ends
    /// here, and answers what it answers when it is fenced.
    pub(super) async fn guard(&self, endpoint: EndpointId) -> Result<(), Fault> {
        self.guard_as(self.holdings.tenure(endpoint)).await
    }

    /// The same for what was decided under a tenure that may have ended since, even if another has begun.
    pub(super) async fn guard_as(&self, tenure: Tenure) -> Result<(), Fault> {
        let me = Some(tenure.me.0 as i64);
        let held = vec![tenure.shard.number() as i16];
        let epochs = vec![tenure.epoch.unwrap_or(-1)];
        self.link
            .execute(GUARD, &[&None::<i64>, &me, &held, &epochs])
            .await?;
        Ok(())
    }

    /// The slot in which this writer counts, so that the two of a node do not wait for each other.
    pub(super) fn slot(&self) -> i16 {
        self.holdings.slot(self.is_metered)
    }

    /// A tenant that is not deleted.
    pub(super) fn tenant(&self, tenant: &TenantId) -> Option<Arc<TenantRoutes>> {
        self.routes.tenant(tenant).cloned()
    }

    /// A number that no tenant or endpoint has had. Wants the directory to be owned.
    pub(super) async fn next_no(&self) -> Result<i64, Fault> {
        let sql = "UPDATE directory SET last_no = last_no + 1 RETURNING last_no";
        Ok(self.link.query_one(sql, &[]).await?.get(0))
    }

    /// Something that nodes keep in mind has changed. Wants the directory to be owned.
    pub(super) fn change(&mut self, change: Change) {
        self.effects.changes.push(change);
    }

    /// A delivery to an endpoint is no longer of the one status, and is of the other.
    pub(super) fn count(
        &mut self,
        endpoint_no: i64,
        before: Option<RowStatus>,
        after: Option<RowStatus>,
    ) {
        self.effects.tally.count(endpoint_no, before, after);
    }

    /// Something is due at an endpoint, whoever owns it.
    pub(super) fn tell(&mut self, endpoint: EndpointId, due: Timestamp) {
        self.effects.work.add(endpoint, due);
    }

    /// There are partitions for what is made at this time. Comes before the first row of it.
    pub(super) async fn make_room(&mut self, now: Timestamp) -> Result<(), Fault> {
        // Ids never go back, so they may lie ahead of the time they are made at.
        let ahead: u128 = self.mint.borrow().clone().next(now);
        self.partitions.make(&self.link, Day::of(ahead)).await
    }

    /// Keeps a number by name.
    pub(super) async fn set_number(&self, name: &str, value: i64) -> Result<(), Fault> {
        let sql = "UPDATE meta SET value = $2 WHERE name = $1";
        self.link.execute(sql, &[&name, &value]).await?;
        Ok(())
    }

    /// Writes what the operation changed besides its rows. The last thing before a commit.
    pub(super) async fn write_effects(&mut self) -> Result<(), Fault> {
        let slot = self.slot();
        if let Some((endpoints, waiting, dead)) = self.effects.tally.columns() {
            let given: [&(dyn ToSql + Sync); 4] = [&endpoints, &waiting, &dead, &slot];
            self.link.execute(tally::COUNT, &given).await?;
        }
        if !self.effects.changes.is_empty() {
            changelog::append(&self.link, &self.effects.changes).await?;
        }
        let holdings = &self.holdings;
        if let Some((shards, ids, dues)) = self.effects.work.columns(|it| holdings.owns(it)) {
            let me = holdings.me().0 as i64;
            let given: [&(dyn ToSql + Sync); 4] = [&shards, &ids, &dues, &me];
            self.link.execute(&tidings::tell(), &given).await?;
        }
        Ok(())
    }

    /// The transaction is committed.
    pub(super) fn keep(&mut self) {
        let effects = std::mem::take(&mut self.effects);
        self.partitions.settle();
        if !effects.changes.is_empty() {
            self.routes.mark_stale();
        }
        for (endpoint, due) in effects.work.iter() {
            self.floors.lower(endpoint, due);
        }
        if let Some(progress) = effects.tidying {
            self.memory.tidying = progress;
        }
    }

    /// There is another connection, and perhaps another server, to which not all was carried over that the
    /// last one had: what was read before counts for nothing. And what was committed while nobody heard of it
    /// is found again.
    pub(super) fn start_over(&mut self) {
        self.routes.forget();
        self.numbers.clear();
        self.leads = (0, 0);
        self.partitions.forget();
        self.floors.forget();
    }

    /// The transaction is rolled back.
    pub(super) fn forget(&mut self) {
        self.effects = Effects::default();
        self.partitions.undo();
    }
}
