//! A database connection that can be cancelled: closing it abandons all its requests immediately.

use std::rc::Rc;

use tokio::task::AbortHandle;

use super::connection::{PgConnection, connect};
use super::settings::PostgresSettings;

/// Keeps one connection, and opens another when it is lost or was cut.
pub(super) struct CancellableConnection {
    settings: Rc<PostgresSettings>,
    held: Option<(Rc<PgConnection>, AbortHandle)>,
}

impl CancellableConnection {
    /// Creates the holder, without opening a connection.
    pub(super) fn new(settings: Rc<PostgresSettings>) -> CancellableConnection {
        CancellableConnection {
            settings,
            held: None,
        }
    }

    /// Returns the connection, opening one if there is none.
    pub(super) async fn get(&mut self) -> Result<Rc<PgConnection>, String> {
        if let Some((conn, _)) = self.held.as_ref().filter(|(conn, _)| !conn.is_closed()) {
            return Ok(conn.clone());
        }
        self.cut();
        let connected = connect(&self.settings, &self.settings.server).await;
        let (conn, driver) = connected.map_err(|not_connected| not_connected.to_string())?;
        let driver = tokio::task::spawn_local(async move {
            // The next statement on the connection reports its end.
            let _ = driver.await;
        });
        let conn = Rc::new(conn);
        self.held = Some((conn.clone(), driver.abort_handle()));
        Ok(conn)
    }

    /// Closes the connection immediately, without notifying the server.
    pub(super) fn cut(&mut self) {
        if let Some((_, driver)) = self.held.take() {
            driver.abort();
        }
    }
}

impl Drop for CancellableConnection {
    fn drop(&mut self) {
        self.cut();
    }
}
