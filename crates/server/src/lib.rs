//! The posthaste program: its command line, its configuration, and the start and stop of a node.
//!
//! - [`cli`] parses the command line, runs the command and prints the result. [`config`] reads the settings, and
//!   [`client`] calls the API of a server.
//! - [`node`] starts the parts of a server process (store, engine, API, dashboard, notifications) and stops them in
//!   order.
//! - [`demo`] shows a server with failing receivers, and [`webhook_receiver`] is the receiver of `posthaste listen` and
//!   of the demo.

pub mod cli;
pub mod client;
pub mod config;
pub mod demo;
pub mod node;
pub mod webhook_receiver;
