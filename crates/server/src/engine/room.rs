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
use rustc_hash::FxHashMap;
use tokio::time::sleep;

use super::handle::{Engine, EngineError};
use super::shell::Shell;

/// How often a node asks that wants more than it may use.
const ROUND: Duration = Duration::from_millis(50);
/// How often one asks that is content. Where there are fewer slots than nodes, each has its turn for about as long.
const CALM: Duration = Duration::from_millis(250);
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

/// Shares with others, until the engine has stopped.
pub(super) async fn keep_sharing(engine: Engine, cluster: Arc<dyn Cluster>) {
    // What was granted for tenants that have nothing here any more, and is to be given back.
    let mut held: FxHashMap<TenantId, u32> = FxHashMap::default();
    let mut pause = ROUND;
    loop {
        sleep(pause).await;
        pause = ROUND;
        let (losses, mut crowds) = match engine.crowds().await {
            Ok(crowds) => crowds,
            Err(EngineError::Stopped) => return,
            Err(EngineError::Elsewhere | EngineError::Store(_)) => continue,
        };
        for (tenant, most) in &held {
            if !crowds.iter().any(|crowd| crowd.tenant == *tenant) {
                crowds.push(Crowd {
                    tenant: tenant.clone(),
                    most: *most,
                    ask: IDLE,
                });
            }
        }
        crowds.retain(|crowd| crowd.ask != IDLE || held.contains_key(&crowd.tenant));
        if crowds.is_empty() {
            continue;
        }
        let Ok(rooms) = cluster.share_room(crowds.clone()).await else {
            // What was granted before still is, for as long as the lease lasts.
            continue;
        };
        let mut usable = Vec::with_capacity(rooms.len());
        let is_content = |(crowd, room): (&Crowd, &Room)| room.usable >= crowd.ask.wants;
        if crowds.iter().zip(&rooms).all(is_content) {
            pause = CALM;
        }
        for (crowd, room) in crowds.into_iter().zip(rooms) {
            match room.slots {
                0 => held.remove(&crowd.tenant),
                _ => held.insert(crowd.tenant.clone(), crowd.most),
            };
            usable.push((crowd.tenant, room.usable));
        }
        engine.make_room(losses, usable);
    }
}
