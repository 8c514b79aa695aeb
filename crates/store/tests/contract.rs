//! Every store passes the contract.

#![allow(
    clippy::disallowed_methods,
    reason = "tests reach their own server by their own way"
)]

mod engines;

use engines::{PostgresHarness, SqliteHarness};
use posthaste_store_testing::contract::ModelHarness;
use posthaste_store_testing::contract_tests;

contract_tests!(model, ModelHarness::default());
contract_tests!(sqlite, SqliteHarness::on_disk());
contract_tests!(postgres, PostgresHarness::new());
