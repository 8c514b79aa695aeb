//! A server behind an egress proxy with a password, and proxies that answer in every way.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::canaries::Canaries;
use super::client::Client;
use super::leak_scenario::secrets;
use super::recorded_server::{Program, Setting};
use super::search::Search;

/// Starts a proxy that gives these answers in turn. It reports each request, and true if it had a password.
async fn scripted_proxy(answers: Vec<String>) -> (SocketAddr, mpsc::UnboundedReceiver<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    let (asked, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for answer in answers.iter().cycle() {
            let Ok((mut socket, _)) = listener.accept().await else {
                return;
            };
            let mut head = [0; 16 * 1_024];
            let length = socket.read(&mut head).await.unwrap_or_default();
            let head = String::from_utf8_lossy(&head[..length]).to_lowercase();
            let _ = asked.send(head.contains("proxy-authorization: basic "));
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    (address, requests)
}

/// Sends through such a proxy, and searches the output.
pub(crate) async fn live(canaries: &Canaries, setting: Setting, root: &Path) {
    let said = canaries.plant("proxy answer");
    let head = format!("proxy-authenticate: {said}\r\ncontent-length: 5\r\n\r\n{said}");
    let answers = vec![
        format!("HTTP/1.1 403 {said}\r\n{head}"),
        format!("HTTP/1.1 502 {said}\r\n{head}"),
        format!("HTTP/1.1 200 {said}\r\n\r\n{said}"),
        format!("{said}\r\n\r\n"),
        format!("HTTP/1.1 407 {said}\r\n{head}"),
    ];
    let count = answers.len();
    let (proxy, mut requests) = scripted_proxy(answers).await;
    let proxy = format!("http://me:{}@{proxy}", canaries.plant("proxy password"));
    let mut program = Program::start(root, setting, secrets(canaries, Some(proxy)));
    let mut admin = Client::new(&program.address, canaries.plant("admin key"));
    admin
        .post("/v1/tenants", json!({"id": "acme"}))
        .await
        .expect(201);
    for number in 0..count {
        let endpoint = json!({
            "url": format!("http://127.0.0.1:8080/{number}?{}", canaries.plant("URL query")),
            "headers": {"Authorization": canaries.plant("authorization header")},
            "retry_policy": {"backoff": {"kind": "fixed", "interval": "10ms"}, "max_attempts": 3},
        });
        admin
            .post("/v1/tenants/acme/endpoints", endpoint)
            .await
            .expect(201);
    }
    let event = json!({"type": "a", "payload": canaries.plant("JSON payload")});
    admin
        .post("/v1/tenants/acme/events", event)
        .await
        .expect(202);
    for _ in 0..2 * count {
        let with_password = requests.recv().await.expect("a running proxy");
        assert!(with_password, "the proxy was asked without the password");
    }
    let mut search = Search::default();
    search.search_metrics(canaries, &mut admin).await;
    program.stop();
    search.words(canaries, &program);
    search.problems(canaries, &admin);
    search.store(canaries, &program, "behind a proxy");
    search.assert_clean();
}
