//! Outboxes: rows of an application's PostgreSQL database become events. With the built program, on either store.

mod commands;
mod fixture;
mod order;
mod rows;
