//! Every engine keeps every promise.

mod engines;

use engines::SqliteHarness;
use posthaste_store::contract::ModelHarness;
use posthaste_store::contract_tests;

contract_tests!(model, ModelHarness::default());
contract_tests!(sqlite, SqliteHarness::on_disk());
