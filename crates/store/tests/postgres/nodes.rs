//! Several nodes on one database.

use std::time::{Duration, Instant};

use posthaste_core::cluster::Shard;
use posthaste_core::delivery::{DeadReason, Status};
use posthaste_core::lane::EndpointStatus;
use posthaste_store::{
    AcceptResult, CreateResult, DisabledReason, Lists, Quotas, ReplayFilter, ReplayScope,
    ReplayStatus, Store, StoredStatus, SweepResult, Written,
};

use crate::engines::{Database, settings};
use crate::fixture::{
    HERE, NOW, Node, REFUSE_REGISTRATIONS, acme, event, hand_in_success, node, node_with, one, run,
    succeed, tenant, wait_for_lock,
};

/// Takes every shard from its owner, as other nodes do when a node has been silent for too long.
const TAKE_ALL_SHARDS: &str =
    "DELETE FROM nodes; UPDATE shards SET owner = NULL, epoch = epoch + 1";

#[test]
fn writes_of_a_former_owner_change_nothing() {
    let database = Database::create();
    let old = node(&database, 1);
    let mut owns_nothing = settings(database.url());
    owns_nothing.wants_shards = false;
    let reader = node_with(owns_nothing, 2);
    old.create_tenant_and_endpoint();
    old.accept(event(None));
    let waiting = old.hand.take().pop().expect("it is handed over").delivery;
    // One transaction, so that the old node cannot register again in between.
    database.run(&format!("{TAKE_ALL_SHARDS}; {REFUSE_REGISTRATIONS}"));
    assert_eq!(succeed(&old.store, &waiting), Ok(Written::Superseded));
    let swept = old
        .store
        .sweep(NOW, HERE, DeadReason::EndpointDisabled, [].into(), 9);
    let nothing = SweepResult {
        ended: 0,
        more: false,
    };
    assert_eq!(run(swept), Ok(nothing));
    let stored = run(reader.store.delivery(acme(), waiting.id())).expect("it is read");
    let (stored, attempts) = stored.expect("it is there");
    assert_eq!(stored.shown_status(), Status::Pending);
    assert_eq!(attempts, []);
    assert_eq!(run(reader.store.counts()).expect("counts").pending, 1);
    // Accepting events needs no ownership.
    assert!(old.accept(event(None)).is_new);
}

#[test]
fn a_record_is_not_written_under_a_later_epoch() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    node.accept(event(None));
    let waiting = node.hand.take().pop().expect("it is handed over").delivery;
    // The writer waits for the directory lock, and the record waits behind it.
    let held = database.hold("SELECT pg_advisory_xact_lock(70530001)");
    let other = "other".parse().expect("a name");
    let blocked = node.store.create_tenant(NOW, tenant(other));
    wait_for_lock(&database, "pg_advisory_xact_lock");
    let recorded = hand_in_success(&node.store, &waiting);
    // Meanwhile the node loses every shard, registers under another number and claims them again.
    let cluster = node.store.cluster().expect("nodes share it");
    let before = cluster.me();
    database.run(&format!(
        "{TAKE_ALL_SHARDS}; SELECT pg_notify('posthaste', 'members 0')"
    ));
    let claimed_again =
        || cluster.me() != before && node.store.owned_shards().contains(&Shard::of(HERE));
    let patience = Instant::now() + Duration::from_secs(30);
    while !claimed_again() {
        assert!(Instant::now() < patience, "it never claimed them again");
        std::thread::sleep(Duration::from_millis(5));
    }
    held.finish();
    assert_eq!(run(blocked), Ok(CreateResult::Created));
    let written = recorded.recv().expect("it is answered");
    assert_eq!(written, Ok(Written::Superseded));
    // Records from here on are written.
    assert_eq!(succeed(&node.store, &waiting), Ok(Written::Applied));
}

#[test]
fn only_superseded_records_of_a_batch_are_refused() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    for _ in 0..2 {
        node.accept(event(None));
    }
    let waiting = node.hand.take();
    let first = &waiting[0].delivery;
    assert_eq!(succeed(&node.store, first), Ok(Written::Applied));
    assert_eq!(succeed(&node.store, first), Ok(Written::Superseded));
    let second = &waiting[1].delivery;
    assert_eq!(succeed(&node.store, second), Ok(Written::Applied));
    assert_eq!(run(node.store.counts()).expect("counts").pending, 0);
}

#[test]
fn the_same_key_on_two_nodes_makes_one_event() {
    let database = Database::create();
    let (one_node, other) = (node(&database, 1), node(&database, 2));
    one_node.create_tenant_and_endpoint();
    for number in 0..20 {
        let key = format!("key {number}");
        let answers =
            [&one_node, &other].map(|node| node.store.accept(NOW, vec![event(Some(&key))]));
        let [here, there] = answers.map(|answer| one(run(answer).expect("it is accepted")));
        assert_eq!(here.event, there.event, "{key}");
        assert!(here.is_new != there.is_new, "{key}");
    }
    assert_eq!(run(other.store.counts()).expect("counts").pending, 20);
}

#[test]
fn two_nodes_do_not_exceed_the_quota_together() {
    let database = Database::create();
    let nodes = [node(&database, 1), node(&database, 2)];
    nodes[0].create_tenant_and_endpoint();
    const MOST: u64 = 30;
    let a_second = Quotas {
        per_second: Some(MOST as u32),
        per_month: None,
    };
    let a_month = Quotas {
        per_second: None,
        per_month: Some(2 * MOST),
    };
    for (quotas, sum) in [(a_second, MOST), (a_month, 2 * MOST)] {
        let taken = |node: &Node| {
            let calls: Vec<_> = (0..25)
                .map(|_| node.store.accept_within(NOW, vec![event(None)], quotas))
                .collect();
            let answers = calls.into_iter().map(|call| run(call).expect("an answer"));
            let taken = answers.filter(|answer| matches!(answer, AcceptResult::Done(_)));
            taken.count() as u64
        };
        let taken: u64 = std::thread::scope(|scope| {
            let both = nodes.each_ref().map(|node| scope.spawn(|| taken(node)));
            both.map(|one| one.join().expect("no panic")).iter().sum()
        });
        assert_eq!(taken, MOST, "{quotas:?}");
        for node in &nodes {
            let usage = run(node.store.usage(NOW, acme())).expect("it is read");
            assert_eq!(usage.expect("a tenant").events_this_month, sum);
        }
    }
}

#[test]
fn an_event_is_routed_by_the_current_directory() {
    let database = Database::create();
    let mut settings = settings(database.url());
    settings.wants_shards = false;
    let (one_node, other) = (node(&database, 1), node_with(settings, 2));
    one_node.create_tenant_and_endpoint();
    assert_eq!(other.accept(event(None)).event.deliveries.len(), 1);
    let reason = Some(DisabledReason::Manual);
    let set_status =
        one_node
            .store
            .set_endpoint_status(NOW, HERE, EndpointStatus::Disabled, reason, None);
    assert_eq!(run(set_status), Ok(true));
    assert_eq!(other.accept(event(None)).event.deliveries, []);
    let set_status =
        one_node
            .store
            .set_endpoint_status(NOW, HERE, EndpointStatus::Enabled, None, None);
    assert_eq!(run(set_status), Ok(true));
    assert_eq!(other.accept(event(None)).event.deliveries.len(), 1);
    // Only the owner is handed the delivery; the other node reads.
    assert_eq!(other.hand.take().len(), 0);
    let fetched = run(one_node.store.fetch(HERE, NOW, 9, false)).expect("it is read");
    assert_eq!(fetched.deliveries.len(), 2);
}

#[test]
fn a_due_watermark_does_not_hide_earlier_deliveries() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    let mut later = event(None);
    later.deliver_at = Some(NOW.after(posthaste_core::time::Span::from_hours(1)));
    node.accept(later);
    let due = |node: &crate::fixture::Node| {
        let fetched = run(node.store.fetch(HERE, NOW, 9, false)).expect("it is read");
        (fetched.deliveries.len(), fetched.next_due.is_some())
    };
    assert_eq!(due(&node), (0, true));
    node.accept(event(None));
    assert_eq!(due(&node), (1, true));
    let waiting = node.hand.take().pop().expect("it is handed over").delivery;
    assert_eq!(succeed(&node.store, &waiting), Ok(Written::Applied));
    assert_eq!(due(&node), (0, true));
    run(node.store.retry(NOW, acme(), waiting.id())).expect("it begins again");
    assert_eq!(due(&node), (1, true));
}

#[test]
fn a_step_does_not_prevent_a_cancellation() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    for _ in 0..3 {
        node.accept(event(None));
    }
    let swept = node
        .store
        .sweep(NOW, HERE, DeadReason::EndpointDisabled, [].into(), 9);
    assert_eq!(run(swept).map(|swept| swept.ended), Ok(3));
    let filter = ReplayFilter {
        endpoint: None,
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Ended(StoredStatus::Failed),
    };
    let replay = run(node.store.create_replay(NOW, acme(), filter)).expect("it is created");
    assert_eq!(replay.total, 3);
    // The operation has read the replay, and its writes wait for the directory. Another node steps the replay.
    let held = database.hold("SELECT pg_advisory_xact_lock(70530001)");
    let cancelled = node.store.cancel_replay(NOW, acme(), replay.id);
    wait_for_lock(&database, "pg_advisory_xact_lock");
    database.run("UPDATE replays SET replayed = 2, skipped = 1");
    held.finish();
    let cancelled = run(cancelled).expect("it is cancelled").expect("it exists");
    assert_eq!(cancelled.status, ReplayStatus::Cancelled);
    let stored = run(node.store.replay(acme(), replay.id)).expect("it is read");
    let stored = stored.expect("it exists");
    assert_eq!(stored.status, ReplayStatus::Cancelled);
    assert_eq!((stored.replayed, stored.skipped), (2, 1));
}

#[test]
fn transactions_do_not_have_the_default_isolation_level_of_the_database() {
    let database = Database::create();
    database.run(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = %L', \
         current_database(), 'repeatable read'); END $$",
    );
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    database.run(
        "CREATE TABLE levels (level text); \
         CREATE FUNCTION note_level() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO levels VALUES (current_setting('transaction_isolation')); RETURN NEW; END $$; \
         CREATE TRIGGER note_level BEFORE INSERT ON waiting FOR EACH ROW EXECUTE FUNCTION note_level()",
    );
    node.accept(event(None));
    assert_eq!(database.run("SELECT level FROM levels"), ["read committed"]);
}

/// Endpoints of a large tenant.
const ENDPOINTS: usize = 2_000;

#[test]
fn a_tenant_with_many_endpoints_is_deleted_with_all_of_them() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    let columns = "SELECT string_agg(column_name, ', ') FROM information_schema.columns \
         WHERE table_name = 'endpoints' AND column_name NOT IN ('no', 'id')";
    let columns = database.run(columns).pop().expect("the table has columns");
    database.run(&format!(
        "INSERT INTO endpoints (no, id, {columns}) \
         SELECT 1000 + n, md5(n::text)::uuid, {columns} FROM endpoints, generate_series(2, {ENDPOINTS}) n"
    ));
    let deleted = run(node.store.delete_tenant(NOW, acme())).expect("it is written");
    assert_eq!(deleted.expect("the tenant exists").len(), ENDPOINTS);
    let remaining = "SELECT count(*) FROM endpoints WHERE standing <> 3";
    assert_eq!(database.run(remaining), ["0"]);
}
