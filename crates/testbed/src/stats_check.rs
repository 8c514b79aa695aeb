//! Compares the stats of the API with the deliveries and attempts that the store holds.
//!
//! When nothing is in progress any more, they must be equal, whatever faults there were: for everything, each tenant and
//! each endpoint. [`assert_stats_equal_deliveries`] lists every delivery of every tenant and counts them and their
//! attempts. It does not know how often a delivery failed or succeeded before it was replayed, so there must be no replays
//! and no retries of finished deliveries, and everything must have happened within 24 hours. Every delivery must have ended:
//! [`unfinished`] counts those that have not.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Api;

/// Number of deliveries on a page.
const PAGE: usize = 250;

/// Counts of deliveries and attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryTotals {
    /// Attempts made.
    pub attempts: u64,
    /// Deliveries that succeeded.
    pub succeeded: u64,
    /// Deliveries that failed for good.
    pub failed: u64,
}

impl DeliveryTotals {
    fn add(&mut self, other: DeliveryTotals) {
        self.attempts += other.attempts;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
    }

    /// Returns the counts of one delivery that has ended. What is counted of another one after it was read would look like
    /// a difference.
    fn of_delivery(delivery: &Value) -> DeliveryTotals {
        let status = delivery["status"].as_str().expect("a status");
        assert!(has_ended(delivery), "a delivery has not ended: {delivery}");
        DeliveryTotals {
            attempts: delivery["attempt_count"].as_u64().expect("a count"),
            succeeded: u64::from(status == "succeeded"),
            failed: u64::from(status == "failed"),
        }
    }

    /// Returns the sum of a series of the API.
    fn of_series(series: &Value) -> DeliveryTotals {
        let mut sum = DeliveryTotals::default();
        for bucket in series["buckets"].as_array().expect("buckets") {
            let count = |name: &str| bucket[name].as_u64().expect("a count");
            sum.add(DeliveryTotals {
                attempts: count("attempts"),
                succeeded: count("succeeded"),
                failed: count("failed"),
            });
        }
        sum
    }
}

/// Checks that the stats equal the stored deliveries, and returns the totals of everything. The key of `api` must be an
/// admin key. Deliveries of the `operational` tenant are not in the totals of everything.
///
/// # Panics
/// If they differ. The message lists every difference.
pub async fn assert_stats_equal_deliveries(
    api: &mut Api,
    operational: Option<&str>,
) -> DeliveryTotals {
    let mut differences = Vec::new();
    let mut everything = DeliveryTotals::default();
    for tenant in all(api, "/v1/tenants").await {
        let tenant = tenant["id"].as_str().expect("an id");
        let by_endpoint = stored(api, tenant).await;
        let mut total = DeliveryTotals::default();
        for (endpoint, stored) in by_endpoint {
            let scope = format!("/v1/tenants/{tenant}/endpoints/{endpoint}");
            // The stats of a deleted endpoint are no longer shown. Its deliveries stay in those of its tenant.
            if api.get(&scope).await.status == 200 {
                compare(api, &scope, stored, &mut differences).await;
            }
            total.add(stored);
        }
        compare(
            api,
            &format!("/v1/tenants/{tenant}"),
            total,
            &mut differences,
        )
        .await;
        if operational != Some(tenant) {
            everything.add(total);
        }
    }
    compare(api, "/v1", everything, &mut differences).await;
    assert!(
        differences.is_empty(),
        "the stats are not those of the store:\n{}",
        differences.join("\n")
    );
    everything
}

/// Returns the number of deliveries of a tenant that have not ended. Each is read once, with its status: a list for each status
/// could miss a delivery whose status changes between two of them, for example after an attempt that failed.
pub async fn unfinished(api: &mut Api, tenant: &str) -> usize {
    let deliveries = all(api, &format!("/v1/tenants/{tenant}/deliveries")).await;
    deliveries.iter().filter(|it| !has_ended(it)).count()
}

fn has_ended(delivery: &Value) -> bool {
    matches!(
        delivery["status"].as_str(),
        Some("succeeded" | "failed" | "cancelled")
    )
}

/// Compares the series of a scope with what is stored.
async fn compare(
    api: &mut Api,
    scope: &str,
    stored: DeliveryTotals,
    differences: &mut Vec<String>,
) {
    let path = format!("{scope}/stats/series?window=24h");
    let series = api.get(&path).await.expect(200);
    let counted = DeliveryTotals::of_series(&series);
    if counted != stored {
        differences.push(format!("{scope}: stats {counted:?}, store {stored:?}"));
    }
}

/// Counts the deliveries of a tenant, by endpoint.
async fn stored(api: &mut Api, tenant: &str) -> BTreeMap<String, DeliveryTotals> {
    let mut by_endpoint: BTreeMap<String, DeliveryTotals> = BTreeMap::new();
    for delivery in all(api, &format!("/v1/tenants/{tenant}/deliveries")).await {
        let endpoint = delivery["endpoint_id"].as_str().expect("an endpoint");
        let totals = by_endpoint.entry(endpoint.to_owned()).or_default();
        totals.add(DeliveryTotals::of_delivery(&delivery));
    }
    by_endpoint
}

/// Returns all pages of a list.
async fn all(api: &mut Api, path: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut page = format!("{path}?limit={PAGE}");
    loop {
        let body = api.get(&page).await.expect(200);
        items.extend(body["data"].as_array().expect("a list").iter().cloned());
        match body["next_cursor"].as_str() {
            Some(cursor) => page = format!("{path}?limit={PAGE}&cursor={cursor}"),
            None => return items,
        }
    }
}
