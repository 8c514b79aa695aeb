//! Tests of the roster, with a table on which every request succeeds at once.

use super::*;
use crate::time::Span;
use proptest::prelude::*;

const ME: NodeNo = NodeNo(10);

/// A roster with its own table, on which every request succeeds at once.
struct Bench {
    roster: Roster,
    view: TableView,
    now: Tick,
}

fn seen(node: u64, beat: u64) -> Seen {
    Seen {
        node: NodeNo(node),
        beat,
        works: true,
        lease: Span::from_secs(6),
    }
}

impl Bench {
    /// A node that has registered and sends its first heartbeat.
    fn joined(others: &[Seen]) -> Bench {
        let shards = Shard::all().map(|shard| ShardRow {
            holding: Holding {
                shard,
                epoch: Epoch(0),
            },
            owner: None,
        });
        let mut nodes = others.to_vec();
        nodes.push(seen(ME.0, 0));
        let mut bench = Bench {
            roster: Roster::new(Timings::default(), true, Tick(5)),
            view: TableView {
                nodes,
                shards: shards.collect(),
            },
            now: Tick(5),
        };
        assert_eq!(bench.tell(Input::Tick), [Command::Register]);
        let first = bench.tell(Input::Registered(ME));
        assert_eq!(first, [Command::Beat { works: true }]);
        bench
    }

    fn tell(&mut self, input: Input) -> Vec<Command> {
        let mut commands = Vec::new();
        self.roster.handle(self.now, input, &mut commands);
        commands
    }

    fn look(&mut self) -> Vec<Command> {
        let view = self.view.clone();
        self.tell(Input::Beaten(view))
    }

    fn at(&mut self, tick: u64) -> Vec<Command> {
        self.now = Tick(tick);
        self.tell(Input::Tick)
    }

    /// Executes a claim in the table and returns the claimed shards.
    fn claim(&mut self, command: &Command) -> Vec<Holding> {
        let Command::Claim { own, free } = command else {
            panic!("{command:?} is no claim");
        };
        let mut free = *free;
        let mut claimed = Vec::new();
        for owned in &mut self.view.shards {
            let lost = own.contains(&owned.holding);
            if lost || (owned.owner.is_none() && free > 0) {
                free -= usize::from(!lost);
                owned.owner = Some(ME);
                owned.holding.epoch.0 += 1;
                claimed.push(owned.holding);
            }
        }
        claimed
    }

    /// A node that owns its part of the shards after the first heartbeat.
    fn settled(others: &[Seen]) -> (Bench, Vec<Holding>) {
        let mut bench = Bench::joined(others);
        let commands = bench.look();
        let claimed = bench.claim(commands.last().expect("a claim"));
        let granted = bench.tell(Input::Claimed(claimed.clone()));
        assert_eq!(granted, [Command::Grant(claimed.clone())]);
        (bench, claimed)
    }
}

#[test]
fn the_lease_counts_from_before_the_beat_was_sent() {
    let mut bench = Bench::joined(&[]);
    bench.now = Tick(905);
    let commands = bench.look();
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
fn an_answer_that_took_too_long_gives_no_lease() {
    let mut bench = Bench::joined(&[]);
    bench.now = Tick(5_005);
    assert_eq!(bench.look(), [Command::Beat { works: true }]);
}

#[test]
fn who_cannot_renew_expires_in_time_and_takes_its_own_back_later() {
    let (mut bench, claimed) = Bench::settled(&[]);
    assert_eq!(bench.roster.wake(), Some(Tick(1_005)));
    assert_eq!(bench.at(1_005), [Command::Beat { works: true }]);
    assert_eq!(bench.roster.wake(), Some(Tick(5_005)));
    bench.now = Tick(3_000);
    assert_eq!(bench.tell(Input::Failed), []);
    assert_eq!(bench.at(3_250), [Command::Beat { works: true }]);
    assert_eq!(bench.at(5_004), []);
    assert_eq!(bench.at(5_005), [Command::Expire]);
    assert_eq!(bench.at(5_006), []);
    let commands = bench.look();
    let claim = Command::Claim {
        own: claimed,
        free: 0,
    };
    assert_eq!(commands.last(), Some(&claim));
}

#[test]
fn a_claim_that_is_answered_after_the_lease_grants_nothing() {
    let mut bench = Bench::joined(&[]);
    let commands = bench.look();
    let claimed = bench.claim(commands.last().expect("a claim"));
    bench.now = Tick(5_005);
    let commands = bench.tell(Input::Claimed(claimed));
    assert_eq!(commands, [Command::Expire, Command::Beat { works: true }]);
}

#[test]
fn silence_counts_from_when_it_was_first_heard_and_is_asked_about_again() {
    let (mut bench, _) = Bench::settled(&[seen(3, 40)]);
    for tick in [1_005, 2_005, 3_005, 4_005, 5_005] {
        assert_eq!(bench.at(tick), [Command::Beat { works: true }]);
        assert_eq!(bench.look().len(), 1);
    }
    bench.at(6_005);
    bench.now = Tick(6_004);
    assert_eq!(bench.look().len(), 1, "a millisecond too early");
    bench.at(7_005);
    let commands = bench.look();
    let fence = Command::Fence {
        node: NodeNo(3),
        beat: 40,
    };
    assert_eq!(commands.last(), Some(&fence));
    assert_eq!(
        bench.tell(Input::Fenced),
        [Command::Beat { works: true }],
        "looks at once for what was freed"
    );
}

#[test]
fn who_was_deaf_counts_no_silence() {
    let (mut bench, _) = Bench::settled(&[seen(3, 40)]);
    bench.at(1_005);
    bench.now = Tick(9_000);
    bench.tell(Input::Failed);
    bench.at(9_250);
    let commands = bench.look();
    assert!(
        !commands
            .iter()
            .any(|command| matches!(command, Command::Fence { .. }))
    );
}

#[test]
fn too_much_is_recalled_and_released_as_it_comes() {
    let (mut bench, _) = Bench::settled(&[]);
    bench.view.nodes.push(seen(11, 0));
    assert_eq!(bench.tell(Input::Rang), []);
    assert_eq!(
        bench.at(105),
        [Command::Beat { works: true }],
        "not too often"
    );
    let commands = bench.look();
    let recall = |command: &Command| {
        if let Command::Recall(holding) = command {
            Some(*holding)
        } else {
            None
        }
    };
    let recalled: Vec<Holding> = commands.iter().filter_map(recall).collect();
    assert_eq!(recalled.len(), 128);
    let finished = bench.tell(Input::RecallFinished(recalled[7]));
    assert_eq!(finished, [Command::Release(vec![recalled[7]])]);
    assert_eq!(bench.tell(Input::RecallFinished(recalled[8])), []);
    assert_eq!(bench.tell(Input::RecallFinished(recalled[9])), []);
    let twice = bench.tell(Input::RecallFinished(recalled[7]));
    assert_eq!(twice, [], "late or twice changes nothing");
    let rest = vec![recalled[8], recalled[9]];
    assert_eq!(bench.tell(Input::Released), [Command::Release(rest)]);
}

#[test]
fn where_every_beat_takes_long_the_plan_is_acted_on_all_the_same() {
    let mut bench = Bench::joined(&[]);
    bench.now = Tick(3_005);
    let commands = bench.look();
    let claimed = bench.claim(commands.last().expect("a claim"));
    let commands = bench.tell(Input::Claimed(claimed));
    assert_eq!(commands.last(), Some(&Command::Beat { works: true }));
}

#[test]
fn what_was_not_released_is_no_longer_held_and_released_again() {
    let (mut bench, claimed) = Bench::settled(&[seen(11, 0)]);
    bench.view.nodes.push(seen(12, 0));
    bench.at(1_005);
    bench.look();
    let given_up = claimed[127];
    assert_eq!(
        bench.tell(Input::RecallFinished(given_up)),
        [Command::Release(vec![given_up])]
    );
    bench.tell(Input::Failed);
    bench.at(1_255);
    let commands = bench.look();
    assert_eq!(commands.last(), Some(&Command::Release(vec![given_up])));
}

#[test]
fn an_outcast_expires_and_registers_anew() {
    let (mut bench, _) = Bench::settled(&[]);
    bench.at(1_005);
    let commands = bench.tell(Input::Outcast);
    assert_eq!(commands, [Command::Expire, Command::Register]);
    bench.tell(Input::Registered(NodeNo(20)));
}

#[test]
fn who_retires_gives_up_all_and_leaves() {
    let (mut bench, claimed) = Bench::settled(&[seen(3, 40)]);
    let commands = bench.tell(Input::Retire);
    assert_eq!(commands.len(), claimed.len() + 1);
    assert_eq!(commands.last(), Some(&Command::Beat { works: false }));
    bench.look();
    for holding in &claimed {
        bench.tell(Input::RecallFinished(*holding));
    }
    assert!(bench.tell(Input::Released).len() == 1);
    assert_eq!(bench.tell(Input::Released), [Command::Leave]);
    assert_eq!(bench.tell(Input::Left), [Command::Retired]);
    assert_eq!(bench.roster.wake(), None);
}

#[test]
fn who_retires_and_fails_to_leave_tries_again_but_not_at_once() {
    let (mut bench, claimed) = Bench::settled(&[seen(3, 40)]);
    bench.tell(Input::Retire);
    bench.look();
    for holding in &claimed {
        bench.tell(Input::RecallFinished(*holding));
    }
    bench.tell(Input::Released);
    bench.tell(Input::Released);
    assert_eq!(bench.tell(Input::Failed), []);
    assert_eq!(bench.roster.wake(), Some(Tick(255)));
    assert_eq!(bench.at(255), [Command::Leave]);
    bench.now = Tick(5_005);
    let commands = bench.tell(Input::Failed);
    assert_eq!(commands, [Command::Expire, Command::Retired]);
}

proptest! {
    /// For any set of nodes, the numbers of shards add up to all shards and differ by at most one.
    #[test]
    fn shares_add_up(numbers in proptest::collection::btree_set(0_u64..1_000, 1..40)) {
        let nodes: Vec<Seen> = numbers.iter().map(|number| seen(*number, 0)).collect();
        let view = TableView { nodes, shards: Vec::new() };
        let quotas = || numbers.iter().map(|number| shard_plan::quota(NodeNo(*number), true, &view));
        prop_assert_eq!(quotas().sum::<usize>(), 256);
        let (least, most) = (quotas().min(), quotas().max());
        prop_assert!(most <= least.map(|least| least + 1));
    }
}
