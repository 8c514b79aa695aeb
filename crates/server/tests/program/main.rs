//! The whole program, through the real binary: from an event that is handed over to the webhook that
//! arrives. Ledgers are kept outside of it.

mod deliver;
mod full;
mod kill;
mod life;
mod proxy;
mod start;
mod stop;
mod support;
mod tour;
