//! Crash outcomes, statuses and message ids: durable at once, and removed with their delivery.

use std::{path::Path, time::Duration};

use surehook_core::{
    delivery::state::DeliveryStatus,
    event::{NewEvent, ProviderStatus, StatusUpdate},
    store::{AdminStore, NextStep, SentMessage, SettleResult, Settlement},
};
use surehook_retry::DeadReason;
use surehook_store::conformance::StoreFixture;
use surehook_types::ids::EventId;

use crate::{
    child_process,
    harness::{assert_consistent, fixture_in, open, open_file},
};

const DEAD_AMBIGUOUS: NextStep = NextStep::Dead(DeadReason::Ambiguous);
const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test]
async fn killed_process_does_not_resend_messages_that_may_have_been_sent() {
    if let Some(folder) = child_process::child_folder() {
        let fixture = fixture_in(folder).await;
        loop {
            let (event, claimed) = fixture.accept_and_claim().await;
            fixture
                .record_crash_outcome(fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS))
                .await
                .unwrap();
            // From here on the message may have been sent.
            child_process::report(&event.to_string());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "sent_messages::killed_process_does_not_resend_messages_that_may_have_been_sent";
    let mut child = child_process::start(name, folder.path().as_os_str(), &[]);

    let mut lines = child_process::reported_lines(child.stdout.take().unwrap());
    let mut sent: Vec<String> = lines.by_ref().take(50).collect();
    child.kill().unwrap();
    sent.extend(lines);
    child.wait().unwrap();

    // The last line may be incomplete.
    let ids: Vec<EventId> = sent.iter().filter_map(|text| text.parse().ok()).collect();
    assert!(ids.len() >= 50, "{sent:?}");
    let store = open(folder.path());
    for event in ids {
        let delivery = store.find_event(event).await.unwrap().unwrap().deliveries.remove(0);
        assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Dead, 1), "{event}");
        assert_eq!(delivery.reason, Some(DeadReason::Ambiguous));
    }
    drop(store);
    assert_consistent(folder.path()).await;
}

fn rows(folder: &Path) -> [usize; 4] {
    let file = open_file(folder);
    ["wills", "said", "sends", "awaited"].map(|table| {
        let count = format!("SELECT count(*) FROM {table}");
        file.query_row(&count, [], |row| row.get(0)).unwrap()
    })
}

/// A status about the message that `event` sent to the CRM.
fn status_event(fixture: &StoreFixture, event: EventId) -> NewEvent {
    let status_update = Some(StatusUpdate {
        event,
        destination: fixture.crm,
        at: fixture.now,
        sent_id: Some("wamid.1".to_owned()),
        status: ProviderStatus::Sent,
    });
    NewEvent { deliveries: Vec::new(), status_update, ..fixture.new_event() }
}

#[tokio::test]
async fn settled_cancelled_or_pruned_delivery_leaves_no_message_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut fixture = fixture_in(folder.path()).await;
    for end in ["cancelled", "tried again"] {
        let (_, claimed) = fixture.accept_and_claim().await;
        let waits = NextStep::RetryAt(fixture.now);
        fixture.settle(fixture.ambiguous_settlement(&claimed, waits)).await.unwrap();
        assert_eq!(rows(folder.path()), [0, 0, 0, 1]);
        if end == "cancelled" {
            fixture.cancel(claimed.id, fixture.now).await.unwrap();
        } else {
            fixture.finish_due(fixture.crm, NextStep::Succeeded).await;
        }
        assert_eq!(rows(folder.path()), [0, 0, 0, 0], "{end}");
    }
    for number in 0..3 {
        let (event, claimed) = fixture.accept_and_claim().await;
        let outcome = fixture.ambiguous_settlement(&claimed, DEAD_AMBIGUOUS);
        fixture.record_crash_outcome(outcome.clone()).await.unwrap();
        fixture.accept(status_event(&fixture, event)).await;
        assert_eq!(rows(folder.path()), [1, 1, number, 0]);
        match number {
            0 => {
                let sent = Some(SentMessage { id: Some("wamid.0".to_owned()), day: 1 });
                let settled = fixture.settle(Settlement { sent, ..outcome }).await.unwrap();
                assert_eq!(settled, SettleResult::Overruled(NextStep::Succeeded));
            }
            1 => {
                let held =
                    surehook_core::store::HeldClaim { delivery: claimed.id, proof: claimed.proof };
                fixture.release(vec![held], fixture.now).await.unwrap();
            }
            _ => {
                let delete = surehook_core::store::ConfigChange::DeleteDestination(fixture.crm);
                fixture.change(vec![delete], fixture.now).await.unwrap();
            }
        }
        assert_eq!(rows(folder.path()), [0, 0, (number + 1).min(2), 0], "step {number}");
    }

    fixture.wait(DAY * 2);
    fixture.prune_all(DAY).await;

    assert_eq!(rows(folder.path()), [0, 0, 0, 0]);
}
