//! Kept-alive connections: for which endpoint and how long.

use std::net::IpAddr;

use serde_json::json;

use super::dns::{addresses, parsed};
use super::namespace::inside;
use super::outside::Records;
use super::program::{DeliveryOutcome, ExpectedOutcome, PrivateNetwork};

const NAME: &str = "hooks.customer.com";
const URL: &str = "https://hooks.customer.com/hook";
const PUBLIC: &str = "45.60.0.1";
const ELSEWHERE: &str = "45.60.0.2";
const PRIVATE: &str = "10.66.0.1";

fn here() -> IpAddr {
    parsed(PUBLIC)[0]
}

/// Returns the connection over which a delivery arrived.
fn visit_of(records: &Records, ended: &DeliveryOutcome) -> usize {
    let mut arrivals = records.arrivals.iter();
    let arrival = arrivals.find(|arrival| arrival.delivery == ended.id);
    arrival.expect("it arrived").visit
}

async fn network(tenants: &[&str]) -> PrivateNetwork {
    let mut network = PrivateNetwork::start().await;
    network.names.set_replies(NAME, &[addresses(PUBLIC)]);
    for tenant in tenants {
        network.api.tenant(tenant).await;
        network.endpoint(tenant, URL, json!({})).await;
    }
    network
}

#[test]
fn two_tenants_never_share_a_connection() {
    inside("sharing::two_tenants_never_share_a_connection", || async {
        let mut network = network(&["acme", "rival"]).await;
        let mut used = Vec::new();
        for tenant in ["acme", "rival", "acme", "rival", "rival", "acme"] {
            let ended = network.deliver_one(tenant).await;
            ended.expect(tenant, ExpectedOutcome::Delivered);
            used.push((tenant, visit_of(&network.outside.records(), &ended)));
        }
        let records = network.outside.records();
        assert_eq!(
            records.visits_to(here()),
            [0, 1],
            "each has one and keeps it"
        );
        for (tenant, visit) in used {
            assert_eq!(visit, usize::from(tenant == "rival"), "{tenant}");
        }
    });
}

#[test]
fn two_endpoints_of_one_tenant_do_not_share_one_either() {
    let test = "sharing::two_endpoints_of_one_tenant_do_not_share_one_either";
    inside(test, || async {
        let mut network = network(&[]).await;
        network.api.tenant("acme").await;
        for kind in ["one", "two"] {
            let fields = json!({"event_types": [kind]});
            network.endpoint("acme", URL, fields).await;
        }
        for (kind, visit) in [("one", 0), ("two", 1), ("one", 0), ("two", 1)] {
            let ended = network.deliver("acme", kind, &json!({})).await;
            let ended = ended.values().next().expect("one of the two");
            ended.expect(kind, ExpectedOutcome::Delivered);
            assert_eq!(visit_of(&network.outside.records(), ended), visit);
        }
        assert_eq!(network.outside.records().visits_to(here()), [0, 1]);
    });
}

#[test]
fn a_reused_connection_keeps_its_vetted_address_and_a_new_one_is_vetted_again() {
    let test =
        "sharing::a_reused_connection_keeps_its_vetted_address_and_a_new_one_is_vetted_again";
    inside(test, || async {
        let mut network = network(&["acme"]).await;
        network
            .deliver_one("acme")
            .await
            .expect("first", ExpectedOutcome::Delivered);
        let lookups = network.names.asked().len();
        network.names.set_replies(NAME, &[addresses(PRIVATE)]);
        let second = network.deliver_one("acme").await;
        second.expect("over the kept connection", ExpectedOutcome::Delivered);
        assert_eq!(visit_of(&network.outside.records(), &second), 0);
        assert_eq!(network.names.asked().len(), lookups, "no lookup is made");

        // The program closes the idle connection, long before the receiver would.
        network
            .outside
            .until("the end of the kept connection", |records| {
                records.visits[0].is_over
            })
            .await;
        let third = network.deliver_one("acme").await;
        third.expect("over a new connection", ExpectedOutcome::Unsafe);
        assert!(network.names.asked().len() > lookups);
        assert_eq!(network.outside.records().addresses(), [here()].into());
        network.assert_no_address_visible("acme").await;
    });
}

#[test]
fn a_changed_url_uses_a_new_connection() {
    let test = "sharing::a_changed_url_uses_a_new_connection";
    inside(test, || async {
        let mut network = network(&[]).await;
        network
            .names
            .set_replies("new.customer.com", &[addresses(ELSEWHERE)]);
        network.api.tenant("acme").await;
        let id = network.endpoint("acme", URL, json!({})).await;
        let path = format!("/v1/tenants/acme/endpoints/{id}");
        for (nth, url) in [
            "https://hooks.customer.com/other",
            "https://new.customer.com/other",
            "https://new.customer.com:8443/other",
            "https://hooks.customer.com/other",
        ]
        .into_iter()
        .enumerate()
        {
            let ended = network.deliver_one("acme").await;
            ended.expect("before", ExpectedOutcome::Delivered);
            assert_eq!(visit_of(&network.outside.records(), &ended), nth);
            let change = json!({"url": url});
            let changed = network.api.call("PATCH", &path, Some(&change)).await;
            changed.expect(200);
        }
        let ended = network.deliver_one("acme").await;
        ended.expect("after", ExpectedOutcome::Delivered);
        let gone = |records: &Records| records.visits[..4].iter().all(|visit| visit.is_over);
        let records = network.outside.until("the end of the old ones", gone).await;
        assert_eq!(visit_of(&records, &ended), 4);
        let ports: Vec<u16> = records.visits.iter().map(|visit| visit.port).collect();
        assert_eq!(ports, [443, 443, 443, 8443, 443]);
    });
}
