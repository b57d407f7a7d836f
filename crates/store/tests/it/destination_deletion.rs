//! Deleting a destination with hundreds of thousands of unfinished deliveries.

use std::time::{Duration, Instant};

use surehook_core::{
    decision::EventDecisionKind,
    delivery::{ClaimProof, state::DeliveryStatus},
    lane::LaneId,
    store::{AdminStore, ConfigChange, CoordinationStore, DeliveryStore},
};
use surehook_store::SqliteStore;
use surehook_types::ids::{EventId, NodeId};

use crate::harness::{assert_consistent, fixture_in, open, open_file};

/// Number of unfinished deliveries; a third of them are in ordering queues.
const BACKLOG: i64 = 300_000;

// Every third delivery is in an ordering queue of a hundred, whose first is pending.
const EVENTS: &str = "
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 - 1)
    INSERT INTO events (id, request_id, source, received_at, body_bytes, fingerprint)
    SELECT unhex(printf('%012x7000800000%010x', 1790000000000 + i / 7, i)),
           unhex(printf('%012x7000800000%010x', 1790000000000 + i / 7, i)),
           (SELECT seq FROM sources WHERE name = 'shop'), 1790000000000 + i / 7, 2, zeroblob(32)
      FROM n";
const DELIVERIES: &str = "
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 - 1)
    INSERT INTO deliveries (id, event_id, destination, state, cause, created_at, due_at,
                            order_key, order_seq)
    SELECT unhex(printf('%012x7000800000%010x', 1790000000000 + i / 7, i)),
           unhex(printf('%012x7000800000%010x', 1790000000000 + i / 7, i)),
           (SELECT seq FROM destinations WHERE name = 'crm'),
           iif(i % 3 = 0 AND i >= 3000, 'held', 'pending'), 'ingest', 1790000000000 + i / 7,
           iif(i % 3 = 0 AND i >= 3000, NULL, 1790000000000 + (i * 7919) % 1000003),
           iif(i % 3 = 0, 'line-' || (i / 3 % 1000), NULL), iif(i % 3 = 0, i, NULL)
      FROM n";
const COUNT: &str = "
    INSERT OR REPLACE INTO counters (name, value)
    SELECT 'status:' || state, count(*) FROM deliveries GROUP BY state
     UNION ALL SELECT 'events', count(*) FROM events";

fn fill(folder: &std::path::Path) {
    let mut file = open_file(folder);
    let tx = file.transaction().unwrap();
    for sql in [EVENTS, DELIVERIES] {
        tx.execute(sql, [BACKLOG]).unwrap();
    }
    tx.execute(COUNT, []).unwrap();
    tx.commit().unwrap();
}

async fn status_of(store: &SqliteStore, number: i64) -> (DeliveryStatus, usize) {
    let millis = u128::try_from(1_790_000_000_000 + number / 7).unwrap();
    let tail = (0x7000_8000_u128 << 48) | u128::try_from(number).unwrap();
    let id = EventId::from_uuid(uuid::Uuid::from_u128((millis << 80) | tail));
    let detail = store.find_event(id).await.unwrap().unwrap();
    let recorded = detail
        .decisions
        .iter()
        .filter(|decision| decision.kind == EventDecisionKind::Cancelled)
        .count();
    (detail.deliveries[0].status, recorded)
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "prints the times, which depend on the machine")]
async fn heavy_deleting_a_destination_with_a_large_backlog_cancels_every_delivery() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = fixture_in(folder.path()).await;
    let (crm, now) = (fixture.crm, fixture.now);
    drop(fixture);
    fill(folder.path());
    let store = open(folder.path());

    let started_at = Instant::now();
    let version = store.load_configuration_version().await.unwrap();
    store.change(vec![ConfigChange::DeleteDestination(crm)], version, now).await.unwrap();
    println!("deletion: {:?}", started_at.elapsed());

    let mut store = store;
    let mut slices = Vec::new();
    loop {
        if slices.len() % 500 == 100 {
            drop(store);
            store = open(folder.path());
        }
        let started_at = Instant::now();
        if !store.cancel_for_deleted_destinations().await.unwrap() {
            break;
        }
        slices.push(started_at.elapsed());
        let counts = store.counts().await.unwrap().by_status;
        assert_eq!(
            counts.values().sum::<u64>(),
            BACKLOG.cast_unsigned(),
            "each delivery is counted once"
        );
        if slices.len() % 100 == 0 {
            let owned =
                store.acquire_lanes(NodeId::new(now, 1), vec![LaneId::whole(crm)]).await.unwrap();
            let proof = ClaimProof { epoch: owned[0].epoch, number: 1 };
            assert!(store.claim_due(crm, now, proof, 10).await.unwrap().claimed.is_empty());
        }
    }
    let all: Duration = slices.iter().sum();
    slices.sort_unstable();
    let (many, middle) = (slices.len(), slices[slices.len() / 2]);
    println!("{many} slices in {all:?}: median {middle:?}, maximum {:?}", slices[many - 1]);

    for number in [0, 1, 3, 2999, 3000, 3001, BACKLOG - 2, BACKLOG - 1] {
        assert_eq!(
            status_of(&store, number).await,
            (DeliveryStatus::Cancelled, 1),
            "number {number}"
        );
    }
    assert_eq!(
        store.counts().await.unwrap().by_status[&DeliveryStatus::Cancelled],
        BACKLOG.cast_unsigned()
    );
    drop(store);
    assert_consistent(folder.path()).await;
}
