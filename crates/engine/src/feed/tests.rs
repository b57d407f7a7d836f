//! A subscriber gets all updates in order, or learns that it missed some.

use super::*;

#[derive(Debug)]
struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

#[derive(Debug)]
struct ConstantRng;

impl Rng for ConstantRng {
    fn next_u128(&self) -> u128 {
        u128::MAX / 7
    }
}

fn new_feed() -> (Arc<Feed>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock(AtomicI64::new(1_000_000)));
    (Feed::new(clock.clone(), &ConstantRng, Arc::default()), clock)
}

fn publish(feed: &Feed, clock: &ManualClock, number: u32) {
    let at = clock.now();
    feed.publish(at, || {
        LiveUpdate::DeliveryChanged(DeliveryChanged {
            id: DeliveryId::new(at, 0),
            event: EventId::new(at, 0),
            destination: None,
            status: DeliveryStatus::Succeeded,
            reason: None,
            attempts: number,
            due_at: None,
            at,
        })
    });
}

fn attempts(updates: &[NumberedUpdate]) -> Vec<u32> {
    updates
        .iter()
        .map(|(_, update)| match &**update {
            LiveUpdate::DeliveryChanged(changed) => changed.attempts,
            LiveUpdate::EventReceived(_) | LiveUpdate::DestinationChanged(_) => {
                panic!("{update:?}")
            }
        })
        .collect()
}

#[tokio::test]
async fn subscriber_gets_all_updates_after_it_subscribed() {
    let (feed, clock) = new_feed();
    publish(&feed, &clock, 1);
    let (mut subscriber, missed) = feed.subscribe(None);
    assert_eq!(missed, None);
    publish(&feed, &clock, 2);
    publish(&feed, &clock, 3);
    assert_eq!(attempts(&subscriber.next().await.unwrap()), [2, 3]);

    let waiting = tokio::spawn(async move { attempts(&subscriber.next().await.unwrap()) });
    publish(&feed, &clock, 4);
    assert_eq!(waiting.await.unwrap(), [4]);
}

#[test]
fn update_is_not_built_without_subscribers() {
    let (feed, clock) = new_feed();
    feed.publish(clock.now(), || panic!("there are no subscribers"));
    assert_eq!(feed.latest.load(Ordering::SeqCst), 1, "it has a number nevertheless");
}

#[test]
fn reconnect_within_the_linger_time_misses_nothing() {
    let (feed, clock) = new_feed();
    let (mut subscriber, _) = feed.subscribe(None);
    publish(&feed, &clock, 1);
    assert_eq!(attempts(&subscriber.take_available().unwrap()), [1]);
    let position = subscriber.position();
    drop(subscriber);
    publish(&feed, &clock, 2);
    clock.0.fetch_add(30_000, Ordering::Relaxed);
    publish(&feed, &clock, 3);

    let (mut reconnected, missed) = feed.subscribe(Some(&position));
    assert_eq!(missed, None);
    assert_eq!(attempts(&reconnected.take_available().unwrap()), [2, 3]);
}

#[test]
fn late_reconnect_is_reported_as_missed() {
    let (feed, clock) = new_feed();
    let (subscriber, _) = feed.subscribe(None);
    let position = subscriber.position();
    drop(subscriber);
    clock.0.fetch_add(61_000, Ordering::Relaxed);
    // Without updates in between nothing is missed, however late it is.
    assert_eq!(feed.subscribe(Some(&position)).1, None);
    clock.0.fetch_add(61_000, Ordering::Relaxed);
    publish(&feed, &clock, 1);

    let (mut reconnected, missed) = feed.subscribe(Some(&position));
    assert_eq!(missed, Some(MissedUpdates));
    assert!(reconnected.take_available().unwrap().is_empty(), "it continues from now");
    publish(&feed, &clock, 2);
    assert_eq!(attempts(&reconnected.take_available().unwrap()), [2]);
}

#[test]
fn position_of_another_run_is_reported_as_missed() {
    let (feed, clock) = new_feed();
    let (subscriber, _) = feed.subscribe(None);
    publish(&feed, &clock, 1);
    let valid = subscriber.id(0);
    assert_eq!(feed.subscribe(Some(&valid)).1, None);
    for since in ["", "-", "0", "-0", "ffffffffffff-0", &subscriber.id(2), &format!("{valid}x")] {
        assert_eq!(feed.subscribe(Some(since)).1, Some(MissedUpdates), "case: {since}");
    }
}

#[test]
fn slow_subscriber_misses_updates_and_does_not_slow_others() {
    let (feed, clock) = new_feed();
    let (mut slow, _) = feed.subscribe(None);
    let count = u32::try_from(RING_MAX).unwrap();
    for number in 0..count {
        publish(&feed, &clock, number);
    }
    let (mut quick, missed) = feed.subscribe(Some(&slow.position()));
    assert_eq!(missed, None, "the ring holds exactly this many");
    let mut seen = Vec::new();
    while let Ok(updates) = quick.take_available()
        && !updates.is_empty()
    {
        seen.extend(attempts(&updates));
    }
    assert_eq!(seen, (0..count).collect::<Vec<_>>());

    publish(&feed, &clock, count);
    assert_eq!(slow.take_available(), Err(MissedUpdates));
    assert!(slow.take_available().unwrap().is_empty());
    assert_eq!(attempts(&quick.take_available().unwrap()), [count]);
}

#[test]
fn skipped_number_is_reported_as_missed() {
    let (feed, clock) = new_feed();
    let (mut subscriber, _) = feed.subscribe(None);
    publish(&feed, &clock, 1);
    // A publisher that saw no subscriber, and took its number after one subscribed.
    feed.latest.fetch_add(1, Ordering::SeqCst);
    assert_eq!(subscriber.take_available().map(|updates| attempts(&updates)), Ok(vec![1]));
    assert_eq!(subscriber.take_available(), Err(MissedUpdates));

    publish(&feed, &clock, 2);
    assert_eq!(attempts(&subscriber.take_available().unwrap()), [2]);
    let (_, missed) = feed.subscribe(Some(&subscriber.id(0)));
    assert_eq!(missed, Some(MissedUpdates), "updates before the gap are not continued after it");
}

#[test]
fn updates_are_passed_on_while_another_node_follows_them() {
    let (clock, outbox) =
        (Arc::new(ManualClock(AtomicI64::new(1_000_000))), Arc::new(SignalOutbox::default()));
    outbox.open();
    let feed = Feed::new(clock.clone(), &ConstantRng, Arc::clone(&outbox));
    publish(&feed, &clock, 1);
    assert!(outbox.take().is_empty(), "no client follows");

    feed.note_remote_followers();
    publish(&feed, &clock, 2);
    feed.skip();
    assert_eq!(outbox.take().concat().len(), 1);

    clock.0.fetch_add(i64::try_from(FOLLOWED_FOR.as_millis()).unwrap(), Ordering::Relaxed);
    publish(&feed, &clock, 3);
    feed.skip();
    assert!(outbox.take().is_empty(), "it follows no more");
}

#[tokio::test]
async fn update_of_another_node_reaches_subscribers_and_is_not_passed_on() {
    let (feed, clock) = new_feed();
    let (mut subscriber, _) = feed.subscribe(None);
    publish(&feed, &clock, 1);
    let update = (*subscriber.next().await.unwrap()[0].1).clone();
    feed.note_remote_followers();

    feed.publish_remote(Some(update.clone()));

    assert_eq!(*subscriber.next().await.unwrap()[0].1, update);
    feed.publish_remote(None);
    assert_eq!(subscriber.take_available(), Err(MissedUpdates));
}
