//! Token requests follow the same rules as deliveries: a token server cannot lead to a forbidden address, and without a
//! token the endpoint is not called.

use std::net::IpAddr;

use serde_json::json;

use super::authority::{Authority, VALID};
use super::dns::{addresses, parsed};
use super::docs::Table;
use super::namespace::inside;
use super::outside::Behaviour;
use super::program::{ExpectedOutcome, PrivateNetwork, once};

/// Time limit for token servers that never answer.
const SHORT: &str = "2s";
const LONG: &str = "30s";
const TOKEN: &str = r#"{"access_token":"abc","token_type":"Bearer","expires_in":3600}"#;

struct Case {
    what: &'static str,
    /// Address of the token server's name.
    leads_to: String,
    conduct: Option<Behaviour>,
    timeout: &'static str,
    end: ExpectedOutcome,
}

/// Reads a token request and answers like this.
macro_rules! answering {
    ($answer:expr) => {
        Some(Behaviour::Secured(|mut line| {
            Box::pin(async move {
                line.read_request().await?;
                line.say($answer).await?;
                line.gone().await;
                None
            })
        }))
    };
}

fn server(nth: usize) -> String {
    format!("login-{nth}.customer.com")
}

fn place(nth: usize) -> IpAddr {
    parsed(&format!("45.64.0.{nth}"))[0]
}

fn destination(nth: usize) -> IpAddr {
    parsed(&format!("45.65.0.{nth}"))[0]
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut add = |what, leads_to: Option<&str>, conduct, end| {
        let here = place(cases.len()).to_string();
        let leads_to = leads_to.map_or(here.clone(), |list| list.replace("HERE", &here));
        cases.push(Case {
            what,
            leads_to,
            conduct,
            timeout: match end == ExpectedOutcome::Exhausted("timeout") {
                true => SHORT,
                false => LONG,
            },
            end,
        });
    };
    add(
        "returns a token",
        None,
        answering!(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{TOKEN}",
            TOKEN.len()
        )),
        ExpectedOutcome::Delivered,
    );
    add(
        "resolves to a private address",
        Some("10.68.0.1"),
        None,
        ExpectedOutcome::Unsafe,
    );
    add(
        "resolves to a public and a metadata address",
        Some("HERE 169.254.169.254"),
        None,
        ExpectedOutcome::Unsafe,
    );
    add(
        "redirects to a private address (302)",
        None,
        answering!(
            "HTTP/1.1 302 Found\r\nlocation: https://10.68.0.2/\r\ncontent-length: 0\r\n\r\n"
        ),
        ExpectedOutcome::Exhausted("unknown"),
    );
    let stranger = Authority::named("Unknown Trust");
    let config = stranger.receiver(&server(4), VALID);
    add(
        "has a certificate of an unknown authority",
        None,
        Some(Behaviour::Certified(config)),
        ExpectedOutcome::Exhausted("tls"),
    );
    add(
        "does not answer",
        None,
        answering!(""),
        ExpectedOutcome::Exhausted("timeout"),
    );
    add(
        "sends an endless response",
        None,
        Some(Behaviour::Secured(|mut line| {
            Box::pin(async move {
                line.read_request().await?;
                let head = "HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n{\"x\":\"";
                line.say(head).await?;
                while line.say("z".repeat(1 << 16)).await.is_some() {}
                None
            })
        })),
        ExpectedOutcome::Exhausted("unknown"),
    );
    cases
}

#[test]
fn token_requests_follow_the_same_egress_rules() {
    inside(
        "tokens::token_requests_follow_the_same_egress_rules",
        || async {
            let mut network = PrivateNetwork::start().await;
            network.api.tenant("acme").await;
            let auth = |url: &str| json!({"kind": "oauth2", "token_url": url, "client_id": "us", "client_secret": "s3cret"});
            let inner = "https://169.254.169.254/latest/api/token";
            let asked = once("https://hooks.customer.com/", json!({"auth": auth(inner)}));
            let refused = network.api.post("/v1/tenants/acme/endpoints", asked).await;
            assert_eq!(refused.status, 422, "{}", refused.body);
            assert_eq!(refused.body["code"], "unsafe_destination");

            let cases = cases();
            let mut endpoints = Vec::new();
            for (nth, case) in cases.iter().enumerate() {
                network
                    .names
                    .set_replies(&server(nth), &[addresses(&case.leads_to)]);
                let name = format!("hooks-{nth}.customer.com");
                let there = addresses(&destination(nth).to_string());
                network.names.set_replies(&name, &[there]);
                if let Some(conduct) = &case.conduct {
                    network.outside.set_behaviour(place(nth), conduct.clone());
                }
                let auth = auth(&format!("https://{}/token", server(nth)));
                let fields = json!({"timeout": case.timeout, "auth": auth});
                let url = format!("https://{name}/hook");
                endpoints.push(network.endpoint("acme", &url, fields).await);
            }
            let ended = network.deliver("acme", "one", &json!({})).await;
            let columns = ["Authorization server", "Expected", "Result"];
            let mut table = Table::new("token-servers", module_path!(), &columns);
            let visited = network.outside.records().addresses();
            let mut may_be_visited = Vec::new();
            for (nth, case) in cases.iter().enumerate() {
                let ended = &ended[&endpoints[nth]];
                ended.expect(case.what, case.end);
                let called = visited.contains(&destination(nth));
                assert_eq!(
                    called,
                    case.end == ExpectedOutcome::Delivered,
                    "{}",
                    case.what
                );
                may_be_visited.push(destination(nth));
                may_be_visited.extend((case.end != ExpectedOutcome::Unsafe).then(|| place(nth)));
                table.row(&[case.what.to_owned(), case.end.shown(), ended.shown()]);
            }
            let stray = |one: &&IpAddr| !may_be_visited.contains(one);
            let strays: Vec<_> = visited.iter().filter(stray).collect();
            assert!(
                strays.is_empty(),
                "no other receiver gets a request: {strays:?}"
            );
            network.assert_no_address_visible("acme").await;
            table.publish();
        },
    );
}
