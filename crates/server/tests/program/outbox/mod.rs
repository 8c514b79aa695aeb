//! Outboxes: rows of an application's PostgreSQL database become events. With the built program, on either store.

mod cluster;
mod commands;
mod databases;
mod fixture;
mod kill;
mod many_rows;
mod order;
mod rows;
