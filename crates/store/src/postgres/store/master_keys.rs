//! The master key that nodes share if none is configured.
//!
//! The store neither creates nor uses the key: it keeps the one that the first node offers, and gives it to all
//! nodes. Of a configured key it stores only the name, so that no two nodes encrypt with different keys.

use super::PostgresStore;
use crate::Answer;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::meta;
use crate::postgres::write::write_context::WriteContext;
use crate::read_duration::ReadDuration;

impl PostgresStore {
    /// Returns the master keys that all nodes share, if a node has offered some.
    pub fn shared_master_keys(&self) -> Answer<Option<String>> {
        self.read(ReadDuration::Quick, async |conn: &PgConnection| {
            kept(conn).await
        })
    }

    /// Offers master keys to be shared by all nodes. Returns the shared keys: these, or those that another node
    /// offered before.
    pub fn offer_master_keys(&self, keys: String) -> Answer<String> {
        self.write(async move |context: &mut WriteContext| {
            // A concurrent offer waits here for the commit of the first one, and then reads it.
            let sql = "INSERT INTO vault (keys) VALUES ($1) ON CONFLICT DO NOTHING";
            context.conn.execute(sql, &[&keys]).await?;
            let kept = kept(&context.conn).await?;
            kept.ok_or_else(|| DbError::Corrupt("the vault is empty".to_owned()))
        })
    }

    /// Returns the name of the master key that the nodes encrypt with, if a node has set it.
    pub fn master_key_in_use(&self) -> Answer<Option<u32>> {
        self.read(ReadDuration::Quick, async |conn: &PgConnection| {
            in_use(conn).await
        })
    }

    /// Registers the names of the master keys that this node can decrypt with, the newest first. Returns the name of
    /// the key that was in use. If this node knows that key, its newest key is in use from now on.
    pub fn use_master_key(&self, known: Vec<u32>) -> Answer<u32> {
        self.write(async move |context: &mut WriteContext| {
            let newest = known.first().copied().map_or(0, i64::from);
            // A concurrent call waits here for the commit of the first one, and then reads it.
            let sql = "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            let conn = &context.conn;
            conn.execute(sql, &[&meta::MASTER_KEY, &newest]).await?;
            let used = in_use(conn).await?;
            let used = used.ok_or_else(|| DbError::Corrupt("no master key".to_owned()))?;
            if known.contains(&used) && i64::from(used) != newest {
                context.set_number(meta::MASTER_KEY, newest);
            }
            Ok(used)
        })
    }
}

async fn in_use(conn: &PgConnection) -> Result<Option<u32>, DbError> {
    let sql = "SELECT value FROM meta WHERE name = $1";
    let row = conn.query_opt(sql, &[&meta::MASTER_KEY]).await?;
    Ok(row.map(|row| row.get::<_, i64>(0) as u32))
}

async fn kept(conn: &PgConnection) -> Result<Option<String>, DbError> {
    let row = conn.query_opt("SELECT keys FROM vault", &[]).await?;
    Ok(row.map(|row| row.get(0)))
}
