//! Several engines on one store, as if each were a process of its own.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use surehook_core::{
    delivery::state::DeliveryStatus,
    idempotency::IdempotentRequest,
    lane::SavedLaneState,
    outbox::OutboxPost,
    store::{
        AdminStore as _, ConfigChange, CoordinationStore as _, DeliveryFilter, DeliveryRow,
        LaneAction, LaneRequest, NodeLease, PageRequest,
    },
};
use surehook_engine::{
    ConfigChangeError, Engine, LaneError,
    feed::{FeedSubscriber, LiveUpdate},
    listen::{ListenCall, ListenerAnswer},
    system::{SystemClock, SystemRng},
};
use surehook_retry::AttemptOutcome;
use surehook_store::{
    SqliteOptions, SqliteStore,
    conformance::{FaultyStore, GrantedOwnership},
};
use surehook_types::{
    ids::{DestinationId, RouteId},
    rng::new_id,
    time::Clock as _,
};
use tempfile::TempDir;

use crate::support::{TestEngine, put_source, receive, start_engine, wait_for};

/// Long enough for a test, and not for ever: there are other nodes.
const LEASE: NodeLease = NodeLease::For(Duration::from_secs(30));

/// Engines on one store.
struct TestNodes {
    store: Arc<SqliteStore>,
    nodes: Vec<Arc<Engine>>,
    _folder: TempDir,
}

impl TestNodes {
    /// Starts nodes, and creates this many destinations that all events go to.
    async fn start(nodes: usize, destinations: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions::new(folder.path());
        let store = Arc::new(SqliteStore::open(&options, SystemClock.now()).unwrap());
        let mut test = Self { store, nodes: Vec::new(), _folder: folder };
        for _ in 0..nodes {
            test.join().await;
        }
        let mut changes = vec![put_source("shop")];
        for number in 0..destinations {
            changes.extend(put_destination(&format!("inbox-{number}")));
        }
        test.nodes[0].change::<_, ConfigChangeError>(|_| Ok((changes.clone(), ()))).await.unwrap();
        test.wait_until_shared(destinations).await;
        test
    }

    async fn join(&mut self) -> Arc<Engine> {
        let store = self.faulty_store();
        self.join_with(store).await
    }

    fn faulty_store(&self) -> Arc<FaultyStore> {
        let store = Arc::new(FaultyStore::new(Arc::<SqliteStore>::clone(&self.store)));
        store.grant(GrantedOwnership { lease: LEASE, ..GrantedOwnership::default() });
        store
    }

    async fn join_with(&mut self, store: Arc<FaultyStore>) -> Arc<Engine> {
        let engine = start_engine(store, Arc::default()).await;
        self.nodes.push(Arc::clone(&engine));
        engine
    }

    /// Waits until every lane runs on one node, and no node has more than its share.
    async fn wait_until_shared(&self, lanes: usize) {
        let share = lanes.div_ceil(self.nodes.len());
        wait_for(async || {
            let counts: Vec<usize> = self.nodes.iter().map(|node| node.owned_lanes()).collect();
            let is_shared = counts.iter().sum::<usize>() == lanes
                && counts.iter().all(|count| *count <= share)
                && self.nodes.iter().all(|node| node.source("shop").is_ok());
            is_shared.then_some(())
        })
        .await;
    }

    /// The first destination, with the node that owns its lane and one that does not.
    async fn find_lane(&self) -> (DestinationId, &Arc<Engine>, &Arc<Engine>) {
        let report = self.store.load_nodes().await.unwrap();
        let lane = &report.lanes[0];
        let is_owner = |node: &&Arc<Engine>| Some(node.node_id()) == lane.owner;
        let owner = self.nodes.iter().find(is_owner).unwrap();
        let other = self.nodes.iter().find(|node| !is_owner(node)).unwrap();
        (lane.lane.destination, owner, other)
    }

    async fn deliveries(&self) -> Vec<DeliveryRow> {
        let page = PageRequest { after: None, limit: 1000 };
        self.store.list_deliveries(DeliveryFilter::default(), page).await.unwrap().rows
    }

    /// Waits until this many deliveries have ended; all must have succeeded.
    async fn wait_for_successes(&self, count: usize) {
        let deliveries = wait_for(async || {
            let deliveries = self.deliveries().await;
            let ended = deliveries.iter().filter(|row| row.status.is_final()).count();
            (ended >= count).then_some(deliveries)
        })
        .await;
        assert_eq!(deliveries.len(), count);
        assert!(deliveries.iter().all(|row| row.status == DeliveryStatus::Succeeded));
    }

    async fn saved_state(&self, destination: DestinationId) -> SavedLaneState {
        let configuration = self.store.load_configuration().await.unwrap();
        let states = self.nodes[0].load_lane_states(&configuration).await.unwrap();
        states.find(destination).unwrap()
    }
}

fn put_destination(name: &str) -> [ConfigChange; 2] {
    put_sharded_destination(name, 1)
}

fn put_sharded_destination(name: &str, shards: u16) -> [ConfigChange; 2] {
    let destination: DestinationId = new_id(&SystemRng, SystemClock.now());
    let route: RouteId = new_id(&SystemRng, SystemClock.now());
    let spec = serde_json::json!({ "name": name, "url": "builtin:inbox", "shards": shards });
    let route_spec = serde_json::json!({ "from": "shop", "to": name });
    [
        ConfigChange::PutDestination(destination, serde_json::from_value(spec).unwrap()),
        ConfigChange::PutRoute(route, serde_json::from_value(route_spec).unwrap()),
    ]
}

#[tokio::test]
async fn lanes_are_shared_with_a_node_that_joins_and_come_back_when_it_leaves() {
    let mut test = TestNodes::start(1, 5).await;
    assert_eq!(test.nodes[0].owned_lanes(), 5);

    let second = test.join().await;
    test.wait_until_shared(5).await;
    assert_eq!((test.nodes[0].owned_lanes(), second.owned_lanes()), (3, 2));

    second.leave(Duration::from_secs(10)).await;
    assert_eq!(second.owned_lanes(), 0);
    let first = &test.nodes[0];
    wait_for(async || (first.owned_lanes() == 5).then_some(())).await;
    second.stop(Duration::from_secs(5)).await;
    let report = test.store.load_nodes().await.unwrap();
    assert_eq!(report.nodes.len(), 1);
    assert!(report.handovers.iter().all(|handover| handover.is_planned));
}

#[tokio::test]
async fn event_is_delivered_whichever_node_receives_it() {
    let test = TestNodes::start(3, 3).await;
    for number in 0..30 {
        let node = &test.nodes[number % 3];
        receive(node, &format!("k{number}")).await.unwrap();
    }
    test.wait_for_successes(90).await;
}

#[tokio::test]
async fn deliveries_are_neither_lost_nor_repeated_while_lanes_move() {
    let mut test = TestNodes::start(1, 4).await;
    for round in 0..5 {
        for number in 0..20 {
            receive(&test.nodes[0], &format!("k{round}-{number}")).await.unwrap();
        }
        if round % 2 == 0 {
            test.join().await;
        } else if let Some(node) = test.nodes.pop() {
            node.leave(Duration::from_secs(10)).await;
            node.stop(Duration::from_secs(5)).await;
        }
    }
    test.wait_for_successes(5 * 20 * 4).await;
    assert!(test.deliveries().await.iter().all(|row| row.attempts == 1));
}

#[tokio::test]
async fn node_that_leaves_while_it_acquires_lanes_gives_them_back() {
    let mut test = TestNodes::start(1, 4).await;
    let store = test.faulty_store();
    // The first call is that of the start, when it owns none.
    let held = store.hold("load_lanes", 1);
    let second = test.join_with(store).await;
    held.begun().await;

    let leaving = tokio::spawn({
        let second = Arc::clone(&second);
        async move { second.leave(Duration::from_secs(10)).await }
    });
    wait_for(async || {
        let report = test.store.load_nodes().await.unwrap();
        report.nodes.iter().any(|row| row.is_leaving).then_some(())
    })
    .await;
    held.release();
    leaving.await.unwrap();

    assert_eq!(second.owned_lanes(), 0);
    let first = &test.nodes[0];
    wait_for(async || (first.owned_lanes() == 4).then_some(())).await;
}

#[tokio::test]
async fn destination_is_paused_resumed_and_probed_on_a_node_without_its_lane() {
    let test = TestNodes::start(2, 2).await;
    let (destination, owner, other) = test.find_lane().await;

    other.pause(destination, Some("maintenance".to_owned())).await.unwrap();
    let pause = test.saved_state(destination).await.paused.unwrap();
    assert_eq!(pause.reason.as_deref(), Some("maintenance"));

    receive(owner, "a").await.unwrap();
    let held = async || {
        let deliveries = test.deliveries().await;
        deliveries.into_iter().find(|row| row.destination == destination).unwrap()
    };
    assert!(!held().await.status.is_final());
    let attempt = other.probe(destination).await.unwrap();
    assert_eq!((attempt.delivery, attempt.attempt.class), (held().await.id, None));
    assert_eq!(held().await.status, DeliveryStatus::Succeeded);

    other.resume(destination, None).await.unwrap();
    assert!(test.saved_state(destination).await.paused.is_none());
    let nothing = other.probe(destination).await.unwrap_err();
    assert_eq!(nothing.to_string(), "this destination has no pending deliveries");
}

#[tokio::test]
async fn listener_is_served_by_the_owner_of_the_lane_and_sent_there_by_others() {
    let test = TestNodes::start(2, 1).await;
    let spec = serde_json::json!({ "name": "laptop", "kind": "listen" });
    let laptop: DestinationId = new_id(&SystemRng, SystemClock.now());
    let route = serde_json::json!({ "from": "shop", "to": "laptop" });
    let changes = vec![
        ConfigChange::PutDestination(laptop, serde_json::from_value(spec).unwrap()),
        ConfigChange::PutRoute(
            new_id(&SystemRng, SystemClock.now()),
            serde_json::from_value(route).unwrap(),
        ),
    ];
    test.nodes[0].change::<_, ConfigChangeError>(|_| Ok((changes.clone(), ()))).await.unwrap();
    test.wait_until_shared(2).await;
    let report = test.store.load_nodes().await.unwrap();
    let lane = report.lanes.iter().find(|row| row.lane.destination == laptop).unwrap();
    let is_owner = |node: &&Arc<Engine>| Some(node.node_id()) == lane.owner;
    let owner = test.nodes.iter().find(is_owner).unwrap();
    let other = test.nodes.iter().find(|node| !is_owner(node)).unwrap();
    let call = |max, answers: Vec<ListenerAnswer>| ListenCall {
        listener: "test".to_owned(),
        max,
        wait: Duration::from_secs(10),
        holding: Vec::new(),
        answers,
        is_leaving: false,
    };

    // Until it has learned of the destination, the other node knows no lane.
    wait_for(async || {
        let refused = other.listen(laptop, call(1, Vec::new())).await.unwrap_err();
        matches!(refused, LaneError::OwnedElsewhere(_)).then_some(())
    })
    .await;
    receive(other, "a").await.unwrap();
    let handed = owner.listen(laptop, call(1, Vec::new())).await.unwrap().deliveries;
    assert_eq!(handed.len(), 1);
    let id = handed[0].id;
    // The response got lost: the listener does not say that it has it.
    let again = owner.listen(laptop, call(1, Vec::new())).await.unwrap().deliveries;
    assert_eq!((again.len(), again[0].id), (1, id));
    let answer = ListenerAnswer {
        delivery: id,
        outcome: AttemptOutcome::Answered { status: 204, retry_after: None },
        elapsed: Duration::from_millis(1),
        detail: None,
        response_body: Vec::new(),
    };
    let accepted = owner.listen(laptop, call(0, vec![answer.clone()])).await.unwrap();
    assert_eq!((accepted.accepted, accepted.unknown.len()), (vec![id], 0));
    let repeated = owner.listen(laptop, call(0, vec![answer])).await.unwrap();
    assert_eq!((repeated.accepted.len(), repeated.unknown), (0, vec![id]));
    test.wait_for_successes(2).await;
}

#[tokio::test]
async fn message_is_sent_through_a_node_without_the_lane() {
    let test = TestNodes::start(2, 2).await;
    let (destination, _, other) = test.find_lane().await;
    let configuration = test.store.load_configuration().await.unwrap();
    let named = configuration.destinations.iter().find(|stored| stored.id == destination);

    for (number, name_or_id) in
        [named.unwrap().spec.name.to_string(), destination.to_string()].iter().enumerate()
    {
        let to = other.find_send_target(name_or_id).await.unwrap();
        assert_eq!(to.destination().id, destination);
        let post = OutboxPost::webhook(None, &BTreeMap::new(), Bytes::from_static(b"{}")).unwrap();
        let seed = [u8::try_from(number).unwrap(); 16];
        let request = IdempotentRequest { at: SystemClock.now(), seed };
        other.send_message(to, post, request, Duration::ZERO, None).await.unwrap();
    }

    test.wait_for_successes(2).await;
    let unknown = other.find_send_target("nowhere").await.unwrap_err();
    assert_eq!(unknown.to_string(), "there is no destination `nowhere`");
}

#[tokio::test]
async fn shards_are_spread_over_nodes_and_paused_and_resumed_together() {
    let test = TestNodes::start(2, 0).await;
    let changes = put_sharded_destination("hot", 4).to_vec();
    test.nodes[0].change::<_, ConfigChangeError>(|_| Ok((changes.clone(), ()))).await.unwrap();
    test.wait_until_shared(4).await;
    let destination = test.store.load_nodes().await.unwrap().lanes[0].lane.destination;
    // Each node delivers what it receives.
    for number in 0..20 {
        receive(&test.nodes[number % 2], &format!("a{number}")).await.unwrap();
    }
    test.wait_for_successes(20).await;

    test.nodes[1].pause(destination, None).await.unwrap();
    assert!(test.saved_state(destination).await.paused.is_some());
    for number in 0..20 {
        receive(&test.nodes[number % 2], &format!("b{number}")).await.unwrap();
    }
    let held = test.deliveries().await;
    assert_eq!(held.iter().filter(|row| row.status == DeliveryStatus::Held).count(), 20);
    // A lane that begins now is paused as well.
    let second = test.nodes[1].owned_lanes();
    test.nodes[1].leave(Duration::from_secs(10)).await;
    let first = &test.nodes[0];
    wait_for(async || (first.owned_lanes() == second + 2).then_some(())).await;
    let held = test.deliveries().await;
    assert_eq!(held.iter().filter(|row| row.status == DeliveryStatus::Held).count(), 20);

    first.resume(destination, None).await.unwrap();
    test.wait_for_successes(40).await;
}

#[tokio::test]
async fn lane_that_missed_a_resume_follows_the_first_lane_of_its_destination() {
    let test = TestNodes::start(2, 0).await;
    let changes = put_sharded_destination("hot", 2).to_vec();
    test.nodes[0].change::<_, ConfigChangeError>(|_| Ok((changes.clone(), ()))).await.unwrap();
    test.wait_until_shared(2).await;
    let report = test.store.load_nodes().await.unwrap();
    let second = report.lanes.iter().find(|row| row.lane.shard.index == 1).unwrap();
    let owner = test.nodes.iter().find(|node| Some(node.node_id()) == second.owner).unwrap();
    let (mut updates, _) = owner.feed().subscribe(None);
    let pause_change = async |updates: &mut FeedSubscriber| loop {
        let changes =
            tokio::time::timeout(Duration::from_secs(30), updates.next()).await.unwrap().unwrap();
        if changes.iter().any(|(_, one)| matches!(&**one, LiveUpdate::DestinationChanged(_))) {
            return;
        }
    };

    // As if it was paused at the moment at which the destination was resumed.
    let requested_at = SystemClock.now();
    let id = new_id(&SystemRng, requested_at);
    let action = LaneAction::Pause { reason: None, automatic: true };
    let request = LaneRequest { id, lane: second.lane, action, requested_at };
    test.store.add_lane_request(request).await.unwrap();
    pause_change(&mut updates).await;

    // No request resumes it.
    pause_change(&mut updates).await;
    assert!(test.saved_state(second.lane.destination).await.paused.is_none());
}

#[tokio::test]
async fn number_of_shards_can_be_changed_while_the_only_process_delivers() {
    let test = TestEngine::start().await;
    let mut received = 0;
    for shards in [3, 1, 8] {
        let spec = serde_json::json!({ "name": "inbox", "url": "builtin:inbox", "shards": shards });
        let spec = serde_json::from_value(spec).unwrap();
        let changes = vec![ConfigChange::PutDestination(test.destination, spec)];
        test.engine.change::<_, ConfigChangeError>(|_| Ok((changes.clone(), ()))).await.unwrap();
        for _ in 0..10 {
            test.receive(&format!("k{received}")).await.unwrap();
            received += 1;
        }
        wait_for(async || (test.engine.owned_lanes() == shards).then_some(())).await;
    }
    let deliveries = test.wait_until_all_ended().await;
    assert_eq!(deliveries.len(), received);
    assert!(deliveries.iter().all(|row| row.attempts == 1));
}

#[tokio::test]
async fn live_updates_of_all_nodes_reach_a_client_of_one() {
    let test = TestNodes::start(2, 2).await;
    let (mut updates, _) = test.nodes[0].feed().subscribe(None);
    let is_remote = |update: &LiveUpdate| matches!(update, LiveUpdate::EventReceived(_));
    // What the other node receives before it has learned of the client is a gap.
    for number in 0..500 {
        receive(&test.nodes[1], &format!("k{number}")).await.unwrap();
        let next = tokio::time::timeout(Duration::from_millis(200), updates.next()).await;
        if let Ok(Ok(updates)) = next
            && updates.iter().any(|(_, update)| is_remote(update))
        {
            return;
        }
    }
    panic!("no update of the other node arrived");
}

#[tokio::test]
async fn change_of_the_configuration_reaches_all_nodes() {
    let test = TestNodes::start(3, 1).await;
    let changes = vec![put_source("bank")];

    test.nodes[1].change::<_, ConfigChangeError>(|_| Ok((changes.clone(), ()))).await.unwrap();

    for node in &test.nodes {
        wait_for(async || node.source("bank").ok().map(drop)).await;
    }
}
