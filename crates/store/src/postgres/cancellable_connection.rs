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
    pub(super) async fn link(&mut self) -> Result<Rc<PgConnection>, String> {
        if let Some((link, _)) = self.held.as_ref().filter(|(link, _)| !link.is_closed()) {
            return Ok(link.clone());
        }
        self.cut();
        let connected = connect(&self.settings, &self.settings.server).await;
        let (link, pump) = connected.map_err(|unlinked| unlinked.to_string())?;
        let pump = tokio::task::spawn_local(async move {
            // The next statement on the connection reports its end.
            let _ = pump.await;
        });
        let link = Rc::new(link);
        self.held = Some((link.clone(), pump.abort_handle()));
        Ok(link)
    }

    /// Closes the connection immediately, without notifying the server.
    pub(super) fn cut(&mut self) {
        if let Some((_, pump)) = self.held.take() {
            pump.abort();
        }
    }
}

impl Drop for CancellableConnection {
    fn drop(&mut self) {
        self.cut();
    }
}
