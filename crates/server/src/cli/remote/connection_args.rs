//! Arguments that say which server, key and tenant an API command uses.

use std::fmt;

use clap::Args;
use posthaste_egress::trusted_client::{Origin, OriginError};

use crate::cli::error::CommandError;
use crate::cli::input;
use crate::client::ApiClient;

/// Where the server is, and how to speak to it. Its debug form does not show the key.
#[derive(Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectArgs {
    /// Where the server is
    #[arg(long, global = true, env = "POSTHASTE_SERVER", value_name = "URL",
          default_value = "http://127.0.0.1:8420", value_parser = origin)]
    pub server: Origin,
    /// A key to the server: an admin key, or a tenant's
    #[arg(
        long,
        global = true,
        env = "POSTHASTE_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub key: Option<String>,
    /// Certificate authorities to trust besides the public ones, as a PEM file
    #[arg(long, global = true, env = "POSTHASTE_CA", value_name = "FILE")]
    pub ca: Option<String>,
    /// Answer in JSON, as the API did
    #[arg(long, global = true)]
    pub json: bool,
}

impl ConnectArgs {
    /// Creates a client of this server.
    pub fn client(&self) -> Result<ApiClient, CommandError> {
        let client = ApiClient::new(self.server.clone(), self.key.as_deref())?;
        let Some(path) = &self.ca else {
            return Ok(client);
        };
        let client = client.with_ca_bundle(&input::read(path)?);
        client.map_err(|error| CommandError::Input(format!("{path}: {error}")))
    }
}

impl fmt::Debug for ConnectArgs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ConnectArgs")
            .field("server", &self.server)
            .field("has_key", &self.key.is_some())
            .field("ca", &self.ca)
            .field("json", &self.json)
            .finish_non_exhaustive()
    }
}

/// Whose things are meant.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct TenantArgs {
    /// Whose things are meant
    #[arg(long, global = true, env = "POSTHASTE_TENANT", value_name = "TENANT")]
    pub tenant: Option<String>,
}

fn origin(text: &str) -> Result<Origin, String> {
    text.parse().map_err(|error: OriginError| error.to_string())
}
