//! Every engine keeps every promise.

use posthaste_store::contract::ModelHarness;
use posthaste_store::contract_tests;

contract_tests!(model, ModelHarness::default());
