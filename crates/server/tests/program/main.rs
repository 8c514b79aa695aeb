//! Tests that run the built program, as its users do.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]
#![allow(
    clippy::duplicate_mod,
    reason = "the tests in `serve` run a second time on PostgreSQL, as `serve_on_postgres`"
)]

mod bench;
mod canary;
mod cli_client;
mod clocks;
mod cluster;
mod cluster_basics;
mod copy;
mod demo;
mod documents;
mod fixture;
mod isolation;
mod libraries;
mod mail;
mod outbox;
mod pages;
mod policy;
mod private_network;
mod schedules;
mod serve;
mod serve_on_postgres;
mod upgrade;
