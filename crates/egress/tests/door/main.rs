//! The door out against real sockets: honest receivers, hostile ones, and places it may not go.

mod hostile;
mod http2;
mod kit;
mod operator;
mod places;
mod plain;
mod proxy;
mod secure;
mod sharing;
mod time;
