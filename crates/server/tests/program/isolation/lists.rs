//! Lists and cursors reveal nothing about other tenants.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use serde_json::Value;

use super::fixture::{Caller, IsolationFixture};
use super::tenant_data::{OTHER_TENANT, OWN, TenantData, receiver};

/// Length of the id prefix that is unique among ids of a kind.
const KEY_BYTES: usize = 8;

/// Returns a cursor close to this one that the server never issued.
fn invented_cursor(cursor: &str) -> String {
    let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).expect("base64");
    let last = bytes.last_mut().expect("some bytes");
    *last ^= 1;
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the pages of a list, with one item each.
async fn pages(caller: &Caller, path: &str) -> Vec<Value> {
    let joint = if path.contains('?') { '&' } else { '?' };
    let mut pages = Vec::new();
    let mut next = format!("{path}{joint}limit=1");
    loop {
        let page = caller.call("GET", &next, None).await.json(200);
        let cursor = page["next_cursor"].as_str().map(str::to_owned);
        pages.push(page);
        match cursor {
            Some(cursor) => next = format!("{path}{joint}limit=1&cursor={cursor}"),
            None => return pages,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_tenants_cursor_is_answered_like_an_invalid_one() {
    let fixture = IsolationFixture::start().await;
    let receiver = receiver().await;
    let own = TenantData::create(&fixture, &receiver, OWN).await;
    let theirs = TenantData::create(&fixture, &receiver, OTHER_TENANT).await;
    let lists = || {
        let routes = fixture.routes.iter();
        routes.filter(|route| route.is_list() && route.is_tenants())
    };
    let mut cursors = Vec::new();
    for route in lists() {
        for page in pages(&theirs.caller, &theirs.path(&route.path)).await {
            let cursor = page["next_cursor"].as_str();
            cursors.extend(cursor.map(str::to_owned));
        }
    }
    assert!(cursors.len() >= 6, "only {} cursors", cursors.len());
    for route in lists() {
        let path = own.path(&route.path);
        for cursor in &cursors {
            let with = |cursor: &str| format!("{path}?cursor={cursor}");
            let seen = own.caller.call("GET", &with(cursor), None).await;
            let made_up = with(&invented_cursor(cursor));
            let unseen = own.caller.call("GET", &made_up, None).await;
            assert_eq!(seen, unseen, "{path} {cursor}");
            let text = String::from_utf8_lossy(&seen.body).into_owned();
            for (kind, id) in theirs.all_ids() {
                assert!(!text.contains(id), "{path} shows a foreign {kind}: {text}");
            }
        }
    }
}

/// The existence of a next page depends only on the caller's own items.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_contain_only_the_own_resources() {
    let fixture = IsolationFixture::start().await;
    let receiver = receiver().await;
    // Created between two other tenants.
    let earlier = TenantData::create(&fixture, &receiver, "early-77ab").await;
    let own = TenantData::create(&fixture, &receiver, OWN).await;
    let later = TenantData::create(&fixture, &receiver, "later-c03d").await;
    let mut in_progress = 0;
    for route in &fixture.routes {
        if !(route.is_list() && route.is_tenants()) {
            continue;
        }
        let mut paths = vec![own.path(&route.path)];
        for status in &route.statuses {
            paths.push(format!("{}?status={status}", own.path(&route.path)));
        }
        for path in paths {
            let pages = pages(&own.caller, &path).await;
            let whole = fixture.admin().call("GET", &path, None).await.json(200);
            let whole = items_of(&whole);
            let items: Vec<Value> = pages.iter().flat_map(items_of).collect();
            assert_eq!(items, whole, "{path}");
            // A delivery in flight is no longer pending, and the page where it would be stays empty.
            let empty = usize::from(path.ends_with("status=pending"));
            let most = items.len().max(1) + empty;
            assert!(pages.len() <= most, "{path} has more pages than items");
            in_progress += u32::from(path.ends_with("status=in_progress") && whole.len() == 1);
            for page in &pages {
                assert_own(page, &own, [&earlier, &later], &path);
            }
        }
    }
    assert_eq!(in_progress, 1, "no delivery was in flight");
}

/// Returns the items of a page, without the actor fields that only an admin sees.
fn items_of(page: &Value) -> Vec<Value> {
    let mut items = page["data"].as_array().expect("a list").clone();
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        if item.contains_key("actor") {
            item.retain(|name, _| !["actor", "key_id", "from"].contains(&name.as_str()));
        }
    }
    items
}

/// Checks that neither the items nor the cursor belong to another tenant.
fn assert_own(page: &Value, own: &TenantData, others: [&TenantData; 2], path: &str) {
    let text = page["data"].to_string();
    for (kind, id) in others.iter().flat_map(|other| other.all_ids()) {
        assert!(!text.contains(id), "{path} shows a foreign {kind}");
    }
    let Some(cursor) = page["next_cursor"].as_str() else {
        return;
    };
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).expect("base64");
    // Some cursors hold only the prefix of an id.
    let begins = |id: &str| raw(id).is_some_and(|id| id[..KEY_BYTES] == bytes[1..=KEY_BYTES]);
    // Audit entries have no known ids. Those that the page shows are known to be the tenant's own.
    let shown = page["data"].as_array().into_iter().flatten();
    let mut shown = shown.filter_map(|item| item["id"].as_str());
    let is_own = own.all_ids().any(|(_, id)| begins(id)) || shown.any(begins);
    assert!(
        is_own,
        "{path}: the cursor points at a resource of another tenant"
    );
}

/// Returns the bytes of an id.
fn raw(id: &str) -> Option<Vec<u8>> {
    use posthaste_core::id::{AlertId, AuditId, DeliveryId, EndpointId, EventId, KeyId, ReplayId};
    let number = None
        .or_else(|| id.parse::<EndpointId>().ok().map(|id| id.0))
        .or_else(|| id.parse::<EventId>().ok().map(|id| id.0))
        .or_else(|| id.parse::<DeliveryId>().ok().map(|id| id.0))
        .or_else(|| id.parse::<ReplayId>().ok().map(|id| id.0))
        .or_else(|| id.parse::<KeyId>().ok().map(|id| id.0))
        .or_else(|| id.parse::<AuditId>().ok().map(|id| id.0))
        .or_else(|| id.parse::<AlertId>().ok().map(|id| id.0));
    number.map(|number: u128| number.to_be_bytes().to_vec())
}
