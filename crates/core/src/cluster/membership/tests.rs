//! Tests of the membership.
//!
//! [`Bench`] runs one membership with its own table, on which every request succeeds at once. A test moves the clock,
//! changes the table and compares the returned commands. Faults of the table and several nodes together are tested
//! by the simulator.

use super::*;
use crate::cluster::{Capacity, RoundTrips};
use crate::time::Span;
use proptest::prelude::*;

const ME: NodeNo = NodeNo(10);

/// A membership with its own table, on which every request succeeds at once.
struct Bench {
    membership: MembershipState,
    view: TableView,
    now: Tick,
}

fn row(node: u64, beat: u64) -> NodeRow {
    NodeRow {
        node: NodeNo(node),
        heartbeats: beat,
        wants_shards: true,
        lease: Span::from_secs(6),
        speed: Some(ReportedSpeed {
            capacity: Capacity::FULL,
            round_trips: RoundTrips::default(),
        }),
    }
}

/// A heartbeat of a node without round trips.
fn heartbeat(wants_shards: bool) -> Command {
    let report = NodeReport {
        capacity: Capacity::FULL,
        round_trips: RoundTrips::default(),
    };
    Command::Heartbeat {
        wants_shards,
        report,
    }
}

impl Bench {
    /// A node that has registered and sends its first heartbeat.
    fn joined(others: &[NodeRow]) -> Bench {
        let shards = Shard::all().map(|shard| ShardRow {
            ownership: OwnedShard {
                shard,
                epoch: Epoch(0),
            },
            owner: None,
        });
        let mut nodes = others.to_vec();
        nodes.push(row(ME.0, 0));
        let mut bench = Bench {
            membership: MembershipState::new(Timings::default(), true, Tick(5)),
            view: TableView {
                nodes,
                shards: shards.collect(),
            },
            now: Tick(5),
        };
        assert_eq!(bench.handle(Input::Tick), [Command::Register]);
        let first = bench.handle(Input::Registered(ME));
        assert_eq!(first, [heartbeat(true)]);
        bench
    }

    /// Returns the commands. The reports of heartbeats are left out.
    fn handle(&mut self, input: Input) -> Vec<Command> {
        let mut commands = Vec::new();
        self.membership.handle(self.now, input, &mut commands);
        for command in &mut commands {
            if let Command::Heartbeat { wants_shards, .. } = *command {
                *command = heartbeat(wants_shards);
            }
        }
        commands
    }

    fn answer_beat(&mut self) -> Vec<Command> {
        let view = self.view.clone();
        self.handle(Input::HeartbeatDone(view))
    }

    fn at(&mut self, tick: u64) -> Vec<Command> {
        self.now = Tick(tick);
        self.handle(Input::Tick)
    }

    /// Executes a claim in the table and returns the claimed shards.
    fn claim(&mut self, command: &Command) -> Vec<OwnedShard> {
        let Command::Claim { own, free } = command else {
            panic!("expected a claim, got {command:?}");
        };
        let mut free = *free;
        let mut claimed = Vec::new();
        for owned in &mut self.view.shards {
            let lost = own.contains(&owned.ownership);
            if lost || (owned.owner.is_none() && free > 0) {
                free -= usize::from(!lost);
                owned.owner = Some(ME);
                owned.ownership.epoch.0 += 1;
                claimed.push(owned.ownership);
            }
        }
        claimed
    }

    /// A node that owns its part of the shards after the first heartbeat.
    fn with_shards(others: &[NodeRow]) -> (Bench, Vec<OwnedShard>) {
        let mut bench = Bench::joined(others);
        let commands = bench.answer_beat();
        let claimed = bench.claim(commands.last().expect("the last command is a claim"));
        let granted = bench.handle(Input::Claimed(claimed.clone()));
        assert_eq!(granted, [Command::Grant(claimed.clone())]);
        (bench, claimed)
    }
}

#[test]
fn the_lease_counts_from_before_the_heartbeat_was_sent() {
    let mut bench = Bench::joined(&[]);
    bench.now = Tick(905);
    let commands = bench.answer_beat();
    let lease = Command::SetLease {
        begin_by: Tick(4_005),
        end_by: Tick(5_005),
    };
    let claim = Command::Claim {
        own: Vec::new(),
        free: 256,
    };
    assert_eq!(commands, [lease, claim]);
}

#[test]
fn a_late_heartbeat_answer_gives_no_lease() {
    let mut bench = Bench::joined(&[]);
    bench.now = Tick(5_005);
    assert_eq!(bench.answer_beat(), [heartbeat(true)]);
}

#[test]
fn a_node_that_cannot_renew_expires_and_reclaims_its_shards_later() {
    let (mut bench, claimed) = Bench::with_shards(&[]);
    assert_eq!(bench.membership.wake(), Some(Tick(1_005)));
    assert_eq!(bench.at(1_005), [heartbeat(true)]);
    assert_eq!(bench.membership.wake(), Some(Tick(5_005)));
    bench.now = Tick(3_000);
    assert_eq!(bench.handle(Input::Failed), []);
    assert_eq!(bench.at(3_250), [heartbeat(true)]);
    assert_eq!(bench.at(5_004), []);
    assert_eq!(bench.at(5_005), [Command::Expire]);
    assert_eq!(bench.at(5_006), []);
    let commands = bench.answer_beat();
    let claim = Command::Claim {
        own: claimed,
        free: 0,
    };
    assert_eq!(commands.last(), Some(&claim));
}

#[test]
fn a_claim_answered_after_the_lease_grants_nothing() {
    let mut bench = Bench::joined(&[]);
    let commands = bench.answer_beat();
    let claimed = bench.claim(commands.last().expect("the last command is a claim"));
    bench.now = Tick(5_005);
    let commands = bench.handle(Input::Claimed(claimed));
    assert_eq!(commands, [Command::Expire, heartbeat(true)]);
}

#[test]
fn a_silent_node_is_fenced_after_its_lease_and_the_table_read_again() {
    let (mut bench, _) = Bench::with_shards(&[row(3, 40)]);
    for tick in [1_005, 2_005, 3_005, 4_005, 5_005] {
        assert_eq!(bench.at(tick), [heartbeat(true)]);
        assert_eq!(bench.answer_beat().len(), 1);
    }
    bench.at(6_005);
    bench.now = Tick(6_004);
    assert_eq!(
        bench.answer_beat().len(),
        1,
        "one millisecond before the lease ends, the node is not fenced"
    );
    bench.at(7_005);
    let commands = bench.answer_beat();
    let fence = Command::Fence {
        node: NodeNo(3),
        heartbeats: 40,
    };
    assert_eq!(commands.last(), Some(&fence));
    assert_eq!(
        bench.handle(Input::Fenced),
        [heartbeat(true)],
        "the freed shards are looked up at once"
    );
}

#[test]
fn a_node_that_could_not_read_the_table_fences_no_node() {
    let (mut bench, _) = Bench::with_shards(&[row(3, 40)]);
    bench.at(1_005);
    bench.now = Tick(9_000);
    bench.handle(Input::Failed);
    bench.at(9_250);
    let commands = bench.answer_beat();
    assert!(
        !commands
            .iter()
            .any(|command| matches!(command, Command::Fence { .. }))
    );
}

#[test]
fn surplus_shards_are_revoked_and_released_when_finished() {
    let (mut bench, _) = Bench::with_shards(&[]);
    bench.view.nodes.push(row(11, 0));
    assert_eq!(bench.handle(Input::TableChanged), []);
    assert_eq!(
        bench.at(105),
        [heartbeat(true)],
        "the heartbeat waits for the minimum interval"
    );
    let commands = bench.answer_beat();
    let revoke = |command: &Command| {
        if let Command::Revoke(holding) = command {
            Some(*holding)
        } else {
            None
        }
    };
    let revoked: Vec<OwnedShard> = commands.iter().filter_map(revoke).collect();
    assert_eq!(revoked.len(), 128);
    let finished = bench.handle(Input::RevokeFinished(revoked[7]));
    assert_eq!(finished, [Command::Release(vec![revoked[7]])]);
    assert_eq!(bench.handle(Input::RevokeFinished(revoked[8])), []);
    assert_eq!(bench.handle(Input::RevokeFinished(revoked[9])), []);
    let twice = bench.handle(Input::RevokeFinished(revoked[7]));
    assert_eq!(twice, [], "a repeated RecallFinished has no effect");
    let rest = vec![revoked[8], revoked[9]];
    assert_eq!(bench.handle(Input::Released), [Command::Release(rest)]);
}

#[test]
fn slow_heartbeats_do_not_stop_the_plan() {
    let mut bench = Bench::joined(&[]);
    bench.now = Tick(3_005);
    let commands = bench.answer_beat();
    let claimed = bench.claim(commands.last().expect("the last command is a claim"));
    let commands = bench.handle(Input::Claimed(claimed));
    assert_eq!(commands.last(), Some(&heartbeat(true)));
}

#[test]
fn a_failed_release_is_repeated() {
    let (mut bench, claimed) = Bench::with_shards(&[row(11, 0)]);
    bench.view.nodes.push(row(12, 0));
    bench.at(1_005);
    bench.answer_beat();
    let given_up = claimed[127];
    assert_eq!(
        bench.handle(Input::RevokeFinished(given_up)),
        [Command::Release(vec![given_up])]
    );
    bench.handle(Input::Failed);
    bench.at(1_255);
    let commands = bench.answer_beat();
    assert_eq!(commands.last(), Some(&Command::Release(vec![given_up])));
}

#[test]
fn a_node_declared_dead_expires_and_registers_again() {
    let (mut bench, _) = Bench::with_shards(&[]);
    bench.at(1_005);
    let commands = bench.handle(Input::Expelled);
    assert_eq!(commands, [Command::Expire, Command::Register]);
    bench.handle(Input::Registered(NodeNo(20)));
}

#[test]
fn a_node_that_knows_too_little_does_not_try_again() {
    let (mut bench, _) = Bench::with_shards(&[]);
    bench.at(1_005);
    bench.handle(Input::Expelled);
    assert_eq!(bench.handle(Input::TooOld), [Command::Retired]);
    assert_eq!(bench.membership.wake(), None);
    assert_eq!(bench.at(9_000), []);
    assert_eq!(bench.handle(Input::Retire), []);
}

#[test]
fn a_retiring_node_releases_all_shards_and_leaves() {
    let (mut bench, claimed) = Bench::with_shards(&[row(3, 40)]);
    let commands = bench.handle(Input::Retire);
    assert_eq!(commands.len(), claimed.len() + 1);
    assert_eq!(commands.last(), Some(&heartbeat(false)));
    bench.answer_beat();
    for holding in &claimed {
        bench.handle(Input::RevokeFinished(*holding));
    }
    assert!(bench.handle(Input::Released).len() == 1);
    assert_eq!(bench.handle(Input::Released), [Command::Leave]);
    assert_eq!(bench.handle(Input::Left), [Command::Retired]);
    assert_eq!(bench.membership.wake(), None);
}

#[test]
fn a_failed_leave_is_retried_after_a_pause() {
    let (mut bench, claimed) = Bench::with_shards(&[row(3, 40)]);
    bench.handle(Input::Retire);
    bench.answer_beat();
    for holding in &claimed {
        bench.handle(Input::RevokeFinished(*holding));
    }
    bench.handle(Input::Released);
    bench.handle(Input::Released);
    assert_eq!(bench.handle(Input::Failed), []);
    assert_eq!(bench.membership.wake(), Some(Tick(255)));
    assert_eq!(bench.at(255), [Command::Leave]);
    bench.now = Tick(5_005);
    let commands = bench.handle(Input::Failed);
    assert_eq!(commands, [Command::Expire, Command::Retired]);
}

proptest! {
    /// For any set of nodes, the numbers of shards add up to all shards and differ by at most one.
    #[test]
    fn shard_quotas_add_up_and_differ_by_at_most_one(numbers in proptest::collection::btree_set(0_u64..1_000, 1..40)) {
        let nodes: Vec<NodeRow> = numbers.iter().map(|number| row(*number, 0)).collect();
        let view = TableView { nodes, shards: Vec::new() };
        let quotas = || numbers.iter().map(|number| shard_plan::quota(NodeNo(*number), true, &view));
        prop_assert_eq!(quotas().sum::<usize>(), 256);
        let (least, most) = (quotas().min(), quotas().max());
        prop_assert!(most <= least.map(|least| least + 1));
    }
}

#[test]
fn shards_are_divided_by_capacity() {
    let with = |capacities: &[Option<u8>]| {
        let nodes = (0_u64..).zip(capacities).map(|(number, quarters)| NodeRow {
            speed: quarters.map(|quarters| ReportedSpeed {
                capacity: Capacity::of_quarters(quarters),
                round_trips: RoundTrips::default(),
            }),
            ..row(number, 0)
        });
        let nodes: Vec<NodeRow> = nodes.collect();
        let view = TableView {
            nodes: nodes.clone(),
            shards: Vec::new(),
        };
        let quotas = nodes
            .iter()
            .map(|row| shard_plan::quota(row.node, true, &view));
        quotas.collect::<Vec<usize>>()
    };
    assert_eq!(with(&[Some(4), Some(4), Some(2)]), [103, 102, 51]);
    assert_eq!(with(&[Some(4), Some(4), Some(0)]), [128, 128, 0]);
    assert_eq!(
        with(&[Some(0), Some(0), Some(0)]),
        [86, 85, 85],
        "to some node"
    );
    assert_eq!(
        with(&[Some(4), Some(0), None]),
        [86, 85, 85],
        "a node of an earlier version takes an equal part"
    );
}

#[test]
fn a_slow_node_revokes_its_shards_and_a_quick_one_takes_them_back() {
    let other = NodeRow {
        speed: Some(ReportedSpeed {
            capacity: Capacity::FULL,
            round_trips: RoundTrips {
                heartbeat: Some(Span::from_millis(2)),
                ..RoundTrips::default()
            },
        }),
        ..row(3, 40)
    };
    let (mut bench, _) = Bench::with_shards(&[other]);
    let mut capacities = Vec::new();
    let mut revoked = 0;
    for _ in 0..10 {
        let sent = bench.now.after(Span::from_secs(1));
        bench.now = sent;
        bench.handle(Input::Tick);
        for _ in 0..2 {
            bench.view.nodes[0].heartbeats += 1;
            bench.view.nodes[1].speed = Some(ReportedSpeed {
                capacity: bench.membership.speed.capacity(),
                round_trips: RoundTrips::default(),
            });
            bench.now = bench.now.after(Span::from_millis(700));
            let commands = bench.answer_beat();
            revoked += commands
                .iter()
                .filter(|command| matches!(command, Command::Revoke(_)))
                .count();
            let is_reported_at_once = commands.last() == Some(&heartbeat(true));
            let change = commands.iter().find_map(|command| {
                if let Command::CapacityChanged(change) = command {
                    Some(*change)
                } else {
                    None
                }
            });
            assert_eq!(change.is_some(), is_reported_at_once);
            let Some(change) = change else { break };
            capacities.push(change.to.quarters());
        }
    }
    assert_eq!(capacities, [2, 1, 0]);
    assert_eq!(revoked, 128);
}
