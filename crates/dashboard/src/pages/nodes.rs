//! The page of the nodes: shards, heartbeat, round trips, clock and version of each. For admin keys.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{ListPage, Node, NodeState};

use crate::components::{BadgeKind, badge, rounded_duration, time};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{PageHandler, Route, page_route};

pub(super) const PAGES: &[Route<PageHandler>] = &[page_route!(Server, "/nodes", show)];

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    let nodes: ListPage<Node> = request.get("/v1/nodes").await?;
    Ok(Page::new(Tab::Nodes, "Nodes")
        .lead(html! { "The processes that serve the API and send deliveries. Each endpoint belongs to a shard, and each shard is owned by one node, which sends its deliveries." })
        .live("nodes", table(&nodes.data))
        .into())
}

fn table(nodes: &[Node]) -> Markup {
    html! {
        table.stack {
            caption.unseen { "Nodes, by number" }
            thead { tr {
                th scope="col" { "Node" } th scope="col" { "State" } th scope="col" { "Role" } th scope="col" { "Shards" }
                th scope="col" { "Round trips" } th scope="col" { "Clock offset" } th scope="col" { "Version" } th scope="col" { "Started" }
            } }
            tbody { @for node in nodes { tr {
                td data-label="Node" { (node.number) div.hint { code { (node.name) } } }
                td data-label="State" { (state(node)) }
                td data-label="Role" { (node.role) }
                td data-label="Shards" { (node.shards) }
                td data-label="Round trips" { (round_trips(node)) }
                td data-label="Clock offset" { (node.clock_offset_ms.map_or_else(|| "–".to_owned(), offset)) }
                td data-label="Version" { (node.version.as_deref().unwrap_or("–")) }
                td data-label="Started" { @if let Some(at) = &node.started_at { (time(at)) } @else { "–" } }
            } } }
        }
    }
}

fn state(node: &Node) -> Markup {
    match node.state {
        NodeState::Ok => badge(BadgeKind::Good, "ok"),
        NodeState::Slow => html! {
            (badge(BadgeKind::Warning, "slow"))
            div.hint { "Slow round trips to the database. Owns " (percent(node.capacity)) " of an equal share of the shards." }
        },
        NodeState::Silent => html! {
            (badge(BadgeKind::Bad, "silent"))
            @if let Some(at) = &node.last_heartbeat_at { div.hint { "Last heartbeat " (time(at)) } }
        },
    }
}

/// Shows round trips in steps, so that the page does not change with every heartbeat.
fn round_trips(node: &Node) -> Markup {
    let trips = node.round_trip_ms;
    let kinds = [
        ("heartbeat", trips.heartbeat),
        ("fetch", trips.fetch),
        ("record", trips.record),
    ];
    let known: Vec<String> = kinds
        .iter()
        .filter_map(|(name, ms)| Some(format!("{name} {}", in_steps((*ms)?))))
        .collect();
    html! { @if known.is_empty() { "–" } @else { (known.join(" · ")) } }
}

/// Returns a duration, rounded up to 10, 100 or 500 ms.
fn in_steps(ms: u64) -> String {
    let step = match ms {
        0..=10 => return "under 10 ms".to_owned(),
        11..=100 => 10,
        101..=1_000 => 100,
        _ => 500,
    };
    rounded_duration(ms.div_ceil(step) * step)
}

/// Returns an offset. Offsets below a second are normal.
fn offset(ms: i64) -> String {
    match ms {
        -999..=999 => "under 1 s".to_owned(),
        ms if ms > 0 => format!(
            "{} ahead",
            rounded_duration(ms.unsigned_abs() / 1_000 * 1_000)
        ),
        ms => format!(
            "{} behind",
            rounded_duration(ms.unsigned_abs() / 1_000 * 1_000)
        ),
    }
}

fn percent(capacity: Option<f64>) -> String {
    format!("{:.0} %", capacity.unwrap_or(1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_offsets_are_rounded() {
        assert_eq!(in_steps(3), "under 10 ms");
        assert_eq!(in_steps(1_201), "1.5 s");
        assert_eq!(offset(-20), "under 1 s");
        assert_eq!(offset(61_234), "61 s ahead");
        assert_eq!(percent(Some(0.25)), "25 %");
    }
}
