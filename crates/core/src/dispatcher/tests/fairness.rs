//! Tests of the fair division of scarce slots among tenants and endpoints.
//!
//! Tenants take turns independently of the number of their lanes and deliveries. A tenant whose receivers hang, or
//! that has reached its concurrency limit, does not slow down other tenants.

use std::collections::BTreeMap;

use super::bench::Bench;
use super::fixture::{ok, settings, unlimited_rate};
use crate::dispatcher::DispatcherLimits;
use crate::id::EndpointId;
use crate::lane::LaneSettings;

const SCARCE: DispatcherLimits = DispatcherLimits {
    max_in_flight: 10,
    ready_per_lane: 16,
};

/// Finishes one attempt at a time, oldest first, and counts the attempts of each endpoint.
fn served(bench: &mut Bench, attempts: usize) -> BTreeMap<EndpointId, usize> {
    bench.take_sent();
    let mut served = BTreeMap::new();
    let mut line: Vec<_> = bench.flying.values().copied().collect();
    while bench.sent.len() < attempts {
        let before = bench.sent.len();
        let oldest = line.remove(0);
        bench.finish(oldest.delivery, ok());
        line.extend_from_slice(&bench.sent[before..]);
    }
    for attempt in &bench.sent[..attempts] {
        *served.entry(attempt.endpoint).or_default() += 1;
    }
    served
}

#[test]
fn a_tenant_with_100_lanes_gets_as_many_attempts_as_one_with_one() {
    let mut bench = Bench::limited(SCARCE);
    let crowd: Vec<EndpointId> = (0..100)
        .map(|_| bench.endpoint_of("big", unlimited_rate()))
        .collect();
    let single = bench.endpoint_of("small", unlimited_rate());
    for endpoint in crowd {
        bench.accept(endpoint, 20);
    }
    bench.accept(single, 500);
    let served = served(&mut bench, 400);
    let share = served[&single];
    assert!(
        (195..=205).contains(&share),
        "the small tenant got {share} of 400 attempts"
    );
}

#[test]
fn tenants_take_turns_on_a_single_slot() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 1,
        ready_per_lane: 16,
    });
    let big: Vec<EndpointId> = (0..3)
        .map(|_| bench.endpoint_of("big", unlimited_rate()))
        .collect();
    let small = bench.endpoint_of("small", unlimited_rate());
    for endpoint in big.iter().chain([&small]) {
        bench.accept(*endpoint, 10);
    }
    for _ in 0..12 {
        bench.finish_all(ok());
    }
    let order: Vec<EndpointId> = bench.sent.iter().map(|it| it.endpoint).collect();
    for pair in order[2..12].chunks(2) {
        let of_small = pair.iter().filter(|it| **it == small).count();
        assert_eq!(of_small, 1, "{order:?}");
    }
}

fn at_most(tenant_in_flight: u32) -> LaneSettings {
    LaneSettings {
        tenant_in_flight: Some(tenant_in_flight),
        ..unlimited_rate()
    }
}

#[test]
fn a_tenant_limit_is_kept_and_does_not_slow_others() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 100,
        ready_per_lane: 16,
    });
    let few: Vec<EndpointId> = (0..5)
        .map(|_| bench.endpoint_of("few", at_most(3)))
        .collect();
    let other = bench.endpoint_of("other", unlimited_rate());
    for endpoint in &few {
        bench.accept(*endpoint, 40);
    }
    bench.accept(other, 40);
    let of_few = |bench: &Bench| {
        let flying = bench.flying.values();
        flying
            .filter(|attempt| few.contains(&attempt.endpoint))
            .count()
    };
    assert_eq!(of_few(&bench), 3);
    let of_other = bench.flying.len() - 3;
    assert!(
        of_other >= 10,
        "the other tenant has only {of_other} attempts in flight"
    );
    // Every delivery gets its turn, on every endpoint.
    let mut most = 0;
    while let Some(attempt) = bench.flying.values().next().copied() {
        bench.finish(attempt.delivery, ok());
        most = most.max(of_few(&bench));
    }
    assert_eq!(most, 3);
    assert_eq!(bench.sent.len(), 5 * 40 + 40);
}

#[test]
fn a_changed_tenant_limit_applies_while_sending() {
    let mut bench = Bench::limited(SCARCE);
    let endpoint = bench.endpoint_of("few", at_most(1));
    bench.accept(endpoint, 30);
    assert_eq!(bench.flying.len(), 1);
    bench.change(endpoint, at_most(4));
    assert_eq!(bench.flying.len(), 4);
    bench.change(endpoint, at_most(2));
    let oldest = bench
        .flying
        .values()
        .next()
        .copied()
        .expect("an attempt is in flight");
    bench.finish(oldest.delivery, ok());
    assert_eq!(
        bench.flying.len(),
        3,
        "above its limit, the tenant starts nothing"
    );
    while let Some(attempt) = bench.flying.values().next().copied() {
        bench.finish(attempt.delivery, ok());
        assert!(bench.flying.len() <= 3);
    }
    assert_eq!(bench.sent.len(), 30);
}

#[test]
fn the_lanes_of_a_tenant_share_evenly() {
    let mut bench = Bench::limited(SCARCE);
    let endpoints: Vec<EndpointId> = (0..5).map(|_| bench.endpoint(unlimited_rate())).collect();
    for (index, endpoint) in endpoints.iter().enumerate() {
        bench.accept(*endpoint, if index == 0 { 2_000 } else { 100 });
    }
    let served = served(&mut bench, 300);
    for endpoint in endpoints {
        let share = served[&endpoint];
        assert!((58..=62).contains(&share), "{served:?}");
    }
}

#[test]
fn a_tenant_whose_attempts_hang_leaves_slots_for_others() {
    let mut bench = Bench::limited(SCARCE);
    let hanging: Vec<EndpointId> = (0..5)
        .map(|_| bench.endpoint_of("hanging", settings()))
        .collect();
    for endpoint in hanging {
        bench.accept(endpoint, 20);
    }
    // The tenant gets half of the slots; the rest is for other tenants.
    let stuck = bench.flying.len();
    assert!((5..=6).contains(&stuck), "{stuck} of ten slots are taken");
    let well = bench.endpoint_of("well", unlimited_rate());
    bench.accept(well, 50);
    for _ in 0..50 {
        let mine = bench.flying.values().find(|it| it.endpoint == well);
        let mine = mine.expect("the healthy tenant gets a slot").delivery;
        bench.finish(mine, ok());
    }
    let hanging = bench.flying.values().filter(|it| it.endpoint != well);
    assert_eq!(hanging.count(), stuck);
}

#[test]
fn a_tenant_at_its_share_continues_as_its_attempts_end() {
    let mut bench = Bench::limited(SCARCE);
    let endpoints: Vec<EndpointId> = (0..5).map(|_| bench.endpoint(unlimited_rate())).collect();
    for endpoint in endpoints {
        bench.accept(endpoint, 16);
    }
    let share = bench.flying.len();
    for left in (0..80).rev() {
        let oldest = *bench.flying.keys().next().expect("an attempt is in flight");
        bench.finish(oldest, ok());
        assert_eq!(bench.flying.len(), left.min(share));
    }
}

#[test]
fn a_hanging_endpoint_does_not_delay_others_of_its_tenant() {
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: 100,
        ready_per_lane: 8,
    });
    let hanging = bench.endpoint(LaneSettings {
        max_in_flight: 10,
        ..unlimited_rate()
    });
    bench.accept(hanging, 1_000);
    bench.take_sent();
    let well = bench.endpoint(unlimited_rate());
    for _ in 0..100 {
        let id = bench.accept_one(well);
        assert_eq!(bench.take_sent(), [id], "sent in the same call");
        bench.finish(id, ok());
    }
}

#[test]
fn a_new_tenant_gets_a_slot_while_several_tenants_hang() {
    const PLACES: usize = 64;
    let mut bench = Bench::limited(DispatcherLimits {
        max_in_flight: PLACES,
        ready_per_lane: 16,
    });
    for index in 0..8 {
        let endpoint = bench.endpoint_of(&format!("hanging-{index}"), unlimited_rate());
        bench.accept(endpoint, 16);
    }
    assert!(bench.flying.len() < PLACES);
    bench.take_sent();
    let newcomer = bench.endpoint_of("newcomer", unlimited_rate());
    let ids = bench.accept(newcomer, 3);
    assert_eq!(bench.take_sent()[0], ids[0]);
}
