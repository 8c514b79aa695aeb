//! Engines answer as the model does, whatever is asked of them.

use posthaste_store::contract::ModelHarness;
use posthaste_store::contract::comparison::assert_agree;

#[test]
fn the_model_agrees_with_itself() {
    assert_agree(0..100, ModelHarness::default);
}
