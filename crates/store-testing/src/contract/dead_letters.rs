//! Dead letters by endpoint and failure kind, and endpoints that need attention.
//!
//! Dead letters are grouped by endpoint and failure kind, with a count up to a bound and the newest delivery. Pages
//! of groups are complete at any length, and a replay of a group covers exactly that group. No tenant sees groups
//! of another.

use posthaste_core::classify::{FailureKind, Outcome, TransportError};
use posthaste_core::delivery::{DeadReason, Status};
use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::lane::{DisableCause, EndpointStatus, Health, StoredTrip, TripReason};

use super::Harness;
use super::fixture::{StoreFixture, all, at, endpoint, event, id};
use posthaste_store::{
    BoundedCount, DeadLetterGroup, DeliveryFilter, DisabledReason, EndpointRow, MAX_GROUP_COUNT,
    PageRequest, ReplayFilter, ReplayScope, ReplayStatus, StoredStatus,
};

async fn groups(
    world: &StoreFixture<'_>,
    only: Option<EndpointId>,
    limit: usize,
) -> Vec<DeadLetterGroup> {
    all(limit, |page| {
        world.store.dead_letter_groups(id("acme"), only, page)
    })
    .await
}

/// Returns the endpoint, failure kind and count of each group.
fn summaries(groups: &[DeadLetterGroup]) -> Vec<(u128, Option<FailureKind>, BoundedCount)> {
    let summary = |group: &DeadLetterGroup| (group.endpoint.0, group.error_kind, group.count);
    groups.iter().map(summary).collect()
}

/// Sends an event of acme to one of its endpoints.
async fn send_to(world: &StoreFixture<'_>, to: EndpointId, ms: u64) -> DeliveryId {
    let mut only = event("acme", "a.b");
    only.only = Some(to);
    world.accept(at(ms), only).await.deliveries[0].id
}

/// Fails a delivery with this failure kind.
async fn fail_with(world: &StoreFixture<'_>, to: u128, ms: u64, kind: FailureKind) -> DeliveryId {
    let sent = send_to(world, EndpointId(to), ms).await;
    if kind == FailureKind::Validation {
        let fault = Outcome::Failed(TransportError::UnsafeDestination);
        world.try_once(sent, at(ms + 1_000), fault).await;
        assert_eq!(world.status(sent).await, Status::Failed);
    } else {
        world.fail(sent, at(ms + 1_000)).await;
    }
    assert_eq!(world.find(sent).await.0.error_kind(), Some(kind));
    sent
}

/// Creates six dead letters of four endpoints, one of them deleted, and some deliveries that are not dead
/// letters.
async fn a_few(world: &StoreFixture<'_>) -> Vec<DeliveryId> {
    for number in 1..=5 {
        world.add_endpoint(number).await;
    }
    let mut sent = Vec::new();
    for (to, ms, kind) in [
        (2, 1, FailureKind::Http),
        (2, 2, FailureKind::Validation),
        (4, 3, FailureKind::Http),
        (2, 4, FailureKind::Http),
        (1, 5, FailureKind::Validation),
    ] {
        sent.push(fail_with(world, to, ms, kind).await);
    }
    let fine = send_to(world, EndpointId(3), 6).await;
    world.succeed(fine, at(7)).await;
    send_to(world, EndpointId(4), 8).await;
    let gone = EndpointId(5);
    sent.push(send_to(world, gone, 9).await);
    world.set_status(gone, EndpointStatus::Deleted).await;
    world.sweep(at(10), gone, DeadReason::EndpointDeleted).await;
    sent
}

pub(super) async fn dead_letters_are_grouped_by_endpoint_and_cause(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    assert_eq!(groups(&world, None, 9).await, []);
    let sent = a_few(&world).await;
    let found = groups(&world, None, 9).await;
    let exactly = BoundedCount::Exactly;
    assert_eq!(
        summaries(&found),
        [
            (5, Some(FailureKind::WebhookDisabled), exactly(1)),
            (4, Some(FailureKind::Http), exactly(1)),
            (2, Some(FailureKind::Http), exactly(2)),
            (2, Some(FailureKind::Validation), exactly(1)),
            (1, Some(FailureKind::Validation), exactly(1)),
        ]
    );
    assert_eq!(found[0].status, EndpointStatus::Deleted);
    assert_eq!(found[1].status, EndpointStatus::Enabled);
    assert_eq!(found[2].url, "https://2.example.com/hook");
    assert_eq!(found[2].newest, world.find(sent[3]).await.0);
    assert_eq!(found[2].oldest_at, at(1));
    assert_eq!(found[3].newest, world.find(sent[1]).await.0);
    assert_eq!(found[3].oldest_at, at(2));
    for group in &found {
        let alone = groups(&world, Some(group.endpoint), 9).await;
        let same = |other: &&DeadLetterGroup| other.endpoint == group.endpoint;
        let expected: Vec<&DeadLetterGroup> = found.iter().filter(same).collect();
        assert_eq!(alone.iter().collect::<Vec<_>>(), expected);
    }
    assert_eq!(groups(&world, Some(EndpointId(3)), 9).await, []);
    assert_eq!(groups(&world, Some(EndpointId(77)), 9).await, []);

    // A delivery that is sent again is no dead letter any more.
    let two = Some(EndpointId(2));
    let again = world.store.retry(at(20), id("acme"), sent[3]).await;
    again.expect("the delivery is retried");
    let found = groups(&world, two, 9).await;
    assert_eq!(found[0].count, exactly(1));
    assert_eq!(found[0].newest, world.find(sent[0]).await.0);
    let again = world.store.retry(at(20), id("acme"), sent[0]).await;
    again.expect("the delivery is retried");
    let left = [(2, Some(FailureKind::Validation), exactly(1))];
    assert_eq!(summaries(&groups(&world, two, 9).await), left);
}

pub(super) async fn pages_of_groups_are_complete_at_any_length(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    a_few(&world).await;
    let expected = groups(&world, None, 9).await;
    for limit in 1..=6 {
        let found = groups(&world, None, limit).await;
        assert_eq!(found, expected, "pages of {limit}");
    }
    let only = Some(EndpointId(2));
    assert_eq!(groups(&world, only, 1).await, expected[2..4]);
    let nothing = PageRequest {
        limit: 0,
        before: None,
    };
    let none = world
        .store
        .dead_letter_groups(id("acme"), None, nothing)
        .await;
    assert_eq!(none.expect("the page can be read").items, []);
}

pub(super) async fn the_count_of_a_group_is_bounded(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let reason = DeadReason::EndpointDisabled;
    for (more, expected) in [
        (MAX_GROUP_COUNT, BoundedCount::Exactly(MAX_GROUP_COUNT)),
        (1, BoundedCount::MoreThan(MAX_GROUP_COUNT)),
        (30, BoundedCount::MoreThan(MAX_GROUP_COUNT)),
    ] {
        let events = vec![event("acme", "a.b"); more];
        world.accept_all(at(5), events).await;
        while world
            .store
            .sweep(at(9), made, reason, [].into(), 700)
            .await
            .expect("the sweep succeeds")
            .more
        {}
        let found = groups(&world, None, 9).await;
        let wanted = (1, Some(FailureKind::WebhookDisabled), expected);
        assert_eq!(summaries(&found), [wanted]);
    }
}

pub(super) async fn a_replay_of_a_group_covers_exactly_the_group(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    a_few(&world).await;
    let before = groups(&world, None, 9).await;
    // The first group belongs to a deleted endpoint, which gets no replays.
    for (index, group) in before.iter().enumerate().skip(1) {
        let filter = ReplayFilter {
            endpoint: Some(group.endpoint),
            event_type: None,
            error_kind: group.error_kind,
            since: None,
            until: None,
            scope: ReplayScope::Ended(StoredStatus::Failed),
        };
        let replay = world.store.create_replay(at(50), id("acme"), filter).await;
        let replay = replay.expect("the replay is created");
        assert_eq!(BoundedCount::Exactly(replay.total as usize), group.count);
        let step = world.store.step_replay(at(51), replay.id, 99).await;
        let step = step.expect("the replay continues").expect("the row exists");
        assert_eq!(step.replay.status, ReplayStatus::Done);
        let mut left = before.clone();
        left.drain(1..=index);
        assert_eq!(groups(&world, None, 9).await, left);
    }
    let waiting = DeliveryFilter {
        status: Some(StoredStatus::Pending),
        ..DeliveryFilter::default()
    };
    let waiting = world.listed(waiting).await;
    assert_eq!(waiting.len(), 6, "five replayed deliveries and one new one");
}

pub(super) async fn dead_letters_belong_to_their_tenant(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    world.add(endpoint(7, "other", &[])).await;
    a_few(&world).await;
    let page = PageRequest {
        limit: 9,
        before: None,
    };
    for (tenant, only) in [
        ("other", None),
        ("other", Some(EndpointId(2))),
        ("nobody", None),
        ("acme", Some(EndpointId(7))),
    ] {
        let found = world.store.dead_letter_groups(id(tenant), only, page).await;
        assert_eq!(
            found.expect("the page can be read").items,
            [],
            "{tenant} {only:?}"
        );
    }
    let deleted = world.store.delete_tenant(at(20), id("acme")).await;
    deleted.expect("the tenant is deleted");
    world.add_tenant("acme").await;
    assert_eq!(
        groups(&world, None, 9).await,
        [],
        "a later tenant of the same id"
    );
}

fn tripped(revision: u64) -> Health {
    Health {
        revision,
        trip: Some(StoredTrip {
            until: at(99),
            reason: TripReason::FailureRatio,
            failed_probes: 0,
        }),
        ..Health::default()
    }
}

async fn named(world: &StoreFixture<'_>, tenant: Option<&str>, limit: usize) -> Vec<u128> {
    let found = world.store.attention_list(tenant.map(id), limit).await;
    let found = found.expect("the store can be read").into_iter();
    found.map(|row: EndpointRow| row.endpoint.id.0).collect()
}

pub(super) async fn endpoints_that_need_attention_are_listed_paused_ones_last(
    harness: &dyn Harness,
) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    for number in 1..=6 {
        world.add_endpoint(number).await;
    }
    world.add(endpoint(7, "other", &[])).await;
    world.add_endpoint(8).await;
    let automatic = DisabledReason::Automatic(DisableCause::Gone);
    let write_status = async |number, status, reason, health| {
        let store = &world.store;
        let changed = store.set_endpoint_status(at(9), EndpointId(number), status, reason, health);
        assert_eq!(changed.await, Ok(true));
    };
    let set_status =
        async |number, status, health| write_status(number, status, None, health).await;
    set_status(2, EndpointStatus::Paused, None).await;
    write_status(3, EndpointStatus::Disabled, Some(automatic), None).await;
    set_status(4, EndpointStatus::Enabled, Some(tripped(1))).await;
    set_status(5, EndpointStatus::Deleted, Some(tripped(1))).await;
    set_status(6, EndpointStatus::Paused, Some(tripped(1))).await;
    write_status(7, EndpointStatus::Disabled, Some(automatic), None).await;
    // Not listed: the operator who disabled it knows about it.
    let manual = Some(DisabledReason::Manual);
    write_status(8, EndpointStatus::Disabled, manual, Some(tripped(1))).await;
    let acme = Some("acme");
    assert_eq!(named(&world, None, 99).await, [7, 4, 3, 6, 2]);
    assert_eq!(named(&world, acme, 99).await, [4, 3, 6, 2]);
    assert_eq!(named(&world, acme, 3).await, [4, 3, 6]);
    assert_eq!(named(&world, Some("other"), 99).await, [7]);
    assert_eq!(named(&world, Some("nobody"), 99).await, [0; 0]);
    let mut found = world
        .store
        .attention_list(None, 2)
        .await
        .expect("the store can be read");
    let read = world.store.endpoint(EndpointId(4)).await;
    assert_eq!(found.pop(), read.expect("the store can be read"));

    // An endpoint that has recovered is not listed any more.
    let well = Health {
        revision: 2,
        ..Health::default()
    };
    set_status(2, EndpointStatus::Enabled, None).await;
    set_status(4, EndpointStatus::Enabled, Some(well)).await;
    assert_eq!(named(&world, None, 99).await, [7, 3, 6]);
    let deleted = world.store.delete_tenant(at(20), id("other")).await;
    deleted.expect("the tenant is deleted");
    assert_eq!(named(&world, None, 99).await, [3, 6]);
}
