//! Several statements sent in one go, answered one after the other.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::fault::Fault;

/// One of them. Nothing of it is sent before it is first polled, and then all of it.
pub(super) type Step<'a> = Pin<Box<dyn Future<Output = Result<(), Fault>> + 'a>>;

/// Statements in order: all are sent before the first is answered. Ends when all are answered, with what
/// the first that failed failed with; the others failed because of it.
#[derive(Default)]
pub(super) struct Pipeline<'a> {
    steps: Vec<Option<Step<'a>>>,
    fault: Option<(usize, Fault)>,
}

impl<'a> Pipeline<'a> {
    /// Adds one.
    pub(super) fn then(&mut self, step: impl Future<Output = Result<(), Fault>> + 'a) {
        self.steps.push(Some(Box::pin(step)));
    }
}

impl Future for Pipeline<'_> {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let this = &mut *self;
        let mut waits = false;
        for (place, slot) in this.steps.iter_mut().enumerate() {
            let Some(step) = slot else { continue };
            match step.as_mut().poll(context) {
                Poll::Pending => waits = true,
                Poll::Ready(result) => {
                    *slot = None;
                    if let Err(fault) = result
                        && this.fault.as_ref().is_none_or(|(first, _)| place < *first)
                    {
                        this.fault = Some((place, fault));
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
