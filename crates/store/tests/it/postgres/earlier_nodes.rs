//! Nodes of the version before shards beside nodes of this one: they know only the table `lanes`.

use surehook_core::lane::LaneId;
use surehook_store::conformance::StoreFixture;
use surehook_types::ids::NodeId;
use tokio_postgres::Client;

use super::harness::PostgresHarness;

/// The statements of the earlier version.
const TAKE_LANE: &str = "
    INSERT INTO lanes (destination, node, last_node, epoch, since, is_taken_over)
    VALUES ($1, $2, $2, $3, surehook_now(), 0)
    ON CONFLICT (destination) DO UPDATE
       SET node = excluded.node, last_node = excluded.last_node, epoch = excluded.epoch,
           since = excluded.since, is_taken_over = 1
    RETURNING is_taken_over";
const RELEASE_LANE: &str = "
    UPDATE lanes SET node = NULL, since = surehook_now() WHERE node = $1 AND destination = $2";
const OWNER: &str = "SELECT node FROM lanes WHERE destination = $1";

/// A node of the earlier version, as far as its lane is concerned.
struct EarlierNode {
    client: Client,
    id: NodeId,
    lane: i64,
}

impl EarlierNode {
    async fn take(&self, epoch: i64) -> Result<(), tokio_postgres::Error> {
        let id = self.id.uuid().into_bytes().to_vec();
        self.client.query_one(TAKE_LANE, &[&self.lane, &id, &epoch]).await.map(drop)
    }

    async fn release(&self) {
        let id = self.id.uuid().into_bytes().to_vec();
        assert_eq!(self.client.execute(RELEASE_LANE, &[&id, &self.lane]).await.unwrap(), 1);
    }

    async fn find_owner(&self) -> Option<Vec<u8>> {
        self.client.query_one(OWNER, &[&self.lane]).await.unwrap().get(0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_the_earlier_version_and_of_this_one_see_the_same_owners() {
    let harness = PostgresHarness::new();
    let client = harness.client().await;
    let fixture = StoreFixture::new(harness).await;
    let crm = fixture.crm.uuid().into_bytes().to_vec();
    let seq = client.query_one("SELECT seq FROM destinations WHERE id = $1", &[&crm]).await;
    let earlier =
        EarlierNode { client, id: fixture.add_node("earlier").await, lane: seq.unwrap().get(0) };
    let node = fixture.load_nodes().await.unwrap().nodes[0].id;
    let whole = LaneId::whole(fixture.crm);
    let owner = async || {
        let report = fixture.load_nodes().await.unwrap();
        report.lanes.iter().find(|row| row.lane == whole).and_then(|row| row.owner)
    };
    let first = node.uuid().into_bytes().to_vec();
    assert_eq!(earlier.find_owner().await, Some(first));

    fixture.release_lanes(node, vec![whole]).await.unwrap();
    assert_eq!(earlier.find_owner().await, None);
    earlier.take(1000).await.unwrap();
    assert_eq!(owner().await, Some(earlier.id));
    assert!(fixture.acquire_lanes(node, vec![whole]).await.unwrap().is_empty());

    earlier.release().await;
    assert_eq!(owner().await, None);
    let owned = fixture.acquire_lanes(node, vec![whole]).await.unwrap();
    assert!(owned[0].taken_over_after.is_some());

    // It knows no shards, so it gets none.
    fixture.release_lanes(node, vec![whole]).await.unwrap();
    let halves: Vec<LaneId> = LaneId::all(fixture.crm, 2).collect();
    let owned = fixture.acquire_lanes(node, halves.clone()).await.unwrap();
    assert_eq!(owned.len(), 2);
    let refused = earlier.take(2000).await.unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("several lanes"), "{refused:?}");
    let owned_again = fixture.acquire_lanes(node, halves).await.unwrap();
    assert_eq!(owned_again, owned);
}
