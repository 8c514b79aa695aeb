//! Arguments that say which server, key and tenant an API command uses.

use std::fmt;

use clap::Args;
use posthaste_egress::trusted_client::{BaseUrl, OriginError};

use crate::cli::error::CommandError;
use crate::cli::input;
use crate::client::ApiClient;

/// Connection options. Its debug form does not show the key.
#[derive(Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectArgs {
    /// Address of the server
    #[arg(long, global = true, env = "POSTHASTE_SERVER", value_name = "URL",
          default_value = "http://127.0.0.1:8420", value_parser = origin)]
    pub server: BaseUrl,
    /// API key: an admin key or a key of the tenant
    #[arg(
        long,
        global = true,
        env = "POSTHASTE_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub key: Option<String>,
    /// Additional certificate authorities to trust, as a PEM file
    #[arg(long, global = true, env = "POSTHASTE_CA", value_name = "FILE")]
    pub ca: Option<String>,
    /// Print the JSON response of the API
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

/// The tenant of the command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct TenantArgs {
    /// Tenant id
    #[arg(long, global = true, env = "POSTHASTE_TENANT", value_name = "TENANT")]
    pub tenant: Option<String>,
}

fn origin(text: &str) -> Result<BaseUrl, String> {
    text.parse().map_err(|error: OriginError| error.to_string())
}
