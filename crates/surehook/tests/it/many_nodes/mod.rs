//! Several nodes on one PostgreSQL: real processes, a real server.

mod commands;
mod database_proxy;
mod drill;
mod effects;
mod handovers;
mod shards;

use serde_json::Value;
use surehook_test_servers::TestPostgres;

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, GatewayBuilder},
};

/// Nodes on a PostgreSQL server of their own.
struct TestCluster {
    nodes: Vec<Gateway>,
    settings: String,
    // Dropped last: nodes stop before their server does.
    server: TestPostgres,
}

impl TestCluster {
    /// Starts a server and this many nodes together; `None` if the test is to be skipped.
    async fn start(nodes: usize, settings: &str) -> Option<Self> {
        let server = TestPostgres::start_with(&[]).await?;
        let mut cluster = Self { nodes: Vec::new(), settings: settings.to_owned(), server };
        let starting = (0..nodes).map(|number| cluster.builder(number).start());
        cluster.nodes = futures_util::future::join_all(starting).await;
        cluster.wait_until_shared().await;
        Some(cluster)
    }

    fn builder(&self, number: usize) -> GatewayBuilder {
        let settings = format!("node_name = \"node-{number}\"\n{}", self.settings);
        Gateway::builder().database(&self.server.url()).settings(&settings)
    }

    /// Starts another node.
    async fn join(&mut self) {
        let number = self.nodes.len();
        self.nodes.push(self.builder(number).start().await);
    }

    /// Waits until all nodes run, each lane has an owner, and none has more than its share.
    async fn wait_until_shared(&self) {
        wait_until_shared(&self.nodes.iter().collect::<Vec<_>>()).await;
    }

    /// The node that owns the lane of a destination, and one that does not.
    async fn find_owner(&self, destination: &str) -> (usize, usize) {
        let report = self.nodes[0].nodes_report().await;
        let lanes = report["lanes"].as_array().unwrap();
        let lane = lanes.iter().find(|lane| lane["destination"] == destination).unwrap();
        let node = report["nodes"].as_array().unwrap();
        let node = node.iter().find(|node| node["id"] == lane["owner"]).unwrap();
        let is_owner = |gateway: &Gateway| node["address"] == gateway.address().to_string();
        let owner = self.nodes.iter().position(is_owner).unwrap();
        let other = self.nodes.iter().position(|gateway| !is_owner(gateway)).unwrap();
        (owner, other)
    }
}

async fn wait_until_shared(nodes: &[&Gateway]) {
    eventually(WAIT_LIMIT, || async {
        let report = nodes[0].nodes_report().await;
        is_shared(&report, nodes.len()).then_some(())
    })
    .await;
}

fn is_shared(report: &Value, nodes: usize) -> bool {
    let rows = report["nodes"].as_array().unwrap();
    let lanes = report["lanes"].as_array().unwrap();
    let alive: Vec<_> = rows.iter().filter(|node| node["state"] == "alive").collect();
    let share = lanes.len().div_ceil(nodes);
    alive.len() == nodes
        && lanes.iter().all(|lane| lane["owner"].is_string())
        && alive.iter().all(|node| node["lanes"].as_u64().unwrap() <= share as u64)
}

/// A source `in` with keys that the operator chose, routed to this many destinations `out-0`, `out-1`, ….
fn settings_with_destinations(url: &str, destinations: usize, more: &str) -> String {
    let mut settings =
        "[[sources]]\nname = \"in\"\nverify = \"none\"\nkeys = [\"pointer:/id\"]\n".to_owned();
    for number in 0..destinations {
        settings.push_str(&format!(
            "[[destinations]]\nname = \"out-{number}\"\nurl = \"{url}/{number}\"\n{more}\n\
             [[routes]]\nfrom = \"in\"\nto = \"out-{number}\"\n"
        ));
    }
    settings
}
