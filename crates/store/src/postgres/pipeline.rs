//! Sends several statements before waiting for the first answer.
//!
//! [`Pipeline`] sends its statements in their order and returns the error of the first one that failed. If one cannot
//! be sent, none after it is sent, so a commit never leaves a statement out.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::db_error::DbError;

/// One statement of a pipeline. Its first poll sends it completely; nothing is sent before.
pub(super) type Step<'a> = Pin<Box<dyn Future<Output = Result<(), DbError>> + 'a>>;

/// Statements in order. All of them are sent before the first is answered. The pipeline ends when all are answered,
/// with the error of the first one that failed; the later ones fail because of it. If a statement cannot be sent,
/// none after it is sent, so that a commit never leaves one out.
#[derive(Default)]
pub(super) struct Pipeline<'a> {
    steps: Vec<Option<Step<'a>>>,
    fault: Option<(usize, DbError)>,
    sent: bool,
}

impl<'a> Pipeline<'a> {
    /// Adds a statement.
    pub(super) fn then(&mut self, step: impl Future<Output = Result<(), DbError>> + 'a) {
        self.steps.push(Some(Box::pin(step)));
    }
}

impl Future for Pipeline<'_> {
    type Output = Result<(), DbError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), DbError>> {
        let this = &mut *self;
        let sending = !std::mem::replace(&mut this.sent, true);
        let mut waits = false;
        for (index, slot) in this.steps.iter_mut().enumerate() {
            if sending && this.fault.is_some() {
                *slot = None;
                continue;
            }
            let Some(step) = slot else { continue };
            match step.as_mut().poll(context) {
                Poll::Pending => waits = true,
                Poll::Ready(result) => {
                    *slot = None;
                    if let Err(fault) = result
                        && this.fault.as_ref().is_none_or(|(first, _)| index < *first)
                    {
                        this.fault = Some((index, fault));
                    }
                }
            }
        }
        if waits {
            return Poll::Pending;
        }
        Poll::Ready(match this.fault.take() {
            None => Ok(()),
            Some((_, fault)) => Err(fault),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::task::Waker;

    /// A step that is answered at the second poll, or fails at the first poll if it cannot be sent.
    async fn step(sent: &RefCell<Vec<u8>>, name: u8, fits: bool) -> Result<(), DbError> {
        if !fits {
            return Err(DbError::Corrupt(name.to_string()));
        }
        sent.borrow_mut().push(name);
        tokio::task::yield_now().await;
        Ok(())
    }

    #[test]
    fn a_statement_that_cannot_be_sent_ends_the_pipeline() {
        let sent: RefCell<Vec<u8>> = RefCell::default();
        for (unfit, expected) in [(9, vec![1, 2, 3, 4]), (3, vec![1, 2]), (1, vec![])] {
            sent.borrow_mut().clear();
            let mut pipeline = Pipeline::default();
            for name in 1..=4 {
                pipeline.then(step(&sent, name, name != unfit));
            }
            let mut pipeline = Box::pin(pipeline);
            let mut context = Context::from_waker(Waker::noop());
            let mut looks = 0;
            let ended = loop {
                looks += 1;
                assert!(looks < 9, "it ends");
                if let Poll::Ready(ended) = pipeline.as_mut().poll(&mut context) {
                    break ended;
                }
            };
            assert_eq!(ended.is_ok(), unfit == 9);
            assert_eq!(*sent.borrow(), expected);
        }
    }
}
