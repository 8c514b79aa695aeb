//! The door out against real sockets: honest receivers, hostile ones, and places it may not go.

mod floods;
mod frames;
mod fuzz;
mod handshake;
mod hostile;
mod http2;
mod kit;
mod mutual;
mod operator;
mod places;
mod plain;
mod proxy;
mod secure;
mod shapes;
mod sharing;
mod time;
