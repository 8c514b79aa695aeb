//! What nodes have of what limited tenants may have under way at once.
//!
//! Nodes ask one after the other, each for all its tenants together, and only those count that are not struck off. So
//! what one is told holds until it asks again, or until its lease has ended and with it whatever it had begun.

use posthaste_core::cluster::{Room, Share, share as decide};
use posthaste_core::dispatcher::Crowd;
use rustc_hash::FxHashMap;

use super::fault::Fault;
use super::scene::Scene;
use super::schema::lock;

const NOTHING: Room = Room {
    slots: 0,
    usable: 0,
};

const HAS_NOTHING: Share = Share { slots: 0, wants: 0 };

/// What nodes have that live.
const HELD: &str = "SELECT g.tenant_no, g.slots, g.wants, g.node FROM grants g \
    JOIN nodes n ON n.no = g.node WHERE g.tenant_no = ANY ($1)";

/// Writes down what this node has.
const SET: &str = "INSERT INTO grants (tenant_no, node, slots, wants) \
    SELECT tenant_no, $4, slots, wants \
    FROM unnest($1::bigint[], $2::integer[], $3::integer[]) AS g (tenant_no, slots, wants) \
    ON CONFLICT (tenant_no, node) DO UPDATE SET slots = excluded.slots, wants = excluded.wants";

/// Forgets what this node has given back, what nodes had that are struck off, and what was held for tenants that are gone.
const FORGET: &str = "DELETE FROM grants g WHERE (slots = 0 AND wants = 0 AND node = $1) \
    OR node NOT IN (SELECT no FROM nodes) \
    OR NOT EXISTS (SELECT 1 FROM tenants t WHERE t.no = g.tenant_no AND NOT t.deleted)";

/// Shares what tenants may have.
pub(super) async fn share(scene: &mut Scene, crowds: &[Crowd]) -> Result<Vec<Room>, Fault> {
    scene.share_directory().await?;
    let link = scene.link.clone();
    let me = scene.holdings.me().0 as i64;
    link.execute("SELECT pg_advisory_xact_lock($1)", &[&lock::ROOM])
        .await?;
    let lives = link
        .query_opt("SELECT 1 FROM nodes WHERE no = $1", &[&me])
        .await?;
    if lives.is_none() {
        return Ok(vec![NOTHING; crowds.len()]);
    }
    let numbers: Vec<Option<i64>> = crowds
        .iter()
        .map(|crowd| scene.tenant(&crowd.tenant).map(|routes| routes.no))
        .collect();
    let tenants: Vec<i64> = numbers.iter().copied().flatten().collect();
    let mut others: FxHashMap<i64, Vec<Share>> = FxHashMap::default();
    let mut mine: FxHashMap<i64, Share> = FxHashMap::default();
    for row in link.query(HELD, &[&tenants]).await? {
        let share = Share {
            slots: row.get::<_, i32>(1) as u32,
            wants: row.get::<_, i32>(2) as u32,
        };
        if row.get::<_, i64>(3) == me {
            mine.insert(row.get(0), share);
        } else {
            others.entry(row.get(0)).or_default().push(share);
        }
    }
    let mut rooms = Vec::with_capacity(crowds.len());
    let mut changed: (Vec<i64>, Vec<i32>, Vec<i32>) = Default::default();
    for (crowd, no) in crowds.iter().zip(&numbers) {
        // Of a tenant that is gone nothing begins any more, and what is under way ends.
        let Some(no) = no else {
            rooms.push(NOTHING);
            continue;
        };
        let beside = others.get(no).map_or(&[][..], Vec::as_slice);
        let before = mine.get(no).copied().unwrap_or(HAS_NOTHING);
        let room = decide(crowd.most, before.slots, crowd.ask, beside);
        let after = Share {
            slots: room.slots,
            wants: crowd.ask.wants,
        };
        if after != before {
            changed.0.push(*no);
            changed.1.push(after.slots as i32);
            changed.2.push(after.wants as i32);
        }
        rooms.push(room);
    }
    let (tenants, slots, wants) = changed;
    if !tenants.is_empty() {
        link.execute(SET, &[&tenants, &slots, &wants, &me]).await?;
    }
    link.execute(FORGET, &[&me]).await?;
    Ok(rooms)
}
