//! The stores answer every operation as the model does.

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

// In four parts, so that they run in parallel.

#[test]
fn sqlite_agrees_with_the_model() {
    assert_agree(0..15, SqliteHarness::in_memory);
}

#[test]
fn sqlite_agrees_with_the_model_for_other_seeds() {
    assert_agree(15..30, SqliteHarness::in_memory);
}

#[test]
fn sqlite_agrees_with_the_model_for_more_seeds() {
    assert_agree(30..45, SqliteHarness::in_memory);
}

#[test]
fn sqlite_agrees_with_the_model_for_the_last_seeds() {
    assert_agree(45..60, SqliteHarness::in_memory);
}

#[test]
fn postgres_agrees_with_the_model() {
    assert_agree(0..4, PostgresHarness::new);
}

#[test]
fn postgres_agrees_with_the_model_for_other_seeds() {
    assert_agree(4..8, PostgresHarness::new);
}

#[test]
fn postgres_agrees_with_the_model_for_more_seeds() {
    assert_agree(8..12, PostgresHarness::new);
}

#[test]
fn postgres_agrees_with_the_model_for_the_last_seeds() {
    assert_agree(12..16, PostgresHarness::new);
}
