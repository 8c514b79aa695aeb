//! Finishes a rolling upgrade when no node of an earlier version is left.
//!
//! Until then this node stores only what nodes of the earlier version can read
//! ([`FormatLevel`](posthaste_core::cluster::FormatLevel)). The task looks at the registered nodes in intervals, and ends
//! when the upgrade is finished, by this node or another.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::{UpgradeState, UpgradeStep};

use super::membership::Membership;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::{FORMAT, meta};
use crate::postgres::settings::PostgresSettings;
use crate::postgres::write::write_context::WriteContext;

/// Log target of this module.
const LOG_TARGET: &str = "posthaste_store::postgres::upgrade";

/// Time between two looks at the registered nodes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The version that nodes must know, and the number of nodes that know only earlier versions than this one.
struct Observed {
    required: u32,
    older_nodes: u64,
}

/// Runs until the upgrade is finished.
pub(super) async fn finish(membership: Arc<Membership>, settings: Rc<PostgresSettings>) {
    let shared = membership.shared.clone();
    // A failure to look is logged by the writer; the next look is made after the interval.
    if shared.required_schema.get() >= FORMAT {
        return;
    }
    tracing::info!(target: LOG_TARGET,
        required = shared.required_schema.get(), known = FORMAT,
        "nodes of the earlier version can still join; features of the new version are enabled when none has run for finish_upgrade_after"
    );
    let mut state = UpgradeState::new(FORMAT, settings.finish_upgrade_after);
    loop {
        let observed = membership.write(observe).await;
        if let Ok(Observed {
            required,
            older_nodes,
        }) = observed
        {
            shared.required_schema.raise(required);
            match state.observe(membership.now(), required, older_nodes) {
                UpgradeStep::Wait => {}
                UpgradeStep::Finish => {
                    if let Ok(required) = membership.write(raise).await {
                        shared.required_schema.raise(required);
                    }
                    continue;
                }
                UpgradeStep::Finished => break,
            }
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    tracing::info!(target: LOG_TARGET,
        required = shared.required_schema.get(),
        "the upgrade is finished; nodes of the earlier version can no longer start"
    );
}

async fn observe(context: &mut WriteContext) -> Result<Observed, DbError> {
    let sql = "SELECT (SELECT value FROM meta WHERE name = $1), \
               (SELECT count(*) FROM nodes WHERE format < $2)";
    let known = i64::from(FORMAT);
    let row = context
        .conn
        .query_one(sql, &[&meta::FORMAT, &known])
        .await?;
    Ok(Observed {
        required: row.get::<_, i64>(0) as u32,
        older_nodes: row.get::<_, i64>(1) as u64,
    })
}

async fn raise(context: &mut WriteContext) -> Result<u32, DbError> {
    let known = i64::from(FORMAT);
    let row = context
        .conn
        .query_one("SELECT finish_upgrade($1)", &[&known])
        .await?;
    Ok(row.get::<_, i64>(0) as u32)
}
