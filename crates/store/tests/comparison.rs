//! Engines answer as the model does, whatever is asked of them.

#![allow(
    clippy::disallowed_methods,
    reason = "tests reach their own server by their own way"
)]

mod engines;

use engines::{PostgresHarness, SqliteHarness};
use posthaste_store_testing::contract::ModelHarness;
use posthaste_store_testing::contract::comparison::assert_agree;

#[test]
fn the_model_agrees_with_itself() {
    assert_agree(0..20, ModelHarness::default);
}

// In four pieces, so that they run side by side.

#[test]
fn sqlite_agrees_with_the_model() {
    assert_agree(0..25, SqliteHarness::in_memory);
}

#[test]
fn sqlite_agrees_with_the_model_for_other_seeds() {
    assert_agree(25..50, SqliteHarness::in_memory);
}

#[test]
fn sqlite_agrees_with_the_model_for_more_seeds() {
    assert_agree(50..75, SqliteHarness::in_memory);
}

#[test]
fn sqlite_agrees_with_the_model_for_the_last_seeds() {
    assert_agree(75..100, SqliteHarness::in_memory);
}

#[test]
fn postgres_agrees_with_the_model() {
    assert_agree(0..6, PostgresHarness::new);
}

#[test]
fn postgres_agrees_with_the_model_for_other_seeds() {
    assert_agree(6..12, PostgresHarness::new);
}

#[test]
fn postgres_agrees_with_the_model_for_more_seeds() {
    assert_agree(12..18, PostgresHarness::new);
}

#[test]
fn postgres_agrees_with_the_model_for_the_last_seeds() {
    assert_agree(18..24, PostgresHarness::new);
}
