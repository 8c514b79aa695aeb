//! Self-calls: the program does not call itself, at any listening address and under any name.

use serde_json::json;

use super::dns::addresses;
use super::docs::{Table, code};
use super::namespace::{OWN_ADDRESSES, inside};
use super::program::{ExpectedOutcome, PrivateNetwork, once};

const OURS: &str = OWN_ADDRESSES[0];
const OURS_TOO: &str = OWN_ADDRESSES[1];
const THEIRS: &str = "45.60.0.1";
const PORT: u16 = 8420;

/// A destination and its expected end. `None`: the endpoint is refused at registration.
struct Case {
    host: &'static str,
    port: u16,
    end: Option<ExpectedOutcome>,
}

fn case(host: &'static str, port: u16, end: Option<ExpectedOutcome>) -> Case {
    Case { host, port, end }
}

#[test]
fn the_servers_own_listeners_are_never_called() {
    inside(
        "self_call::the_servers_own_listeners_are_never_called",
        || async {
            let columns = ["Listening on", "URL", "Expected", "Result"];
            let mut table = Table::new("own-address", module_path!(), &columns);
            let (refused, delivered) = (None, Some(ExpectedOutcome::Delivered));
            let by_name = Some(ExpectedOutcome::Unsafe);
            // No server listens there, but it is not posthaste.
            let no_server = Some(ExpectedOutcome::Exhausted("connection"));
            let one = [
                case(OURS, PORT, refused),
                case("[::ffff:45.70.0.1]", PORT, refused),
                case("ours.customer.com", PORT, by_name),
                case("also-ours.customer.com", PORT, by_name),
                case(OURS, 443, delivered),
                case("ours.customer.com", 443, delivered),
                case("theirs.customer.com", PORT, no_server),
            ];
            let mut network = PrivateNetwork::listening_on(&format!("{OURS}:{PORT}")).await;
            for (name, list) in [
                ("ours.customer.com", OURS.to_owned()),
                ("ours6.customer.com", OURS_TOO.to_owned()),
                ("also-ours.customer.com", format!("{THEIRS} {OURS}")),
                ("theirs.customer.com", THEIRS.to_owned()),
            ] {
                network.names.set_replies(name, &[addresses(&list)]);
            }
            try_all(&mut network, OURS, &one, &mut table).await;
            // In this network every address belongs to this machine.
            for (everywhere, by_ipv6) in [("0.0.0.0", no_server), ("[::]", by_name)] {
                let all = [
                    case(OURS, PORT, refused),
                    case(THEIRS, PORT, refused),
                    case("ours.customer.com", PORT, by_name),
                    case("ours6.customer.com", PORT, by_ipv6),
                    case("also-ours.customer.com", PORT, by_name),
                    case("ours.customer.com", 443, delivered),
                ];
                network.listen_on(&format!("{everywhere}:{PORT}"));
                try_all(&mut network, everywhere, &all, &mut table).await;
            }
            table.publish();
        },
    );
}

async fn try_all(network: &mut PrivateNetwork, listening: &str, cases: &[Case], table: &mut Table) {
    network.api.tenant("acme").await;
    let mut accepted = Vec::new();
    let mut rows = Vec::new();
    for case in cases {
        let url = format!("https://{}:{}/", case.host, case.port);
        let asked = once(&url, json!({}));
        let made = network.api.post("/v1/tenants/acme/endpoints", asked).await;
        let (expected, result) = match case.end {
            None => {
                assert_eq!(made.status, 422, "{listening}, {url}: {}", made.body);
                assert_eq!(made.body["code"], "unsafe_destination");
                let words = made.body["errors"][0]["message"].as_str().expect("words");
                let result = format!("422 `unsafe_destination`: {words}");
                ("refused".to_owned(), result)
            }
            Some(end) => {
                assert_eq!(made.status, 201, "{listening}, {url}: {}", made.body);
                let id = made.body["id"].as_str().expect("an id").to_owned();
                accepted.push((rows.len(), id, end));
                (end.shown(), "201".to_owned())
            }
        };
        let listens = code(&format!("{listening}:{PORT}"));
        rows.push([listens, code(&url), expected, result]);
    }
    let ended = network.deliver("acme", "one", &json!({})).await;
    for (row, endpoint, end) in accepted {
        let what = format!("{listening}, {}", rows[row][1]);
        ended[&endpoint].expect(&what, end);
        rows[row][3] += &format!(", then {}", ended[&endpoint].shown());
    }
    rows.iter().for_each(|row| table.row(row));
}
