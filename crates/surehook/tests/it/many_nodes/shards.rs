//! A destination with several lanes on several nodes.

use std::collections::HashSet;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{TestCluster, settings_with_destinations};
use crate::support::{
    WAIT_LIMIT, eventually,
    sink::{Reply, Sink},
};

/// The shards of the destination that have an owner, and their owners.
fn owned_shards(report: &Value) -> Vec<(u64, &str)> {
    let lanes = report["lanes"].as_array().unwrap().iter();
    lanes.filter_map(|lane| Some((lane["shard"].as_u64()?, lane["owner"].as_str()?))).collect()
}

#[tokio::test]
async fn shards_deliver_on_all_nodes_within_the_limits_of_their_destination() {
    let (open, gate) = watch::channel(false);
    let sink = Sink::with_replies([Reply::status(200).behind(gate)]).await;
    let settings = settings_with_destinations(&sink.origin(), 1, "concurrency = 4\nshards = 4");
    let Some(cluster) = TestCluster::start(2, &settings).await else { return };
    let report = cluster.nodes[0].nodes_report().await;
    let owned = owned_shards(&report);
    assert_eq!(owned.iter().map(|(shard, _)| *shard).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let owners: HashSet<&str> = owned.iter().map(|(_, owner)| *owner).collect();
    assert_eq!(owners.len(), 2, "{report}");

    // Each lane has one of the four places, and is given events until it has used it.
    let mut sent = 0;
    while sink.count() < 4 {
        assert!(sent < 1000, "a lane starts nothing: {report}");
        let node = &cluster.nodes[sent % 2];
        node.post_accepted("in", format!(r#"{{"id":"{sent}"}}"#)).await;
        sent += 1;
    }
    for node in &cluster.nodes {
        let metrics = node.metrics().await;
        let running = r#"surehook_deliveries_inflight{destination="out-0"} 2"#;
        assert!(metrics.contains(running), "{metrics}");
    }
    let printed = cluster.nodes[0].cli(&["nodes", "--all"]).await;
    assert!(printed.stdout.contains("SHARD"), "{printed:?}");

    // One node is asked, and all lanes pause. What they have begun ends.
    cluster.nodes[1].post("/destinations/out-0/pause", &json!({})).await.expect(200);
    open.send(true).unwrap();
    for node in &cluster.nodes {
        node.wait_for_count("succeeded", 4).await;
        node.wait_for_count("held", sent - 4).await;
    }
    assert_eq!(sink.count(), 4);

    // Lanes of another number begin as the old ones were: paused.
    let destination = json!({
        "name": "out-0", "url": format!("{}/0", sink.origin()), "concurrency": 4, "shards": 2,
    });
    cluster.nodes[0].put("/destinations/out-0", &destination).await.expect(200);
    eventually(WAIT_LIMIT, || async {
        let report = cluster.nodes[1].nodes_report().await;
        (owned_shards(&report).len() == 2).then_some(())
    })
    .await;
    assert!(cluster.nodes[1].destination_state("out-0").await["paused"].as_bool().unwrap());
    assert_eq!(sink.count(), 4);
    let too_slow = json!({ "rate": "1/s" });
    let refused = cluster.nodes[0].post("/destinations/out-0/resume", &too_slow).await;
    assert!(refused.expect(422).text().contains("burst 2"));

    cluster.nodes[0].post("/destinations/out-0/resume", &json!({})).await.expect(200);
    let requests = sink.wait_for_requests(sent).await;
    cluster.nodes[1].wait_for_count("succeeded", sent).await;
    let arrived: HashSet<&str> = requests.iter().map(|request| request.id()).collect();
    assert_eq!((requests.len(), arrived.len()), (sent, sent), "each arrives once");
}
