//! A connection to the database that a test can block or kill.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use posthaste_store::postgres::{ByteStream, Dial, DialFuture, ServerAddress, Tls};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::postgres::PlainDial;

/// Connects, and lets nothing through while it is shut: neither a response nor an error comes back.
#[derive(Clone, Default)]
pub(crate) struct DatabaseLink(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    shut: bool,
    /// Connections of earlier generations are dead.
    generation: u64,
    waiting: Vec<Waker>,
}

impl DatabaseLink {
    pub(crate) fn set_shut(&self, shut: bool) {
        let waiting = {
            let mut state = self.0.lock().expect("the mutex is not poisoned");
            state.shut = shut;
            std::mem::take(&mut state.waiting)
        };
        for waker in waiting {
            waker.wake();
        }
    }

    /// Kills every open connection so that an idle one is noticed only when it is next used, as after a database
    /// restart whose closing packets have not arrived yet. New connections work.
    pub(crate) fn kill_unnoticed(&self) {
        let waiting = {
            let mut state = self.0.lock().expect("the mutex is not poisoned");
            state.generation += 1;
            std::mem::take(&mut state.waiting)
        };
        for waker in waiting {
            waker.wake();
        }
    }

    /// Wakes this task when connections are killed or the gate is opened.
    fn wake_on_change(&self, context: &Context<'_>) {
        let mut state = self.0.lock().expect("the mutex is not poisoned");
        let is_known = |known: &Waker| known.will_wake(context.waker());
        if !state.waiting.iter().any(is_known) {
            state.waiting.push(context.waker().clone());
        }
    }

    fn generation(&self) -> u64 {
        self.0.lock().expect("the mutex is not poisoned").generation
    }

    fn poll_open(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().expect("the mutex is not poisoned");
        if state.shut {
            state.waiting.push(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

impl Dial for DatabaseLink {
    fn dial(&self, place: &ServerAddress, tls: &Tls) -> DialFuture {
        let link = self.clone();
        let dialled = PlainDial.dial(place, tls);
        Box::pin(async move {
            std::future::poll_fn(|context| link.poll_open(context)).await;
            let wire: Box<dyn ByteStream> = Box::new(Gated {
                link: link.clone(),
                generation: link.generation(),
                awaits_answer: false,
                wire: dialled.await?,
            });
            Ok(wire)
        })
    }
}

struct Gated {
    link: DatabaseLink,
    generation: u64,
    /// True if something was written since the last read.
    awaits_answer: bool,
    wire: Box<dyn ByteStream>,
}

impl Gated {
    fn is_dead(&self) -> bool {
        self.generation < self.link.generation()
    }
}

impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.link.poll_open(context));
        self.link.wake_on_change(context);
        if self.is_dead() {
            return match self.awaits_answer {
                true => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                false => Poll::Pending,
            };
        }
        let read = Pin::new(&mut self.wire).poll_read(context, buffer);
        if read.is_ready() {
            self.awaits_answer = false;
        }
        read
    }
}

impl AsyncWrite for Gated {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.link.poll_open(context));
        if self.is_dead() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.awaits_answer = true;
        Pin::new(&mut self.wire).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.link.poll_open(context));
        Pin::new(&mut self.wire).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(context)
    }
}
