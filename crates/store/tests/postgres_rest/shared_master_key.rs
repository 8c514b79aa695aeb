//! Nodes share one master key.

use crate::fixture::{Fixture, run};

#[test]
fn the_first_offered_key_is_used_by_all_nodes() {
    let fixture = Fixture::acme();
    let other = fixture.another(9);
    assert_eq!(run(fixture.store.shared_master_keys()), Ok(None));
    let (first, second) = (
        fixture.store.offer_master_keys("one".to_owned()),
        other.store.offer_master_keys("two".to_owned()),
    );
    let kept = run(first).expect("it is kept");
    assert!(["one", "two"].contains(&kept.as_str()), "{kept}");
    assert_eq!(run(second), Ok(kept.clone()));
    let late = other.store.offer_master_keys("three".to_owned());
    assert_eq!(run(late), Ok(kept.clone()));
    assert_eq!(run(fixture.store.shared_master_keys()), Ok(Some(kept)));
}
