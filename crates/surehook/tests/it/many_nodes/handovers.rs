//! Nodes join, leave, crash and lose their database, under load.

use std::{collections::HashMap, time::Duration};

use rustix::process::{Signal, kill_process};

use super::{TestCluster, settings_with_destinations, wait_until_shared};
use crate::{
    guarantees::Senders,
    support::{
        WAIT_LIMIT, eventually,
        gateway::Gateway,
        sink::{Reply, Sink},
        tools::faketime_library,
    },
};

const DESTINATIONS: usize = 4;

/// How often each event arrived at each destination.
fn count_arrivals(sink: &Sink) -> HashMap<(String, String), usize> {
    let mut counts = HashMap::new();
    for request in sink.requests() {
        *counts.entry((request.id().to_owned(), request.path)).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn heavy_sigterm_hands_lanes_over_and_loses_and_repeats_nothing() {
    let answer = Reply::status(200).after(Duration::from_millis(20));
    let sink = Sink::with_replies([answer]).await;
    let settings = settings_with_destinations(&sink.origin(), DESTINATIONS, "");
    let Some(mut cluster) = TestCluster::start(2, &settings).await else { return };
    let senders = Senders::start(4, cluster.nodes[0].url("/in/in"));
    senders.answered(50).await;

    // The other node takes all lanes; then one joins and takes its share.
    let exit = cluster.nodes[1].terminate().await;
    assert_eq!(exit.code(), Some(0), "{}", cluster.nodes[1].log());
    wait_until_shared(&[&cluster.nodes[0]]).await;
    cluster.join().await;
    wait_until_shared(&[&cluster.nodes[0], &cluster.nodes[2]]).await;
    let report = cluster.nodes[0].nodes_report().await;
    let handovers = report["handovers"].as_array().unwrap();
    let unplanned = handovers.iter().filter(|handover| handover["is_planned"] == false);
    assert_eq!(unplanned.count(), 0, "{report}");
    // And so does the one that received everything.
    senders.set_address(cluster.nodes[2].url("/in/in"));
    assert_eq!(cluster.nodes[0].terminate().await.code(), Some(0), "{}", cluster.nodes[0].log());
    let before = senders.answers();
    senders.answered(before + 50).await;
    let answered = senders.finish().await;

    cluster.nodes[2].wait_for_count("succeeded", answered.len() * DESTINATIONS).await;
    let arrivals = count_arrivals(&sink);
    assert_eq!(arrivals.len(), answered.len() * DESTINATIONS);
    let repeated: Vec<_> = arrivals.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
}

#[tokio::test]
async fn heavy_lanes_of_a_killed_and_of_a_suspended_node_are_taken_over() {
    let sink = Sink::ok().await;
    let settings = settings_with_destinations(&sink.origin(), DESTINATIONS, "");
    let Some(mut cluster) = TestCluster::start(3, &settings).await else { return };
    let senders = Senders::start(2, cluster.nodes[0].url("/in/in"));
    senders.answered(20).await;

    cluster.nodes[1].kill9();
    let suspended = cluster.nodes[2].pid();
    kill_process(suspended, Signal::STOP).unwrap();
    // Both leases end, and everything is delivered by the node that is left.
    wait_until_shared(&[&cluster.nodes[0]]).await;
    let before = senders.answers();
    senders.answered(before + 20).await;
    kill_process(suspended, Signal::CONT).unwrap();
    wait_until_shared(&[&cluster.nodes[0], &cluster.nodes[2]]).await;
    let answered = senders.finish().await;

    cluster.nodes[2].wait_for_count("succeeded", answered.len() * DESTINATIONS).await;
    assert_eq!(count_arrivals(&sink).len(), answered.len() * DESTINATIONS);
    assert!(answered.values().all(|events| events.len() == 1), "a key became two events");
}

#[tokio::test]
async fn heavy_crash_of_the_database_loses_nothing_and_is_reported() {
    let sink = Sink::ok().await;
    let settings = settings_with_destinations(&sink.origin(), 1, "");
    let Some(mut cluster) = TestCluster::start(2, &settings).await else { return };
    let event = cluster.nodes[0].post_accepted("in", r#"{"id":"before"}"#).await;

    cluster.server.kill9();

    for node in &cluster.nodes {
        eventually(WAIT_LIMIT, || async {
            // Sessions of the lost server end when they find out.
            let answer = node.send_webhook("in", &[], r#"{"id":"during"}"#).await;
            (answer.status == 503 && !answer.header("retry-after").is_empty()).then_some(())
        })
        .await;
        let ready = readiness_code(node, "store_unreachable").await;
        assert!(!ready.contains("postgres@"), "{ready}");
    }
    cluster.server.start_again().await;
    for node in &cluster.nodes {
        eventually(WAIT_LIMIT, || async {
            let response = node.request(http::Method::GET, "/readyz", &[], "").await;
            (response.status == 200).then_some(())
        })
        .await;
        assert_eq!(node.event(&event).await["id"], event.as_str());
    }
    cluster.nodes[1].send_webhook("in", &[], r#"{"id":"during"}"#).await.expect(200);
    cluster.nodes[0].wait_for_count("succeeded", 2).await;
}

async fn readiness_code(node: &Gateway, code: &str) -> String {
    eventually(WAIT_LIMIT, || async {
        let response = node.request(http::Method::GET, "/readyz", &[], "").await;
        (response.status == 503 && response.code() == code).then(|| response.text())
    })
    .await
}

/// What one node makes due now must not be due minutes later for another.
#[tokio::test]
async fn node_with_a_wrong_clock_delivers_and_is_delivered_to_at_once() {
    let sink = Sink::ok().await;
    let settings = settings_with_destinations(&sink.origin(), DESTINATIONS, "");
    for skew in ["-7m", "+7m"] {
        let Some(mut cluster) = TestCluster::start(1, &settings).await else { return };
        let wrong = cluster.builder(1).env("LD_PRELOAD", &faketime_library());
        let wrong = wrong.env("FAKETIME", skew).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        cluster.nodes.push(wrong.start().await);
        cluster.wait_until_shared().await;
        let before = sink.count();

        for (number, node) in cluster.nodes.iter().enumerate() {
            node.post_accepted("in", format!(r#"{{"id":"{skew}{number}"}}"#)).await;
        }

        sink.wait_for_requests(before + 2 * DESTINATIONS).await;
        let database = cluster.nodes[1].nodes_report().await["database"].take();
        let offset = database["clock_offset_ms"].as_i64().unwrap();
        let expected = if skew == "-7m" { 420_000 } else { -420_000 };
        assert!((offset - expected).abs() < 60_000, "{database}");
        let log = cluster.nodes[1].log();
        assert!(log.contains("differs from the database's"), "{log}");
    }
}
