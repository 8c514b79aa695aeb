//! The task that writes: one for everybody, and one beside it for events of tenants that are limited, which have to wait
//! for other nodes.
//!
//! It takes whatever has gathered and writes it: what is hot in one transaction and one go, what is cold in a
//! transaction of its own, all of it in the order it came. There is no timer: while one commit runs, the
//! next group gathers. Then it hands over what was accepted, and answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fault::{Fault, Verdict};
use super::hot::Batch;
use super::link::{Connector, NotConnected, WRITTEN};
use super::operation::{Cold, Operation};
use super::queue::Queue;
use super::scene::Scene;
use crate::HandOver;

/// How often something is done again because somebody was in the way.
pub(super) const MAX_TRIES: usize = 10;
/// After so long nothing is done again, for everybody else waits behind it.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What the task owns.
pub(super) struct Writer {
    pub(super) queue: Arc<Queue>,
    pub(super) connector: Connector,
    pub(super) scene: Scene,
    pub(super) hand_over: Arc<dyn HandOver>,
    /// So many more batches look for idempotency keys before they insert them.
    pub(super) wary: u32,
}

impl Writer {
    /// Writes until the queue is closed and empty.
    pub(super) async fn work(&mut self) {
        while let Some(group) = self.queue.take().await {
            self.write_group(group).await;
        }
    }

    /// Writes operations that were queued together, in their order. If the database cannot be reached, one attempt to
    /// connect answers all of them, and everything that was queued before it.
    async fn write_group(&mut self, group: Vec<Operation>) {
        let mut rest = group.into_iter();
        let mut batch = Batch::default();
        let failed = loop {
            let Some(operation) = rest.next() else {
                break self.write_hot(std::mem::take(&mut batch)).await.err();
            };
            let written = match operation {
                Operation::Accept(accepting) => {
                    batch.accept(accepting);
                    Ok(())
                }
                Operation::Record(recording) if !batch.records_already(&recording) => {
                    batch.record(*recording);
                    Ok(())
                }
                Operation::Record(recording) => {
                    let written = self.write_hot(std::mem::take(&mut batch)).await;
                    batch.record(*recording);
                    written
                }
                Operation::Cold(cold) => match self.write_hot(std::mem::take(&mut batch)).await {
                    Ok(()) => self.write_cold(cold).await,
                    Err(failed) => {
                        cold.answer(Err(failed.why.clone()));
                        Err(failed)
                    }
                },
            };
            if let Err(failed) = written {
                break Some(failed);
            }
        };
        if let Some(NotConnected { tried_at, why }) = failed {
            batch.refuse(&why);
            for operation in rest {
                operation.refuse(why.clone());
            }
            self.queue.refuse_older(tried_at, &why);
        }
    }

    /// A connection that works, as far as is known.
    pub(super) async fn connect(&mut self) -> Result<(), NotConnected> {
        let link = self.connector.link().await?;
        if !std::rc::Rc::ptr_eq(&link, &self.scene.link) {
            self.scene.link = link;
            self.scene.start_over();
        }
        Ok(())
    }

    /// Runs an operation in a transaction of its own, and answers it. Fails if the database cannot be reached.
    async fn write_cold(&mut self, mut cold: Box<dyn Cold>) -> Result<(), NotConnected> {
        let until = Instant::now() + PATIENCE;
        for tried in 1..=MAX_TRIES {
            if let Err(failed) = self.connect().await {
                cold.answer(Err(failed.why.clone()));
                return Err(failed);
            }
            self.scene.link.wait_for(WRITTEN);
            let fault = match commit_cold(&mut self.scene, &mut *cold).await {
                Ok(()) => {
                    self.scene.keep();
                    cold.answer(Ok(()));
                    return Ok(());
                }
                Err(fault) => fault,
            };
            self.roll_back(&fault).await;
            match fault.verdict() {
                Verdict::Fenced => {
                    self.scene.holdings.tell_fenced();
                    let answer = match cold.fenced() {
                        true => Ok(()),
                        false => Err(fault.into_store_error()),
                    };
                    cold.answer(answer);
                    return Ok(());
                }
                Verdict::InTheWay
                | Verdict::Outdated
                | Verdict::Duplicate
                | Verdict::NoPartition
                | Verdict::Unprepared
                    if tried < MAX_TRIES && Instant::now() < until => {}
                Verdict::InTheWay
                | Verdict::Outdated
                | Verdict::Duplicate
                | Verdict::NoPartition
                | Verdict::Unprepared
                | Verdict::Superseded
                | Verdict::Lost
                | Verdict::Guilty => {
                    cold.answer(Err(fault.into_store_error()));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Leaves a failed transaction behind.
    pub(super) async fn roll_back(&mut self, fault: &Fault) {
        self.scene.forget();
        let verdict = fault.verdict();
        if verdict == Verdict::NoPartition {
            self.scene.partitions.forget();
        }
        let unfit = matches!(verdict, Verdict::Lost | Verdict::Unprepared);
        let lost = unfit || self.scene.link.batch("ROLLBACK").await.is_err();
        if lost {
            tracing::warn!(%fault, "the connection to the database is lost");
            self.connector.drop_link();
        }
    }
}

/// Runs a cold operation in one transaction.
async fn commit_cold(scene: &mut Scene, cold: &mut dyn Cold) -> Result<(), Fault> {
    scene.link.batch("BEGIN").await?;
    cold.run(scene).await?;
    scene.write_effects().await?;
    scene.link.batch("COMMIT").await
}
