//! Sharing what limited tenants may have under way with the other nodes.
//!
//! Now and then the engine is asked what it has and wants, the store is told, and what it answers is heeded. As long as
//! nobody is limited the store is not asked at all. What is given back is first no longer used, then told: so what all
//! nodes have under way together is never more than the tenant may.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::cluster::{Ask, Room};
use posthaste_core::dispatcher::{Crowd, Input};
use posthaste_core::id::TenantId;
use posthaste_store::Cluster;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::handle::{Engine, EngineError};
use super::shell::Shell;

/// How often a node asks that has less than its due, or has something to let go of.
const ROUND: Duration = Duration::from_millis(50);
/// How often one asks that has its due, unless somebody begins to wait. Where there are fewer slots than nodes, each has
/// its turn for about as long.
const CALM: Duration = Duration::from_millis(250);
/// How long between two questions at least, however often somebody begins to wait.
const LEAST: Duration = Duration::from_millis(5);
/// So long a node keeps one slot that it does not use and nobody else wants: what comes next need not ask for it.
const LINGER: Duration = Duration::from_secs(5);
/// Nothing is under way, and nothing wants to be.
const IDLE: Ask = Ask {
    in_force: 0,
    under_way: 0,
    wants: 0,
};

impl Shell {
    /// Lets tenants have as many under way as the other nodes leave them.
    pub(super) fn make_room(&mut self, losses: u64, rooms: &[(TenantId, u32)]) {
        // What was granted to who lost everything since is somebody else's.
        if losses != self.losses {
            return;
        }
        for (tenant, usable) in rooms {
            self.dispatcher.grant(tenant, *usable);
        }
        self.hear(Input::Tick);
    }
}

/// Tenants of which this node may have slots, with how many they may have under way. One is in it from when the store is
/// first asked for it until the store says that nothing is held: an answer that is lost leaves nothing behind.
#[derive(Default)]
struct Held(FxHashMap<TenantId, Holding>);

#[derive(Clone, Copy)]
struct Holding {
    most: u32,
    /// When something was last under way or wanted to be.
    busy_at: Instant,
}

impl Held {
    /// What the store is to be asked: for whoever wants something, and for whoever has something to give back.
    fn ask(&mut self, now: Instant, mut crowds: Vec<Crowd>) -> Vec<Crowd> {
        crowds.retain(|crowd| crowd.ask != IDLE || self.0.contains_key(&crowd.tenant));
        let here: FxHashSet<TenantId> = crowds.iter().map(|crowd| crowd.tenant.clone()).collect();
        let gone = self.0.iter().filter(|(tenant, _)| !here.contains(*tenant));
        crowds.extend(gone.map(|(tenant, holding)| Crowd {
            tenant: tenant.clone(),
            most: holding.most,
            ask: IDLE,
        }));
        for crowd in &mut crowds {
            let most = crowd.most;
            let holding = Holding { most, busy_at: now };
            let holding = self.0.entry(crowd.tenant.clone()).or_insert(holding);
            holding.most = most;
            if crowd.ask.wants > 0 {
                holding.busy_at = now;
            } else if crowd.ask.in_force > 0 && now - holding.busy_at < LINGER {
                // Only while it has one: it takes none from somebody who has use for it.
                crowd.ask.wants = 1;
            }
        }
        crowds
    }

    /// Takes in what the store answered, and says what may be used.
    fn answered(&mut self, crowds: Vec<Crowd>, rooms: Vec<Room>) -> Vec<(TenantId, u32)> {
        let mut usable = Vec::with_capacity(rooms.len());
        for (crowd, room) in crowds.into_iter().zip(rooms) {
            if room.slots == 0 {
                self.0.remove(&crowd.tenant);
            }
            usable.push((crowd.tenant, room.usable));
        }
        usable
    }
}

/// How urgent it is to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mood {
    /// Everybody has what it wants.
    Content,
    /// Somebody wants more, and gets it only when another node wants less.
    Settled,
    /// Somebody has less than its due, or something to let go of for another.
    Urgent,
}

/// What follows from an answer.
fn mood(crowds: &[Crowd], rooms: &[Room]) -> Mood {
    let moods = crowds.iter().zip(rooms).map(|(crowd, room)| {
        if room.usable >= crowd.ask.wants {
            Mood::Content
        } else if room.usable >= room.fair && room.usable == room.slots {
            Mood::Settled
        } else {
            Mood::Urgent
        }
    });
    moods.max().unwrap_or(Mood::Content)
}

/// Waits until it is time to ask, or until somebody begins to wait.
async fn rest(bell: &Notify, mood: Mood) {
    let least = match mood {
        Mood::Content => LEAST,
        // Whoever goes on wanting more does not hurry it.
        Mood::Settled => ROUND,
        Mood::Urgent => return sleep(ROUND).await,
    };
    sleep(least).await;
    let _ = timeout(CALM - least, bell.notified()).await;
}

/// Shares with others, until the engine has stopped.
pub(super) async fn keep_sharing(engine: Engine, cluster: Arc<dyn Cluster>) {
    let mut held = Held::default();
    let mut mood_now = Mood::Content;
    loop {
        rest(&engine.shared.room_bell, mood_now).await;
        let (losses, crowds) = match engine.crowds().await {
            Ok(crowds) => crowds,
            Err(EngineError::Stopped) => return,
            Err(EngineError::Elsewhere | EngineError::Store(_)) => continue,
        };
        let crowds = held.ask(Instant::now(), crowds);
        mood_now = Mood::Content;
        if crowds.is_empty() {
            continue;
        }
        let Ok(rooms) = cluster.share_room(crowds.clone()).await else {
            // What was granted before still is, for as long as the lease lasts.
            mood_now = Mood::Urgent;
            continue;
        };
        mood_now = mood(&crowds, &rooms);
        engine.make_room(losses, held.answered(crowds, rooms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(tenant: &str, ask: Ask) -> Crowd {
        Crowd {
            tenant: tenant.parse().expect("a name"),
            most: 5,
            ask,
        }
    }

    #[test]
    fn what_may_have_been_granted_is_given_back() {
        let wants = Ask { wants: 2, ..IDLE };
        let room = |slots| Room {
            slots,
            usable: slots,
            fair: slots,
        };
        let (mut held, now) = (Held::default(), Instant::now());
        assert_eq!(held.ask(now, vec![crowd("acme", IDLE)]), []);
        let asked = vec![crowd("acme", wants)];
        assert_eq!(held.ask(now, asked.clone()), asked);
        // The answer was lost, and the tenant has nothing here any more.
        let idle = vec![crowd("acme", IDLE)];
        assert_eq!(held.ask(now, Vec::new()), idle);
        assert_eq!(held.ask(now, idle.clone()), idle);
        let usable = held.answered(idle.clone(), vec![room(2)]);
        assert_eq!(usable, [(idle[0].tenant.clone(), 2)]);
        assert_eq!(held.ask(now, Vec::new()), idle, "it is still held");
        held.answered(idle, vec![room(0)]);
        assert_eq!(held.ask(now, Vec::new()), []);
    }

    #[test]
    fn one_slot_is_kept_for_a_while() {
        let begun = Instant::now();
        let mut held = Held::default();
        let wanted = |held: &mut Held, after, ask| {
            held.ask(begun + after, vec![crowd("acme", ask)])[0]
                .ask
                .wants
        };
        let busy = Ask {
            in_force: 3,
            under_way: 3,
            wants: 3,
        };
        let done = Ask {
            under_way: 0,
            wants: 0,
            ..busy
        };
        assert_eq!(wanted(&mut held, Duration::ZERO, busy), 3);
        assert_eq!(wanted(&mut held, LINGER / 2, done), 1);
        assert_eq!(wanted(&mut held, LINGER, done), 0);
        // Who has lost it does not want it back.
        assert_eq!(wanted(&mut held, LINGER, busy), 3);
        assert_eq!(wanted(&mut held, LINGER, IDLE), 0);
    }

    #[tokio::test]
    async fn who_begins_to_wait_is_heard_by_who_is_content() {
        let bell = Notify::new();
        let still_rings = async || timeout(Duration::ZERO, bell.notified()).await.is_ok();
        for calm in [Mood::Content, Mood::Settled] {
            bell.notify_one();
            rest(&bell, calm).await;
            assert!(!still_rings().await, "it was heard");
        }
        // Who asks often anyway need not listen.
        bell.notify_one();
        rest(&bell, Mood::Urgent).await;
        assert!(still_rings().await);
    }

    #[test]
    fn only_who_has_less_than_its_due_hurries() {
        let wants = |wants| crowd("acme", Ask { wants, ..IDLE });
        let room = |slots, usable, fair| Room {
            slots,
            usable,
            fair,
        };
        assert_eq!(mood(&[], &[]), Mood::Content);
        assert_eq!(mood(&[wants(5)], &[room(5, 5, 2)]), Mood::Content);
        assert_eq!(mood(&[wants(5)], &[room(2, 2, 2)]), Mood::Settled);
        assert_eq!(mood(&[wants(5)], &[room(1, 1, 2)]), Mood::Urgent);
        // Another waits for what is to be let go.
        assert_eq!(mood(&[wants(5)], &[room(5, 2, 2)]), Mood::Urgent);
        let both = mood(&[wants(5), wants(5)], &[room(2, 2, 2), room(0, 0, 1)]);
        assert_eq!(both, Mood::Urgent);
    }
}
