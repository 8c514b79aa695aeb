//! Self-calls: no webhook is sent to the server's own address.

use serde_json::json;

use super::fixture::{Receiver, TestServer, unused_address};

const ENDPOINTS: &str = "/v1/tenants/acme/endpoints";

fn port_of(server: &TestServer) -> &str {
    let (_, port) = server.address.rsplit_once(':').expect("a free port");
    port
}

#[tokio::test]
async fn the_servers_own_address_is_refused_as_endpoint() {
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        let (server, mut api) = TestServer::start_with_tenant(&["--listen", listen]).await;
        let receiver = Receiver::healthy().await;
        let endpoint = api.endpoint("acme", json!({"url": receiver.url()})).await;
        let endpoint = format!("{ENDPOINTS}/{}", endpoint["id"].as_str().expect("an id"));
        for host in [
            "127.0.0.1",
            "localhost",
            "LOCALHOST.",
            "hooks.localhost",
            "2130706433",
            "[::ffff:127.0.0.1]",
        ] {
            let fields = json!({"url": format!("http://{host}:{}/v1/tenants", port_of(&server))});
            for (method, path) in [("POST", ENDPOINTS), ("PATCH", &endpoint)] {
                let refused = api.call(method, path, Some(&fields)).await.expect(422);
                assert_eq!(refused["code"], "unsafe_destination", "{listen} {host}");
                assert_eq!(refused["errors"][0]["field"], "url", "{listen} {host}");
                let message = refused["errors"][0]["message"].as_str().expect("a message");
                assert!(
                    message.contains("this server itself listens on"),
                    "{message}"
                );
            }
        }
        // The server is not used as a token server either.
        let itself = format!("http://127.0.0.1:{}/token", port_of(&server));
        let auth =
            json!({"kind": "oauth2", "token_url": itself, "client_id": "a", "client_secret": "b"});
        let fields = json!({"url": receiver.url(), "auth": auth});
        let refused = api.call("POST", ENDPOINTS, Some(&fields)).await.expect(422);
        assert_eq!(refused["code"], "unsafe_destination", "{listen}");
        assert_eq!(refused["errors"][0]["field"], "auth.token_url", "{listen}");
        // Other servers on this machine still get webhooks.
        api.event("acme", json!({"type": "a", "payload": {}})).await;
        receiver.arrivals(1).await;
    }
}

#[tokio::test]
async fn an_endpoint_at_the_servers_new_address_receives_nothing() {
    for everywhere in [false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut server = TestServer::start_in(directory.path(), &[]);
        let address = unused_address();
        let mut api = server.api();
        api.tenant("acme").await;
        let url = format!("http://{address}/hook");
        api.endpoint("acme", json!({"url": url})).await;
        assert!(server.stop().success());

        let listen = match everywhere {
            true => format!("0.0.0.0:{}", address.port()),
            false => address.to_string(),
        };
        let server = TestServer::start_in(directory.path(), &["--listen", &listen]);
        let mut api = server.api();
        let delivery = api
            .deliver("acme", json!({"type": "a", "payload": {}}))
            .await;
        let shown = api.until_status("acme", &delivery, "failed").await;
        assert_eq!(shown["reason"], "unsafe_destination", "{shown}");
        assert_eq!(shown["attempt_count"], 1, "{shown}");
    }
}

#[tokio::test]
async fn a_one_off_request_to_the_servers_new_address_is_not_sent() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = TestServer::start_in(directory.path(), &[]);
    let address = unused_address();
    let mut api = server.api();
    api.tenant("acme").await;
    let request =
        json!({"url": format!("http://{address}/v1/tenants"), "payload": {}, "delay": "3s"});
    let answer = api.post("/v1/tenants/acme/requests", request).await;
    let delivery = answer.expect(202);
    let delivery = delivery["id"].as_str().expect("an id");
    assert!(server.stop().success());
    let server = TestServer::start_in(directory.path(), &["--listen", &address.to_string()]);
    let mut api = server.api();
    let shown = api.until_status("acme", delivery, "failed").await;
    assert_eq!(shown["reason"], "unsafe_destination", "{shown}");
    assert_eq!(shown["attempt_count"], 1, "{shown}");
    let request = json!({"url": format!("http://{address}/v1/tenants"), "payload": {}});
    let refused = api.post("/v1/tenants/acme/requests", request).await;
    assert_eq!(refused.expect(422)["code"], "unsafe_destination");
}
