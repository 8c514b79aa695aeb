//! The dashboard pages, through the real router, with the engine running on the in-memory store. These tests check
//! texts, links and forms; `program/pages` tests the pages in a browser.

mod alerts;
mod dead_letters;
mod deliveries;
mod endpoints;
mod events;
mod find;
mod keys;
mod live_updates;
mod navigation;
mod overview;
mod replays;
mod sign_in;
mod tenant_settings;
