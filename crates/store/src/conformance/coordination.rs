//! Owners of lanes and leaders of duties: what an earlier one does has no effect. What nodes tell each
//! other.

use std::time::Duration;

use surehook_core::{
    access::{ApiToken, Role},
    decision::NotRoutedReason,
    delivery::{ClaimProof, state::DeliveryStatus},
    lane::{LaneId, LanePause, SavedLaneState},
    store::{
        AbandonedClaim, ConfigChange, Duty, HandoverRow, LANE_REQUESTS_KEPT, LaneAction,
        LaneAnswer, LaneRequest, NextStep, NodeRow, OwnedLane, SettleResult, Signal, SignalBatch,
        SignalPosition,
    },
};
use surehook_retry::DeadReason;
use surehook_types::ids::{NodeId, TokenId};

use super::{StoreFixture, fixture::held_claim};

pub async fn epoch_of_a_lane_grows_with_each_owner(mut fixture: StoreFixture) {
    let mut last = fixture.epoch;
    for _ in 0..3 {
        fixture.reopen().await;
        assert!(fixture.epoch > last, "{:?} after {last:?}", fixture.epoch);
        last = fixture.epoch;
    }
    assert!(fixture.renew_node(fixture.node).await.unwrap().is_some());
    let again =
        fixture.acquire_lanes(fixture.node, vec![LaneId::whole(fixture.crm)]).await.unwrap();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].epoch, last, "the owner stays, and so does the epoch");
}

pub async fn claim_under_an_outdated_epoch_claims_nothing(mut fixture: StoreFixture) {
    fixture.accept(fixture.new_event()).await;
    let outdated = fixture.new_claim();
    fixture.reopen().await;

    let (destination, now) = (fixture.crm, fixture.now);
    let due = fixture.claim_due(destination, now, outdated, 9).await.unwrap();
    let next = fixture.claim_next(destination, now, outdated).await.unwrap();

    assert!(due.claimed.is_empty() && next.claimed.is_empty());
    assert_eq!(fixture.claim(destination, 9).await.len(), 1);
}

pub async fn claims_of_an_earlier_owner_change_nothing(mut fixture: StoreFixture) {
    let (event, lost) = fixture.accept_and_claim().await;
    fixture.reopen().await;
    let current = fixture.claim_one(fixture.crm).await;
    let now = fixture.now + Duration::from_secs(1);

    let outcome = fixture.ambiguous_settlement(&lost, NextStep::Dead(DeadReason::Ambiguous));
    let recorded = fixture.record_crash_outcome(outcome.clone()).await.unwrap();
    let settled = fixture.settle(outcome).await.unwrap();
    fixture.release(vec![held_claim(&lost)], now).await.unwrap();
    let cancelled =
        fixture.cancel_claimed(held_claim(&lost), NotRoutedReason::FilterFalse, now).await.unwrap();
    let (destination, proof) = (fixture.crm, lost.proof);
    for delivery in [Some(lost.id), None] {
        let claim = AbandonedClaim { destination, proof, delivery, due_at: now };
        fixture.abandon(vec![claim], now).await.unwrap();
    }

    assert_eq!((recorded, settled), (SettleResult::ClaimLost, SettleResult::ClaimLost));
    assert!(!cancelled);
    let row = fixture.only_delivery(event).await;
    assert_eq!((row.status, row.attempts), (DeliveryStatus::InFlight, 0));
    fixture.finish(&current, NextStep::Succeeded).await;
}

pub async fn state_saved_by_an_earlier_owner_is_ignored(mut fixture: StoreFixture) {
    let outdated = fixture.epoch;
    fixture.reopen().await;
    let paused = LanePause { at: fixture.now, reason: None, automatic: false };
    let state = SavedLaneState { paused: Some(paused), ..SavedLaneState::default() };
    let store = fixture.store();

    store.save_lane(fixture.crm, outdated, state.clone()).await.unwrap();

    assert!(fixture.load_lanes().await.unwrap().is_empty());
    fixture.save_lane(fixture.crm, state).await.unwrap();
    assert_eq!(fixture.load_lanes().await.unwrap().len(), 1);
}

pub async fn duty_is_led_under_a_term_that_grows_with_each_leader(mut fixture: StoreFixture) {
    let mut last = None;
    for _ in 0..2 {
        let node = fixture.add_node("leader").await;
        let led = fixture.lead_duties(node, Duty::ALL.to_vec()).await.unwrap();
        let again = fixture.lead_duties(node, Duty::ALL.to_vec()).await.unwrap();

        assert_eq!(led.iter().map(|led| led.duty).collect::<Vec<_>>(), Duty::ALL);
        assert_eq!(again, led, "the leader stays, and so does the term");
        assert!(last < Some(led[0].term), "{last:?}");
        last = Some(led[0].term);
        fixture.remove_node(node).await.unwrap();
        fixture.reopen().await;
    }
}

pub async fn lane_has_one_owner_until_it_is_given_back(fixture: StoreFixture) {
    let (crm, mail) = (LaneId::whole(fixture.crm), LaneId::whole(fixture.mail));
    let second = fixture.add_node("second").await;
    let acquire = async |node, lanes| {
        let owned = fixture.acquire_lanes(node, lanes).await.unwrap();
        owned.iter().map(|owned| owned.lane).collect::<Vec<_>>()
    };

    assert!(acquire(second, vec![crm, mail]).await.is_empty(), "the first node owns both");
    fixture.release_lanes(second, vec![mail]).await.unwrap();
    assert_eq!(acquire(fixture.node, vec![mail]).await, [mail], "only the owner gives it back");
    fixture.release_lanes(fixture.node, vec![crm]).await.unwrap();

    assert_eq!(acquire(second, vec![crm, mail]).await, [crm]);
    assert!(acquire(fixture.node, vec![crm]).await.is_empty());
}

pub async fn shards_of_a_destination_have_owners_and_epochs_of_their_own(fixture: StoreFixture) {
    let second = fixture.add_node("second").await;
    fixture.release_lanes(fixture.node, vec![LaneId::whole(fixture.crm)]).await.unwrap();
    let [first_lane, second_lane] = shards_of(&fixture, 2)[..] else { unreachable!("two shards") };
    let acquire = async |node, lane| fixture.acquire_lanes(node, vec![lane]).await.unwrap();

    let first = acquire(fixture.node, first_lane).await;
    assert!(acquire(second, first_lane).await.is_empty(), "it has an owner");
    let other = acquire(second, second_lane).await;

    assert_eq!((first[0].lane, other[0].lane), (first_lane, second_lane));
    let report = fixture.load_nodes().await.unwrap();
    let owners = report.lanes.iter().filter(|row| row.lane.destination == fixture.crm);
    let owners: Vec<_> = owners.map(|row| (row.lane, row.owner)).collect();
    assert_eq!(owners, [(first_lane, Some(fixture.node)), (second_lane, Some(second))]);
    // Waiting deliveries belong to the destination: either lane claims them, each once.
    for _ in 0..4 {
        fixture.accept(fixture.new_event()).await;
    }
    let claim = async |owned: &OwnedLane, number, limit| {
        let proof = ClaimProof { epoch: owned.epoch, number };
        fixture.claim_due(fixture.crm, fixture.now, proof, limit).await.unwrap().claimed
    };
    let claimed = [claim(&first[0], 71, 1).await, claim(&other[0], 72, 9).await].concat();
    assert_eq!(claimed.len(), 4);
    assert!(claim(&first[0], 73, 9).await.is_empty());
    // Each is settled under the claim of its lane.
    for claimed in &claimed {
        fixture.finish(claimed, NextStep::Succeeded).await;
    }
}

pub async fn takeover_of_a_shard_leaves_the_claims_of_the_others(fixture: StoreFixture) {
    let second = fixture.add_node("second").await;
    fixture.release_lanes(fixture.node, vec![LaneId::whole(fixture.crm)]).await.unwrap();
    let [kept_lane, moved_lane] = shards_of(&fixture, 2)[..] else { unreachable!("two shards") };
    let kept = fixture.acquire_lanes(fixture.node, vec![kept_lane]).await.unwrap();
    let moved = fixture.acquire_lanes(second, vec![moved_lane]).await.unwrap();
    for _ in 0..2 {
        fixture.accept(fixture.new_event()).await;
    }
    let claim = async |owned: &OwnedLane, number| {
        let proof = ClaimProof { epoch: owned.epoch, number };
        let batch = fixture.claim_due(fixture.crm, fixture.now, proof, 1).await.unwrap();
        batch.claimed.into_iter().next().unwrap()
    };
    // The embedded store gives all lanes of its process one epoch, and no node of it can die alone.
    let can_die = kept[0].epoch != moved[0].epoch;
    let (kept, lost) = (claim(&kept[0], 71).await, claim(&moved[0], 72).await);

    fixture.remove_node(second).await.unwrap();
    fixture.acquire_lanes(fixture.node, vec![moved_lane]).await.unwrap();

    fixture.finish(&kept, NextStep::Succeeded).await;
    if can_die {
        let settled = fixture.settle(fixture.settlement(&lost, NextStep::Succeeded)).await.unwrap();
        assert_eq!(settled, SettleResult::ClaimLost);
        assert_eq!(fixture.only_delivery(lost.event).await.status, DeliveryStatus::Pending);
    }
}

pub async fn lanes_with_another_number_of_shards_wait_until_all_are_given_back(
    fixture: StoreFixture,
) {
    let second = fixture.add_node("second").await;
    let (whole, halves) = (LaneId::whole(fixture.crm), shards_of(&fixture, 2));
    let acquire = async |node, lanes: &[LaneId]| {
        let owned = fixture.acquire_lanes(node, lanes.to_vec()).await.unwrap();
        let owned = owned.into_iter();
        owned.map(|owned| (owned.lane, owned.taken_over_after.is_some())).collect::<Vec<_>>()
    };

    assert!(acquire(second, &halves).await.is_empty(), "the first node owns the whole");
    fixture.release_lanes(fixture.node, vec![whole]).await.unwrap();
    assert_eq!(acquire(second, &halves[..1]).await, [(halves[0], true)]);
    assert_eq!(acquire(fixture.node, &halves[1..]).await, [(halves[1], true)]);

    fixture.release_lanes(fixture.node, vec![halves[1]]).await.unwrap();
    assert!(acquire(fixture.node, &[whole]).await.is_empty(), "one half has an owner");
    fixture.release_lanes(second, vec![halves[0]]).await.unwrap();
    assert_eq!(acquire(fixture.node, &[whole]).await, [(whole, true)]);
    let report = fixture.load_nodes().await.unwrap();
    let lanes = report.lanes.iter().filter(|row| row.lane.destination == fixture.crm);
    assert_eq!(lanes.map(|row| row.lane).collect::<Vec<_>>(), [whole]);
}

fn shards_of(fixture: &StoreFixture, count: u16) -> Vec<LaneId> {
    LaneId::all(fixture.crm, count).collect()
}

pub async fn report_names_nodes_with_what_they_own(fixture: StoreFixture) {
    let second = fixture.add_node("second").await;
    fixture.release_lanes(fixture.node, vec![LaneId::whole(fixture.crm)]).await.unwrap();
    fixture.acquire_lanes(second, vec![LaneId::whole(fixture.crm)]).await.unwrap();
    fixture.lead_duties(second, vec![Duty::Prune]).await.unwrap();

    let report = fixture.load_nodes().await.unwrap();

    let named: Vec<_> = report.nodes.iter().map(|node| (node.id, node.name.as_str())).collect();
    assert_eq!(named, [(fixture.node, "first"), (second, "second")]);
    let NodeRow { version, address, is_alive, .. } = &report.nodes[1];
    assert_eq!((version.as_str(), *is_alive), ("1.0.0", true));
    assert_eq!(address.unwrap().to_string(), "192.0.2.1:8080");
    let owner = |destination| {
        let mut lanes = report.lanes.iter();
        lanes.find(|row| row.lane == LaneId::whole(destination)).unwrap().owner
    };
    assert_eq!(owner(fixture.crm), Some(second));
    assert_eq!(owner(fixture.mail), Some(fixture.node));
    let leaders: Vec<_> = report.duties.iter().map(|row| (row.duty, row.leader)).collect();
    assert!(leaders.contains(&(Duty::Prune, Some(second))), "{leaders:?}");
    let HandoverRow { lane, from, to, is_planned, .. } = report.handovers[0];
    assert_eq!((lane, from, to), (LaneId::whole(fixture.crm), Some(fixture.node), second));
    assert!(is_planned);
}

pub async fn leaving_node_keeps_its_lanes_until_it_is_removed(fixture: StoreFixture) {
    let second = fixture.add_node("second").await;
    fixture.release_lanes(fixture.node, vec![LaneId::whole(fixture.crm)]).await.unwrap();
    fixture.acquire_lanes(second, vec![LaneId::whole(fixture.crm)]).await.unwrap();
    let owner = async || {
        let report = fixture.load_nodes().await.unwrap();
        report.lanes.iter().find(|row| row.lane.destination == fixture.crm).unwrap().owner
    };

    fixture.begin_leaving(second).await.unwrap();
    let report = fixture.load_nodes().await.unwrap();
    let leaving: Vec<_> = report.nodes.iter().map(|node| node.is_leaving).collect();
    assert_eq!(leaving, [false, true]);
    assert!(fixture.renew_node(second).await.unwrap().is_some(), "it keeps its lease");
    assert_eq!(owner().await, Some(second));

    fixture.remove_node(second).await.unwrap();
    let report = fixture.load_nodes().await.unwrap();
    assert!(report.nodes.iter().all(|node| node.id != second || !node.is_alive));
    assert_eq!(owner().await, None, "what a removed node owned is free");
    let taken =
        fixture.acquire_lanes(fixture.node, vec![LaneId::whole(fixture.crm)]).await.unwrap();
    assert_eq!(taken.len(), 1);
}

pub async fn signals_reach_every_other_node_once(fixture: StoreFixture) {
    let (second, third) = (fixture.add_node("second").await, fixture.add_node("third").await);
    let start = async |node| poll(&fixture, node, None).await.position;
    let (first_at, second_at, third_at) =
        (start(fixture.node).await, start(second).await, start(third).await);
    let signals = vec![Signal::LaneDue(fixture.crm), Signal::LiveUpdates("[1, 2]".to_owned())];

    fixture.publish_signals(second, signals.clone()).await.unwrap();
    fixture.publish_signals(third, vec![Signal::TokensChanged]).await.unwrap();

    let first = poll(&fixture, fixture.node, Some(first_at)).await;
    assert_eq!(first.signals, [&signals[..], &[Signal::TokensChanged]].concat());
    assert!(!first.has_gap);
    assert_eq!(poll(&fixture, second, Some(second_at)).await.signals, [Signal::TokensChanged]);
    assert_eq!(poll(&fixture, third, Some(third_at)).await.signals, signals);
    let again = poll(&fixture, fixture.node, Some(first.position)).await;
    assert!(again.signals.is_empty(), "{again:?}");
    assert!(poll(&fixture, third, None).await.signals.is_empty(), "earlier ones are not for it");
}

pub async fn waiting_poll_returns_as_soon_as_a_signal_is_published(fixture: StoreFixture) {
    let second = fixture.add_node("second").await;
    let start = poll(&fixture, second, None).await.position;
    let store = fixture.store();
    let long = Duration::from_secs(600);
    let waiting =
        tokio::spawn(async move { store.poll_signals(second, Some(start), long).await.unwrap() });
    let signal = Signal::LaneDue(fixture.crm);

    // It may not wait yet. Nothing that is published is missed.
    fixture.publish_signals(fixture.node, vec![signal.clone()]).await.unwrap();

    assert_eq!(waiting.await.unwrap().signals, [signal]);
}

pub async fn poll_returns_the_versions_of_configuration_and_tokens(fixture: StoreFixture) {
    let before = poll(&fixture, fixture.node, None).await;

    fixture.apply(ConfigChange::DeleteDestination(fixture.mail)).await;
    let changed = poll(&fixture, fixture.node, Some(before.position)).await;
    assert!(changed.configuration > before.configuration);
    assert_eq!(changed.configuration, fixture.load_configuration_version().await.unwrap());
    assert_eq!(changed.tokens, before.tokens);

    let mut last = changed.tokens;
    for role in [Role::Admin, Role::Viewer] {
        fixture.add_token(token(&fixture, role)).await.unwrap();
        let tokens = poll(&fixture, fixture.node, None).await.tokens;
        assert!(tokens > last, "{tokens:?} after {last:?}");
        last = tokens;
    }
    let viewer = token(&fixture, Role::Viewer).id;
    fixture.remove_token(viewer, fixture.now).await.unwrap();
    assert!(poll(&fixture, fixture.node, None).await.tokens > last);
}

pub async fn lane_request_is_listed_for_the_owner_until_it_is_answered(fixture: StoreFixture) {
    let second = fixture.add_node("second").await;
    let request = |action| LaneRequest {
        id: fixture.new_id(),
        lane: LaneId::whole(fixture.crm),
        action,
        requested_at: fixture.now,
    };
    let pause =
        request(LaneAction::Pause { reason: Some("maintenance".to_owned()), automatic: false });
    let resume = request(LaneAction::Resume { rate: Some("10/s".parse().unwrap()) });
    for added in [&pause, &resume, &pause] {
        fixture.add_lane_request(added.clone()).await.unwrap();
    }

    assert!(fixture.list_lane_requests(second).await.unwrap().is_empty());
    let listed = fixture.list_lane_requests(fixture.node).await.unwrap();
    assert_eq!(listed, [pause.clone(), resume.clone()]);
    assert_eq!(fixture.find_lane_answer(pause.id).await.unwrap(), None);

    let failed = LaneAnswer::Failed("no".to_owned());
    for answer in [LaneAnswer::Done, failed.clone()] {
        fixture.answer_lane_request(pause.id, answer).await.unwrap();
    }
    assert_eq!(fixture.find_lane_answer(pause.id).await.unwrap(), Some(LaneAnswer::Done));
    // The next owner finds what is left.
    fixture.release_lanes(fixture.node, vec![LaneId::whole(fixture.crm)]).await.unwrap();
    fixture.acquire_lanes(second, vec![LaneId::whole(fixture.crm)]).await.unwrap();
    assert_eq!(fixture.list_lane_requests(second).await.unwrap(), [resume]);
}

pub async fn old_lane_requests_are_removed(mut fixture: StoreFixture) {
    let request = |fixture: &StoreFixture| LaneRequest {
        id: fixture.new_id(),
        lane: LaneId::whole(fixture.crm),
        action: LaneAction::Probe,
        requested_at: fixture.now,
    };
    let old = request(&fixture);
    fixture.add_lane_request(old).await.unwrap();
    fixture.wait(LANE_REQUESTS_KEPT + Duration::from_millis(1));
    let recent = request(&fixture);

    fixture.add_lane_request(recent.clone()).await.unwrap();

    assert_eq!(fixture.list_lane_requests(fixture.node).await.unwrap(), [recent]);
}

async fn poll(fixture: &StoreFixture, node: NodeId, after: Option<SignalPosition>) -> SignalBatch {
    fixture.poll_signals(node, after, Duration::ZERO).await.unwrap()
}

/// The only token with this role.
fn token(fixture: &StoreFixture, role: Role) -> ApiToken {
    let number = role as u8 + 1;
    ApiToken {
        id: TokenId::new(fixture.now, u128::from(number) << 100),
        hash: [number; 32],
        name: None,
        role,
        created_at: fixture.now,
        expires_at: None,
        namespaces: None,
        urls: None,
        session: None,
    }
}
