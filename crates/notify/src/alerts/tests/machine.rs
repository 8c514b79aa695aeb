//! Tests of alerts about the server itself.

use posthaste_core::alert::{AlertName, Bound};
use posthaste_core::time::Span;
use posthaste_store::{EmailLine, MaxEmailDelay, Posted, Scope, StatEntry, Tally};
use serde_json::json;

use super::World;

const EVERYTHING: Scope = Scope::Everything;

#[tokio::test]
async fn an_old_queue_is_told_once() {
    let mut world = World::new().await;
    let name = AlertName::QueueAge;
    let age = |world: &World, age| {
        world.outside.lock().expect("nobody panics").queue_age = age;
    };
    age(&world, Some(Span::from_mins(10)));
    world.watch_for(Span::from_mins(5)).await;
    assert_eq!(world.open().await, []);
    age(&world, Some(Span::from_millis(600_001)));
    world.watch_for(Span::from_mins(5)).await;
    assert_eq!(world.open().await, [(name, EVERYTHING)]);
    // An unknown value does not count as normal.
    age(&world, None);
    world.watch_for(Span::from_mins(30)).await;
    assert_eq!(world.told(name, &EVERYTHING).await, (1, 0));
    // The value goes up and down, without further notifications.
    for _ in 0..20 {
        age(&world, Some(Span::ZERO));
        world.watch_for(Span::from_mins(2)).await;
        age(&world, Some(Span::from_mins(20)));
        world.watch_for(Span::from_mins(1)).await;
    }
    assert_eq!(world.told(name, &EVERYTHING).await, (1, 0));
    age(&world, Some(Span::ZERO));
    world.watch_for(Span::from_mins(6)).await;
    assert_eq!(world.told(name, &EVERYTHING).await, (1, 1));
}

#[tokio::test]
async fn a_slow_store_is_told_once_and_one_slow_write_is_not() {
    let mut world = World::new().await;
    let name = AlertName::StoreSlow;
    let lag = |world: &World, ms| {
        world.outside.lock().expect("nobody panics").lag_ms = ms;
    };
    world.watch_for(Span::from_mins(1)).await;
    for _ in 0..10 {
        lag(&world, 5_000);
        world.watch_for(Span::from_secs(15)).await;
        lag(&world, 0);
        world.watch_for(Span::from_secs(30)).await;
    }
    assert_eq!(world.open().await, []);
    lag(&world, 1_001);
    world.watch_for(Span::from_mins(5)).await;
    assert_eq!(world.open().await, [(name, EVERYTHING)]);
    world.restart();
    world.watch_for(Span::from_mins(5)).await;
    lag(&world, 0);
    world.watch_for(Span::from_mins(7)).await;
    assert_eq!(world.told(name, &EVERYTHING).await, (1, 1));
}

#[tokio::test]
async fn a_store_that_fills_up_is_told_once() {
    let folder = tempfile::tempdir().expect("a directory");
    let mut world = World::in_file(folder.path()).await;
    let name = AlertName::StoreNearlyFull;
    // The disk of the machine that runs the test may be full itself.
    world.only(name, Bound::Below(0.0));
    world.watch_for(Span::from_mins(1)).await;
    assert_eq!(world.open().await, []);
    let stored = world.store.stored_bytes().await.expect("it reads");
    let stored = stored.expect("a file has a size");
    world.only(name, Bound::Below(0.000_1));
    world.settings.database_bytes = Some(stored);
    world.restart();
    world.watch_for(Span::from_mins(5)).await;
    assert_eq!(world.open().await, [(name, EVERYTHING)]);
    assert_eq!(world.told(name, &EVERYTHING).await, (1, 0));
    world.settings.database_bytes = Some(stored * 1_000);
    world.restart();
    world.watch_for(Span::from_mins(6)).await;
    assert_eq!(world.told(name, &EVERYTHING).await, (1, 1));
}

#[tokio::test]
async fn notices_that_nobody_tells_are_told_on_the_page_at_least() {
    let mut world = World::new().await;
    let name = AlertName::NotificationsStuck;
    world.settings.bounds.insert(name, name.bound());
    world.restart();
    let happened = StatEntry {
        scope: EVERYTHING,
        at: world.now(),
        tally: Tally {
            attempts: 100,
            retries: 50,
            succeeded: 100,
            ..Tally::default()
        },
    };
    world
        .store
        .add_figures(1, vec![happened])
        .await
        .expect("it writes");
    world.watch_for(Span::from_mins(15)).await;
    assert_eq!(world.open().await, [(AlertName::RetryRatio, EVERYTHING)]);
    world.watch_for(Span::from_mins(30)).await;
    assert!(world.open().await.contains(&(name, EVERYTHING)));
    assert_eq!(world.told(name, &EVERYTHING).await, (1, 0));
    let last = world.store.notices(0, 100).await.expect("it reads");
    let last = last.last().expect("there are some").number;
    let told = world
        .store
        .tell(world.now(), 0, last, Vec::new(), world.now());
    assert_eq!(told.await, Ok(true));
    world.watch_for(Span::from_mins(6)).await;
    assert!(!world.open().await.contains(&(name, EVERYTHING)));
    world.watch_for(Span::from_mins(6)).await;
    // The notification of the raised alert was dispatched and removed; the one of its end waits.
    assert_eq!(world.told(name, &EVERYTHING).await, (0, 1));
}

/// Adds an email that the mail server did not accept.
async fn stuck(world: &World, recipient: &str) {
    let line = EmailLine {
        at: world.now(),
        name: "endpoint.recovered".to_owned(),
        tenant: None,
        endpoint: None,
        endpoint_url: None,
        detail: json!({}),
    };
    let (store, now) = (&world.store, world.now());
    let lines = vec![(recipient.to_owned(), line)];
    let told = store.tell(now, 0, 0, lines, now).await;
    assert_eq!(told, Ok(true));
    let claimed = store.claim_letters(now, now, MaxEmailDelay::ANY, 9).await;
    let claimed = claimed.expect("it claims");
    let letter = claimed.iter().find(|it| it.recipient == recipient);
    let revision = letter.expect("it is due").revision;
    let later = Posted::Later {
        at: now.after(Span::from_days(1)),
    };
    let settled = store.settle_letter(recipient.to_owned(), revision, later);
    assert_eq!(settled.await, Ok(true));
}

#[tokio::test]
async fn only_a_letter_that_somebody_could_send_to_the_operator_is_stuck() {
    let (ops, owner) = ("ops@example.com", "owner@example.com");
    for (recipient, mail, is_stuck) in
        [(ops, true, true), (owner, true, false), (ops, false, false)]
    {
        let mut world = World::new().await;
        let name = AlertName::NotificationsStuck;
        world.audience.letters = Some(vec![ops.to_owned()]);
        world.only(name, name.bound());
        stuck(&world, recipient).await;
        world.watch_for(Span::from_mins(14)).await;
        assert_eq!(world.open().await, []);
        if !mail {
            world.audience.letters = None;
            world.restart();
        }
        world.watch_for(Span::from_mins(3)).await;
        let expected: &[_] = match is_stuck {
            true => &[(name, EVERYTHING)],
            false => &[],
        };
        assert_eq!(world.open().await, expected, "{recipient} {mail}");
        // Without a mail server in the configuration no alert stays open.
        world.audience.letters = None;
        world.restart();
        // The notification of the alert itself has been dispatched meanwhile.
        let last = world.store.notices(0, 9).await.expect("it reads");
        let last = last.last().map_or(0, |it| it.number);
        let told = world.store.tell(world.now(), 0, last, vec![], world.now());
        assert_eq!(told.await, Ok(true));
        world.watch_for(Span::from_mins(6)).await;
        assert_eq!(world.open().await, [], "{recipient} {mail}");
    }
}
