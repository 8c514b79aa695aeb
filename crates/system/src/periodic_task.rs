//! Runs rounds of background work until the task is stopped.
//!
//! [`repeat`] runs a [`PeriodicTask`]. A round that has begun is completed, and a stop ends the pause between two rounds
//! at once. A task is stopped when the watched value becomes true or its sender is dropped. [`stopped_within`] is the
//! pause alone, for loops of another form.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Background work that is done in rounds.
pub trait PeriodicTask: Send {
    /// Runs one round. Returns the pause before the next one, or breaks to end the task.
    fn round(&mut self) -> impl Future<Output = ControlFlow<(), Duration>> + Send;

    /// Completes when the next round should begin before the pause is over. By default it never completes.
    fn woken(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Runs rounds, the first one at once, until the task is stopped or a round ends it.
pub async fn repeat(task: &mut impl PeriodicTask, mut stopped: watch::Receiver<bool>) {
    while let ControlFlow::Continue(pause) = task.round().await {
        tokio::select! {
            biased;
            is_stopped = stopped_within(&mut stopped, pause) => {
                if is_stopped {
                    return;
                }
            }
            () = task.woken() => {}
        }
    }
}

/// Waits for the pause. Returns true, without waiting any longer, when the task is stopped.
pub async fn stopped_within(stopped: &mut watch::Receiver<bool>, pause: Duration) -> bool {
    let stopping = stopped.wait_for(|stopping| *stopping);
    timeout(pause, stopping).await.is_ok()
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;
    use tokio::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    /// A task that notes the time of each round, and pauses as listed.
    struct Rounds {
        started: Instant,
        pauses: Vec<ControlFlow<(), Duration>>,
        began_secs: Vec<u64>,
        wake_up: Notify,
        stop_in_round: Option<watch::Sender<bool>>,
    }

    impl Rounds {
        fn new(pauses: Vec<ControlFlow<(), Duration>>) -> Rounds {
            Rounds {
                started: Instant::now(),
                pauses,
                began_secs: Vec::new(),
                wake_up: Notify::new(),
                stop_in_round: None,
            }
        }
    }

    impl PeriodicTask for Rounds {
        async fn round(&mut self) -> ControlFlow<(), Duration> {
            self.began_secs.push(self.started.elapsed().as_secs());
            if let Some(stop) = &self.stop_in_round {
                stop.send_replace(true);
            }
            self.pauses[self.began_secs.len() - 1]
        }

        async fn woken(&self) {
            self.wake_up.notified().await;
        }
    }

    fn pause_secs(secs: u64) -> ControlFlow<(), Duration> {
        ControlFlow::Continue(Duration::from_secs(secs))
    }

    #[tokio::test(start_paused = true)]
    async fn rounds_follow_each_other_after_their_pauses_until_one_ends_the_task() {
        let (_running, stopped) = watch::channel(false);
        let pauses = vec![pause_secs(10), pause_secs(20), ControlFlow::Break(())];
        let mut rounds = Rounds::new(pauses);
        repeat(&mut rounds, stopped).await;
        assert_eq!(rounds.began_secs, [0, 10, 30]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_lets_the_round_complete_and_ends_the_pause() {
        let (running, stopped) = watch::channel(false);
        let mut rounds = Rounds::new(vec![pause_secs(10); 2]);
        rounds.stop_in_round = Some(running);
        repeat(&mut rounds, stopped).await;
        assert_eq!(rounds.began_secs, [0]);
        assert_eq!(rounds.started.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_sender_is_a_stop() {
        let (running, mut stopped) = watch::channel(false);
        assert!(!stopped_within(&mut stopped, LONG).await);
        drop(running);
        assert!(stopped_within(&mut stopped, LONG).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_starts_the_next_round_early() {
        let (_running, stopped) = watch::channel(false);
        let pauses = vec![pause_secs(3_600), pause_secs(5), ControlFlow::Break(())];
        let mut rounds = Rounds::new(pauses);
        rounds.wake_up.notify_one();
        repeat(&mut rounds, stopped).await;
        assert_eq!(rounds.began_secs, [0, 0, 5]);
    }
}
