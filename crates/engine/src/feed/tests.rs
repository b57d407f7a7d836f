//! That a listener gets all the news in order, or is told that it did not.

use super::*;

#[derive(Debug)]
struct HandClock(AtomicI64);

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Fixed;

impl Rng for Fixed {
    fn bits(&self) -> u128 {
        u128::MAX / 7
    }
}

fn feed() -> (Arc<Feed>, Arc<HandClock>) {
    let clock = Arc::new(HandClock(AtomicI64::new(1_000_000)));
    (Feed::new(clock.clone(), &Fixed), clock)
}

fn tell(feed: &Feed, clock: &HandClock, number: u32) {
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

fn attempts(news: &[NumberedUpdate]) -> Vec<u32> {
    news.iter()
        .map(|(_, news)| match &**news {
            LiveUpdate::DeliveryChanged(changed) => changed.attempts,
            LiveUpdate::EventReceived(_) | LiveUpdate::DestinationChanged(_) => panic!("{news:?}"),
        })
        .collect()
}

#[tokio::test]
async fn a_listener_hears_all_from_where_it_began() {
    let (feed, clock) = feed();
    tell(&feed, &clock, 1);
    let (mut listener, missed) = feed.subscribe(None);
    assert_eq!(missed, None);
    tell(&feed, &clock, 2);
    tell(&feed, &clock, 3);
    assert_eq!(attempts(&listener.next().await.unwrap()), [2, 3]);

    let waiting = tokio::spawn(async move { attempts(&listener.next().await.unwrap()) });
    tell(&feed, &clock, 4);
    assert_eq!(waiting.await.unwrap(), [4]);
}

#[test]
fn nothing_is_made_while_nobody_listens() {
    let (feed, clock) = feed();
    feed.publish(clock.now(), || panic!("nobody asked for this"));
    assert_eq!(feed.latest.load(Ordering::SeqCst), 1, "it has a number all the same");
}

#[test]
fn one_that_comes_back_soon_misses_nothing() {
    let (feed, clock) = feed();
    let (mut listener, _) = feed.subscribe(None);
    tell(&feed, &clock, 1);
    assert_eq!(attempts(&listener.take_available().unwrap()), [1]);
    let place = listener.position();
    drop(listener);
    tell(&feed, &clock, 2);
    clock.0.fetch_add(30_000, Ordering::Relaxed);
    tell(&feed, &clock, 3);

    let (mut back, missed) = feed.subscribe(Some(&place));
    assert_eq!(missed, None);
    assert_eq!(attempts(&back.take_available().unwrap()), [2, 3]);
}

#[test]
fn one_that_comes_back_late_is_told_so() {
    let (feed, clock) = feed();
    let (listener, _) = feed.subscribe(None);
    let place = listener.position();
    drop(listener);
    clock.0.fetch_add(61_000, Ordering::Relaxed);
    // Nothing happened: nothing is missing, however late it is.
    assert_eq!(feed.subscribe(Some(&place)).1, None);
    clock.0.fetch_add(61_000, Ordering::Relaxed);
    tell(&feed, &clock, 1);

    let (mut back, missed) = feed.subscribe(Some(&place));
    assert_eq!(missed, Some(MissedUpdates));
    assert!(back.take_available().unwrap().is_empty(), "it begins now");
    tell(&feed, &clock, 2);
    assert_eq!(attempts(&back.take_available().unwrap()), [2]);
}

#[test]
fn a_place_that_is_not_of_this_run_is_no_place() {
    let (feed, clock) = feed();
    let (listener, _) = feed.subscribe(None);
    tell(&feed, &clock, 1);
    let here = listener.id(0);
    assert_eq!(feed.subscribe(Some(&here)).1, None);
    for since in ["", "-", "0", "-0", "ffffffffffff-0", &listener.id(2), &format!("{here}x")] {
        assert_eq!(feed.subscribe(Some(since)).1, Some(MissedUpdates), "case: {since}");
    }
}

#[test]
fn a_slow_listener_falls_out_of_the_ring_and_slows_nobody() {
    let (feed, clock) = feed();
    let (mut slow, _) = feed.subscribe(None);
    let many = u32::try_from(RING_MAX).unwrap();
    for number in 0..many {
        tell(&feed, &clock, number);
    }
    let (mut quick, missed) = feed.subscribe(Some(&slow.position()));
    assert_eq!(missed, None, "the ring holds exactly so many");
    let mut heard = Vec::new();
    while let Ok(news) = quick.take_available()
        && !news.is_empty()
    {
        heard.extend(attempts(&news));
    }
    assert_eq!(heard, (0..many).collect::<Vec<_>>());

    tell(&feed, &clock, many);
    assert_eq!(slow.take_available(), Err(MissedUpdates));
    assert!(slow.take_available().unwrap().is_empty());
    assert_eq!(attempts(&quick.take_available().unwrap()), [many]);
}

#[test]
fn a_number_that_was_taken_in_silence_is_a_gap() {
    let (feed, clock) = feed();
    let (mut listener, _) = feed.subscribe(None);
    tell(&feed, &clock, 1);
    // Somebody who looked before the listener came, and took his number after.
    feed.latest.fetch_add(1, Ordering::SeqCst);
    assert_eq!(listener.take_available().map(|news| attempts(&news)), Ok(vec![1]));
    assert_eq!(listener.take_available(), Err(MissedUpdates));

    tell(&feed, &clock, 2);
    assert_eq!(attempts(&listener.take_available().unwrap()), [2]);
    let (_, missed) = feed.subscribe(Some(&listener.id(0)));
    assert_eq!(missed, Some(MissedUpdates), "what is before the gap does not reach over it");
}
