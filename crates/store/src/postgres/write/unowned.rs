//! Owner operations for endpoints whose shard has no owner at the moment.

use posthaste_core::cluster::Shard;
use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;

use super::write_context::WriteContext;
use super::{changed_delivery, endpoints, record};
use crate::postgres::db_error::DbError;
use crate::{DisabledReason, Written};

/// Sets the status of an endpoint, if its shard has no owner.
pub(in crate::postgres) async fn set_status(
    context: &mut WriteContext,
    endpoint: EndpointId,
    status: EndpointStatus,
    reason: Option<DisabledReason>,
) -> Result<Option<bool>, DbError> {
    context.plan_directory_change().await?;
    if context.plans_directory_change() {
        if !is_unowned(context, endpoint).await? {
            return Ok(None);
        }
        check_unowned_last(context, endpoint);
    } else if !lock_unowned(context, endpoint).await? {
        return Ok(None);
    }
    let changed = endpoints::set_endpoint_status(context, endpoint, status, reason, None).await?;
    Ok(Some(changed))
}

/// Cancels a delivery, if the shard of its endpoint has no owner.
pub(in crate::postgres) async fn cancel(
    context: &mut WriteContext,
    now: Timestamp,
    endpoint: EndpointId,
    delivery: DeliveryId,
) -> Result<Option<Written>, DbError> {
    if !lock_unowned(context, endpoint).await? {
        return Ok(None);
    }
    let Some(row) = changed_delivery::find_for_update(&context.conn, delivery).await? else {
        return Ok(Some(Written::Superseded));
    };
    if row.delivery.facts().endpoint != endpoint {
        return Ok(Some(Written::Superseded));
    }
    record::cancel(context, &row, now).await.map(Some)
}

/// Returns whether an endpoint's shard has no owner. If so, no node can claim it before the commit.
async fn lock_unowned(context: &WriteContext, endpoint: EndpointId) -> Result<bool, DbError> {
    let shard = Shard::of(endpoint).number() as i16;
    let sql = "SELECT 1 FROM shards WHERE no = $1 AND owner IS NULL FOR SHARE";
    Ok(context.conn.query_opt(sql, &[&shard]).await?.is_some())
}

/// Returns whether an endpoint's shard has no owner at the moment.
async fn is_unowned(context: &WriteContext, endpoint: EndpointId) -> Result<bool, DbError> {
    let shard = Shard::of(endpoint).number() as i16;
    let sql = "SELECT 1 FROM shards WHERE no = $1 AND owner IS NULL";
    Ok(context.conn.query_opt(sql, &[&shard]).await?.is_some())
}

/// Checks with the commit that the shard still has no owner. Otherwise the operation runs again.
fn check_unowned_last(context: &mut WriteContext, endpoint: EndpointId) {
    let shard = Shard::of(endpoint).number() as i16;
    let sql = "SELECT check_unowned($1)";
    context.write_last(sql, move |conn| async move {
        conn.execute(sql, &[&shard]).await?;
        Ok(())
    });
}
