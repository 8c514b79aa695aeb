//! The list of nodes: every node returns the same one, and a slow node is marked.

use posthaste_testbed::TcpProxy;

use crate::fixture::TestCluster;

#[tokio::test(flavor = "multi_thread")]
async fn every_node_lists_all_nodes() {
    let cluster = TestCluster::pair_with(["all", "api"], &[]).await;
    for asked in 0..2 {
        // A node knows its round trips with its second heartbeat.
        let has_measured = |nodes: &serde_json::Value| {
            let nodes = nodes["data"].as_array().expect("a list");
            nodes
                .iter()
                .all(|node| node["round_trip_ms"]["heartbeat"].is_u64())
        };
        let nodes = cluster.api(asked).until("/v1/nodes", has_measured).await;
        let nodes = nodes["data"].as_array().expect("a list");
        assert_eq!(nodes.len(), 2);
        for (index, node) in nodes.iter().enumerate() {
            let pid = cluster.nodes[index].pid();
            let name = node["name"].as_str().expect("a name");
            assert!(name.ends_with(&format!("/{pid}")), "{name}");
            assert_eq!(node["is_self"], index == asked);
            assert_eq!(node["state"], "ok", "{node}");
            assert_eq!(node["role"], ["all", "api"][index]);
            assert_eq!(node["shards"], [256, 0][index]);
            assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
            assert_eq!(node["lease"], "6s");
            assert!(node["clock_offset_ms"].is_i64(), "{node}");
            assert!(node["started_at"].is_string() && node["last_heartbeat_at"].is_string());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_node_is_listed_and_a_change_through_it_is_answered_in_time() {
    let mut cluster = TestCluster::pair_with(["all", "api"], &[]).await;
    let proxy = TcpProxy::to(cluster.database.address());
    let slow = cluster.join_by(&cluster.database.url_via_proxy(&proxy), "all");
    cluster.nodes[slow].until_ready().await;
    cluster.wait_shared_by(2).await;
    let mut api = cluster.api(0);
    api.tenant("acme").await;
    let fields = serde_json::json!({"url": "http://127.0.0.1:9999/hook"});
    let owned = cluster.endpoint_of(slow, &fields).await;
    // Opens the connections and prepares the statements, as in a node that has run for a while.
    for verb in ["pause", "resume"] {
        let path = format!("/v1/tenants/acme/endpoints/{owned}/{verb}");
        cluster
            .api(slow)
            .call("POST", &path, None)
            .await
            .expect(200);
    }
    proxy.delay(300..=400, 7);
    let path = format!("/v1/tenants/acme/endpoints/{owned}");
    let began = std::time::Instant::now();
    let paused = cluster
        .api(slow)
        .call("POST", &format!("{path}/pause"), None)
        .await;
    println!("answered {} after {:?}", paused.status, began.elapsed());
    assert!(began.elapsed().as_secs() < 14, "{:?}", began.elapsed());
    assert!(
        paused.status == 200 || paused.status == 503 && paused.text.contains("may have"),
        "{}",
        paused.text
    );
    let has_moved = |nodes: &serde_json::Value| {
        nodes["data"][2]["shards"] == 0 && nodes["data"][0]["shards"] == 256
    };
    let listed = api.until("/v1/nodes", has_moved).await;
    assert_eq!(listed["data"][2]["state"], "slow", "{listed}");
    let log = cluster.nodes[slow].log().join("\n");
    assert!(log.contains("this node gives shards away"), "{log}");
}
