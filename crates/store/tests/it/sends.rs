//! Wills, statuses and names: durable at once, and gone with what they are about.

use std::{path::Path, time::Duration};

use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    event::{NewEvent, ProviderStatus, StatusUpdate},
    ids::EventId,
    store::{AdminStore, NextStep, SentMessage, SettleResult, Settlement},
};
use surehook_store::conformance::World;

use crate::{
    child,
    harness::{SqliteHarness, assert_sound, open, open_file},
};

const PARKED: NextStep = NextStep::Dead(DeadReason::Ambiguous);
const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test]
async fn killed_process_does_not_resend_messages_that_may_have_been_sent() {
    if let Some(folder) = child::folder() {
        let world = World::new(SqliteHarness::Lent(folder)).await;
        loop {
            let event = world.accept(world.arrival()).await;
            let claimed = world.claim_one(world.crm).await;
            world.record_crash_outcome(world.will(&claimed, PARKED)).await.unwrap();
            // From here on it may be on its way.
            child::tell(&event.to_string());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "sends::killed_process_does_not_resend_messages_that_may_have_been_sent";
    let mut child = child::start(name, folder.path().as_os_str(), &[]);

    let mut told = child::told(child.stdout.take().unwrap());
    let mut sent: Vec<String> = told.by_ref().take(50).collect();
    child.kill().unwrap();
    sent.extend(told);
    child.wait().unwrap();

    // The last line may have been cut by the end.
    let ids: Vec<EventId> = sent.iter().filter_map(|text| text.parse().ok()).collect();
    assert!(ids.len() >= 50, "{sent:?}");
    let store = open(folder.path());
    for event in ids {
        let owed = store.event(event).await.unwrap().unwrap().deliveries.remove(0);
        assert_eq!((owed.status, owed.attempts), (DeliveryStatus::Dead, 1), "{event}");
        assert_eq!(owed.reason, Some(DeadReason::Ambiguous));
    }
    drop(store);
    assert_sound(folder.path()).await;
}

fn rows(folder: &Path) -> [usize; 4] {
    let file = open_file(folder);
    ["wills", "said", "sends", "awaited"].map(|table| {
        let count = format!("SELECT count(*) FROM {table}");
        file.query_row(&count, [], |row| row.get(0)).unwrap()
    })
}

/// A status about what was sent to the CRM.
fn status(world: &World, event: EventId) -> NewEvent {
    let status_update = Some(StatusUpdate {
        event,
        destination: world.crm,
        at: world.now,
        sent_id: Some("wamid.1".to_owned()),
        status: ProviderStatus::Sent,
    });
    NewEvent { deliveries: Vec::new(), status_update, ..world.arrival() }
}

#[tokio::test]
async fn settled_cancelled_or_pruned_delivery_leaves_no_message_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(SqliteHarness::Lent(folder.path().to_owned())).await;
    for end in ["cancelled", "tried again"] {
        world.accept(world.arrival()).await;
        let claimed = world.claim_one(world.crm).await;
        let waits = NextStep::RetryAt(world.now);
        world.settle(world.will(&claimed, waits)).await.unwrap();
        assert_eq!(rows(folder.path()), [0, 0, 0, 1]);
        if end == "cancelled" {
            world.cancel(claimed.id, world.now).await.unwrap();
        } else {
            world.finish_due(world.crm, NextStep::Succeeded).await;
        }
        assert_eq!(rows(folder.path()), [0, 0, 0, 0], "{end}");
    }
    for number in 0..3 {
        let event = world.accept(world.arrival()).await;
        let claimed = world.claim_one(world.crm).await;
        let will = world.will(&claimed, PARKED);
        world.record_crash_outcome(will.clone()).await.unwrap();
        world.accept(status(&world, event)).await;
        assert_eq!(rows(folder.path()), [1, 1, number, 0]);
        match number {
            0 => {
                let sent = Some(SentMessage { id: Some("wamid.0".to_owned()), day: 1 });
                let settled = world.settle(Settlement { sent, ..will }).await.unwrap();
                assert_eq!(settled, SettleResult::Overruled(NextStep::Succeeded));
            }
            1 => {
                let held = surehook_core::store::HeldClaim {
                    delivery: claimed.id,
                    token: claimed.lease.token,
                };
                world.release(vec![held], world.now).await.unwrap();
            }
            _ => {
                let delete = surehook_core::store::ConfigChange::DeleteDestination(world.crm);
                world.change(vec![delete], world.now).await.unwrap();
            }
        }
        assert_eq!(rows(folder.path()), [0, 0, (number + 1).min(2), 0], "step {number}");
    }

    world.wait(DAY * 2);
    world.prune_all(DAY).await;

    assert_eq!(rows(folder.path()), [0, 0, 0, 0]);
}
