//! The master key that nodes share where none is configured.
//!
//! The store neither makes nor uses it: it keeps what the first node offers, and gives all of them the
//! same.

use super::fault::Fault;
use super::link::Link;
use super::readers::Pace;
use super::scene::Scene;
use super::store::PostgresStore;
use crate::Answer;

impl PostgresStore {
    /// The master keys that all nodes share, if some were offered.
    pub fn shared_master_keys(&self) -> Answer<Option<String>> {
        self.read(Pace::Quick, async |link: &Link| kept(link).await)
    }

    /// Offers master keys to be shared by all nodes, and says which are: these, or those that another node
    /// offered before.
    pub fn offer_master_keys(&self, keys: String) -> Answer<String> {
        self.write(async move |scene: &mut Scene| {
            // Whoever offers at the same time waits here for the first one's commit, and reads it.
            let sql = "INSERT INTO vault (keys) VALUES ($1) ON CONFLICT DO NOTHING";
            scene.link.execute(sql, &[&keys]).await?;
            let kept = kept(&scene.link).await?;
            kept.ok_or_else(|| Fault::Unreadable("the vault is empty".to_owned()))
        })
    }
}

async fn kept(link: &Link) -> Result<Option<String>, Fault> {
    let row = link.query_opt("SELECT keys FROM vault", &[]).await?;
    Ok(row.map(|row| row.get(0)))
}
