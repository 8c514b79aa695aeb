//! The list of nodes on a store that one process owns.

use serde_json::json;

use crate::fixture::TestServer;

#[tokio::test]
async fn a_single_node_lists_itself() {
    let server = TestServer::without_tenants().await;
    let nodes = server.get("/v1/nodes").await.ok(200);
    assert_eq!(nodes["next_cursor"], json!(null));
    let [node] = &nodes["data"].as_array().expect("a list")[..] else {
        panic!("{nodes}");
    };
    assert_eq!(node["number"], 1);
    assert_eq!(node["role"], "all");
    assert_eq!(node["state"], "ok");
    assert_eq!(node["is_self"], true);
    assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(node["shards"], 256);
    assert_eq!(node["lease"], json!(null));
    let refused = server.get("/v1/nodes?limit=1").await;
    assert_eq!(refused.status, 422, "{}", refused.json);
}

#[tokio::test]
async fn the_nodes_have_a_page() {
    let server = TestServer::start().await;
    let page = server.page("/dashboard/nodes").await;
    page.says("Nodes")
        .says("256")
        .says(env!("CARGO_PKG_VERSION"));
}
