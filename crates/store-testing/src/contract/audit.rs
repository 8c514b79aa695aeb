//! The audit log.
//!
//! An entry is written before the action and completed once with its outcome. The cases check texts that are too
//! long, listing by tenant and time, that a later tenant with the same id sees no earlier entry, and removal in
//! small steps.

use posthaste_core::id::{AuditId, KeyId, first_sequence, id_of};
use posthaste_core::time::Timestamp;

use super::Harness;
use super::fixture::{DAY, StoreFixture, all, at, id};
use posthaste_store::{
    AUDIT_RETENTION, ActionInterface, AuditCompletion, AuditEntry, AuditFilter, AuditOutcome,
    AuditScope, CreateResult, MAX_AUDIT_CHARS,
};

/// Returns the id of an entry that was begun at a time.
fn named(at: Timestamp, number: u64) -> AuditId {
    AuditId(id_of(first_sequence(at), number))
}

/// Returns an entry without an outcome.
fn entry(now: Timestamp, number: u64, tenant: Option<&str>) -> AuditEntry {
    AuditEntry {
        id: named(now, number),
        at: now,
        actor: "the key ci of acme".to_owned(),
        actor_key: Some(KeyId(7)),
        via: ActionInterface::Portal,
        from: Some("2001:db8::7".to_owned()),
        action: "endpoints.pause".to_owned(),
        tenant: tenant.map(id),
        resource: "/v1/tenants/acme/endpoints/ep_ü".to_owned(),
        outcome: None,
    }
}

fn refused() -> AuditOutcome {
    AuditOutcome::Refused("not_found".to_owned())
}

async fn listed(world: &StoreFixture<'_>, filter: &AuditFilter, limit: usize) -> Vec<AuditEntry> {
    all(limit, |page| world.store.audit(filter.clone(), page)).await
}

pub(super) async fn an_audit_entry_is_written_and_completed_once(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let bare = AuditEntry {
        actor_key: None,
        via: ActionInterface::Cli,
        from: None,
        ..entry(at(2), 2, None)
    };
    let complete = AuditEntry {
        via: ActionInterface::Api,
        outcome: Some(AuditOutcome::Done),
        ..entry(at(3), 3, Some("nobody-yet"))
    };
    let cut_short = AuditEntry {
        via: ActionInterface::Page,
        ..entry(at(4), 4, Some("acme"))
    };
    let mut first = entry(at(1), 1, Some("acme"));
    for made in [&first, &bare, &complete, &cut_short] {
        let begun = world.store.begin_audit(at(9), made.clone()).await;
        assert_eq!(begun, Ok(CreateResult::Created));
    }
    let mut again = first.clone();
    again.actor = "another person".to_owned();
    let begun = world.store.begin_audit(at(9), again).await;
    assert_eq!(begun, Ok(CreateResult::Taken));

    let finish = |entry: &AuditEntry, outcome| {
        let made = (outcome == AuditOutcome::Done).then(|| "/v1/tenants/acme/keys/ü".to_owned());
        world.store.finish_audit(entry.id, outcome, made)
    };
    assert_eq!(finish(&first, refused()).await, Ok(AuditCompletion::Done));
    assert_eq!(
        finish(&first, AuditOutcome::Done).await,
        Ok(AuditCompletion::Already)
    );
    assert_eq!(
        finish(&first, refused()).await,
        Ok(AuditCompletion::Already)
    );
    assert_eq!(
        finish(&complete, refused()).await,
        Ok(AuditCompletion::Already)
    );
    assert_eq!(
        finish(&bare, AuditOutcome::Done).await,
        Ok(AuditCompletion::Done)
    );
    assert_eq!(
        finish(&entry(at(5), 1, None), refused()).await,
        Ok(AuditCompletion::NoSuchEntry)
    );
    first.outcome = Some(refused());
    let bare = AuditEntry {
        outcome: Some(AuditOutcome::Done),
        resource: "/v1/tenants/acme/keys/ü".to_owned(),
        ..bare
    };
    let expected = [cut_short, complete, bare, first];
    let world = world.reopened().await;
    let found = listed(&world, &AuditFilter::default(), 9).await;
    assert_eq!(found, expected);
}

pub(super) async fn long_texts_are_truncated(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let long = "ü".repeat(MAX_AUDIT_CHARS + 1);
    let made = AuditEntry {
        resource: long.clone(),
        actor: "a\0b".to_owned(),
        ..entry(at(1), 1, None)
    };
    let begun = world.store.begin_audit(at(1), made.clone()).await;
    assert_eq!(begun, Ok(CreateResult::Created));
    let finished = world
        .store
        .finish_audit(made.id, AuditOutcome::Refused(long.clone()), None);
    assert_eq!(finished.await, Ok(AuditCompletion::Done));
    let other = entry(at(0), 2, None);
    let begun = world.store.begin_audit(at(0), other.clone()).await;
    assert_eq!(begun, Ok(CreateResult::Created));
    let finished = world
        .store
        .finish_audit(other.id, AuditOutcome::Done, Some(long));
    assert_eq!(finished.await, Ok(AuditCompletion::Done));
    let found = listed(&world, &AuditFilter::default(), 9).await;
    let cut = "ü".repeat(MAX_AUDIT_CHARS);
    assert_eq!(found[1].resource, cut);
    assert_eq!(found[0].resource, cut);
    assert_eq!(found[0].outcome, Some(AuditOutcome::Refused(cut)));
    assert_eq!(found[0].actor, "a\u{fffd}b");
}

pub(super) async fn entries_are_found_by_tenant_and_time(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("Acme").await;
    // Not in the order of their times, and two in the same millisecond.
    let made = [
        (5, 1, Some("acme")),
        (3, 1, None),
        (3, 2, Some("Acme")),
        (9, 1, Some("acme")),
        (1, 1, Some("acme")),
        (7, 1, Some("Acme")),
    ];
    for (ms, number, tenant) in made {
        let begun = world
            .store
            .begin_audit(at(ms), entry(at(ms), number, tenant));
        assert_eq!(begun.await, Ok(CreateResult::Created));
    }
    let times = [None, Some(0), Some(3), Some(4), Some(9), Some(100)];
    for of in [
        AuditScope::All,
        AuditScope::AnyWithId(id("acme")),
        AuditScope::Tenant(id("acme")),
        AuditScope::Tenant(id("Acme")),
        AuditScope::AnyWithId(id("nobody")),
        AuditScope::Tenant(id("nobody")),
    ] {
        for (since, until) in times.iter().flat_map(|a| times.map(|b| (*a, b))) {
            let mut expected: Vec<AuditId> = made
                .iter()
                .filter(|(ms, _, tenant)| {
                    let theirs = match &of {
                        AuditScope::All => true,
                        AuditScope::AnyWithId(wanted) | AuditScope::Tenant(wanted) => {
                            *tenant == Some(wanted.as_str())
                        }
                    };
                    theirs
                        && since.is_none_or(|since| *ms >= since)
                        && until.is_none_or(|until| *ms < until)
                })
                .map(|(ms, number, _)| named(at(*ms), *number))
                .collect();
            expected.sort();
            expected.reverse();
            let filter = AuditFilter {
                of: of.clone(),
                since: since.map(at),
                until: until.map(at),
            };
            for limit in [1, 2, 9] {
                let found = listed(&world, &filter, limit).await;
                let ids: Vec<AuditId> = found.iter().map(|found| found.id).collect();
                assert_eq!(ids, expected, "{filter:?}, pages of {limit}");
            }
        }
    }
}

pub(super) async fn a_new_tenant_with_a_reused_id_sees_no_earlier_entry(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    let begin = async |ms, number| {
        let entry = entry(at(ms), number, Some("acme"));
        let begun = world.store.begin_audit(at(ms), entry).await;
        assert_eq!(begun, Ok(CreateResult::Created));
    };
    begin(1, 1).await;
    world.add_tenant("acme").await;
    begin(2, 2).await;
    world.store.delete_tenant(at(3), id("acme")).await.unwrap();
    begin(3, 3).await;
    let numbers = async |of: AuditScope| {
        let filter = AuditFilter {
            of,
            ..AuditFilter::default()
        };
        let found = listed(&world, &filter, 2).await;
        found
            .iter()
            .map(|entry| entry.id.0 as u64)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        numbers(AuditScope::Tenant(id("acme"))).await,
        Vec::<u64>::new()
    );
    world.add_tenant("acme").await;
    begin(4, 4).await;
    assert_eq!(numbers(AuditScope::Tenant(id("acme"))).await, [4]);
    assert_eq!(
        numbers(AuditScope::AnyWithId(id("acme"))).await,
        [4, 3, 2, 1]
    );
    assert_eq!(numbers(AuditScope::All).await, [4, 3, 2, 1]);
}

pub(super) async fn old_entries_are_removed_in_small_steps(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    for number in 1..=7 {
        let now = at(if number > 5 { DAY } else { 0 });
        let begun = world.store.begin_audit(now, entry(now, number, None));
        assert_eq!(begun.await, Ok(CreateResult::Created));
    }
    let over = at(0).after(AUDIT_RETENTION);
    let before = Timestamp(over.0 - 1);
    assert!(!world.retention_step(before, DAY, 2).await.more);
    let everything = AuditFilter::default();
    assert_eq!(listed(&world, &everything, 9).await.len(), 7);
    let mut more = Vec::new();
    for _ in 0..3 {
        more.push(world.retention_step(over, DAY, 2).await.more);
    }
    assert_eq!(more, [true, true, false]);
    let left = listed(&world, &everything, 9).await;
    let left: Vec<u64> = left.iter().map(|entry| entry.id.0 as u64).collect();
    assert_eq!(left, [7, 6]);
}
