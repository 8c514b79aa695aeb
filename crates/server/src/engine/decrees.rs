//! How endpoints shall stand, for as long as that is not on disk.
//!
//! What the dispatcher says of a standing holds in memory at once: what waits is held or failed, and
//! nothing is sent. So it must come to hold on disk too, however often the store must be asked; and
//! whoever reads the endpoint before that must not believe what he reads.

use std::sync::Arc;

use posthaste_core::cluster::Shard;
use posthaste_core::dispatcher::Introduction;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::{Health, Standing};
use posthaste_store::{DisabledReason, StoreError};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::sleep;

use super::courier::Depot;
use super::handle::EngineError;
use super::inbox::Message;
use super::shell::STORE_PAUSE;
use super::waiting::Petition;

/// How an endpoint shall stand.
#[derive(Clone, Debug)]
pub(super) struct Decree {
    pub(super) standing: Standing,
    pub(super) reason: Option<DisabledReason>,
    pub(super) health: Option<Health>,
}

/// Every decree that is not on disk yet: of each endpoint the latest.
#[derive(Default)]
pub(super) struct Decrees {
    latest: FxHashMap<EndpointId, (u64, Decree)>,
    issued: u64,
}

impl Decrees {
    /// A decree takes the place of the one before it. Says its number.
    pub(super) fn issue(&mut self, endpoint: EndpointId, decree: Decree) -> u64 {
        self.issued += 1;
        self.latest.insert(endpoint, (self.issued, decree));
        self.issued
    }

    /// The decree with this number, unless it is on disk or another has taken its place.
    fn find(&self, endpoint: EndpointId, number: u64) -> Option<&Decree> {
        let (latest, decree) = self.latest.get(&endpoint)?;
        (*latest == number).then_some(decree)
    }

    /// Writes a decree down and answers those who asked for it, unless another has taken its place.
    pub(super) fn proclaim(
        &self,
        depot: &Arc<Depot>,
        endpoint: EndpointId,
        number: u64,
        petitions: Vec<Petition>,
    ) {
        let Some(decree) = self.find(endpoint, number).cloned() else {
            return;
        };
        let Decree {
            standing,
            reason,
            health,
        } = decree;
        let now = depot.clock.wall();
        let written = depot
            .store
            .set_standing(now, endpoint, standing, reason, health);
        let (inbox, still_ours) = (depot.inbox.clone(), depot.ours_until_now(endpoint));
        tokio::spawn(async move {
            let result = written.await.map(|_| ());
            inbox.put(Message::Stood {
                endpoint,
                decree: number,
                result: result.clone(),
            });
            // Had another node owned it by the time this was on disk, it would not have heard of it.
            let answer = match result {
                Ok(()) if still_ours() => Ok(()),
                Ok(()) => Err(EngineError::Elsewhere),
                Err(error) => Err(EngineError::Store(error)),
            };
            for petition in petitions {
                // Whoever has gone away does not mind.
                let _ = petition.reply.send(answer.clone());
            }
        });
    }

    /// A decree was written down, or was not and will be tried again. Says whether it is on disk.
    pub(super) fn stood(
        &mut self,
        depot: &Depot,
        endpoint: EndpointId,
        number: u64,
        result: Result<(), StoreError>,
    ) -> bool {
        match result {
            Ok(()) => {
                if self.find(endpoint, number).is_some() {
                    self.latest.remove(&endpoint);
                }
                true
            }
            Err(StoreError::Closed) => false,
            Err(StoreError::Full | StoreError::Overloaded | StoreError::Unavailable(_)) => {
                let inbox = depot.inbox.clone();
                tokio::spawn(async move {
                    sleep(STORE_PAUSE).await;
                    inbox.put(Message::StandAgain {
                        endpoint,
                        decree: number,
                    });
                });
                false
            }
        }
    }

    /// Whether a decree about an endpoint of these shards is not on disk yet.
    pub(super) fn any_in(&self, shards: &FxHashSet<Shard>) -> bool {
        let mut endpoints = self.latest.keys();
        endpoints.any(|endpoint| shards.contains(&Shard::of(*endpoint)))
    }

    /// Nothing is this node's to decree any more.
    pub(super) fn forget_all(&mut self) {
        self.latest.clear();
    }

    /// What is on its way to the disk is newer than what was read from it.
    pub(super) fn amend(&self, introduction: &mut Introduction) {
        let Some((_, decree)) = self.latest.get(&introduction.endpoint) else {
            return;
        };
        if introduction.standing != Standing::Deleted {
            introduction.standing = decree.standing;
        }
        if let Some(health) = &decree.health {
            introduction.health.update(health);
        }
    }

    /// An endpoint is being disabled by what became of an attempt. Nothing can have opened it since, so
    /// a decree that would is older.
    pub(super) fn disabled(&mut self, endpoint: EndpointId) {
        let opens = |decree: &Decree| match decree.standing {
            Standing::Enabled | Standing::Paused => true,
            Standing::Disabled | Standing::Deleted => false,
        };
        if self
            .latest
            .get(&endpoint)
            .is_some_and(|(_, decree)| opens(decree))
        {
            self.latest.remove(&endpoint);
        }
    }
}
