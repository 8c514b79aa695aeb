//! Arguments of `posthaste serve`.
//!
//! Every flag is a setting and stays text here. The configuration parses all of them, so that errors in flags,
//! environment variables and file are reported together.

use std::path::PathBuf;

use clap::Args;

use crate::config::Flags;

/// Examples in the help.
pub const SERVE_EXAMPLES: &str = "\
Examples:
  posthaste serve
  posthaste serve --listen 0.0.0.0:8420 --store sqlite:/var/lib/posthaste/posthaste.db
  posthaste serve --store postgres://posthaste@db.example/posthaste --role worker
  posthaste serve --allow-network 127.0.0.0/8 --allow-http
  posthaste serve --config posthaste.toml --set limits.connections=500
  posthaste serve --config posthaste.toml --check

Every setting can be set in the file, in the environment and by a flag. Flags override the
environment, which overrides the file. config.default.toml lists all of them with their defaults:
`limits.connections` in the file is POSTHASTE_LIMITS_CONNECTIONS in the environment.

Exit codes: 0 stopped as requested, or the configuration is valid (--check); 1 failed; 2 wrong usage
or configuration.";

/// `serve`.
#[derive(Clone, Default, Args)]
pub struct ServeArgs {
    /// Settings from a TOML file [env: POSTHASTE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Listen address; port 0 picks a free port [default: 127.0.0.1:8420]
    /// [env: POSTHASTE_LISTEN]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Store: sqlite:FILE, or postgres://… for several nodes
    /// [default: sqlite:posthaste.db] [env: POSTHASTE_STORE]
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Role of this node: api answers requests, worker sends deliveries, all
    /// does both [default: all] [env: POSTHASTE_ROLE]
    #[arg(long, value_name = "all|api|worker")]
    pub role: Option<String>,
    /// Admin key; if unset, the first start generates one and prints it once. Other users
    /// of this machine can see flags: the variable is safer [env: POSTHASTE_ADMIN_KEY]
    #[arg(long, value_name = "KEY")]
    pub admin_key: Option<String>,
    /// Master key that encrypts secrets [default: generated next to the store by the first start]
    /// [env: POSTHASTE_MASTER_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    pub master_key_file: Option<String>,
    /// Allow destinations in this network, such as 127.0.0.0/8; may be repeated
    /// [env: POSTHASTE_ALLOW_NETWORK]
    #[arg(long, value_name = "CIDR")]
    pub allow_network: Vec<String>,
    /// Allow http:// destinations besides https:// [env: POSTHASTE_ALLOW_HTTP]
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub allow_http: Option<String>,
    /// Retention of finished deliveries [default: 30d] [env: POSTHASTE_RETENTION]
    #[arg(long, value_name = "DURATION")]
    pub retention: Option<String>,
    /// Grace period for attempts in flight when stopping [default: 25s] [env: POSTHASTE_GRACE]
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<String>,
    /// Log format: human, json, or auto (human on a terminal) [default: auto]
    /// [env: POSTHASTE_LOG_FORMAT]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Log level: off, error, warn, info, debug or trace; info,posthaste::attempt=off omits
    /// the line of each attempt [default: info] [env: POSTHASTE_LOG_LEVEL]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// Check the configuration and exit, without starting the server
    #[arg(long)]
    pub check: bool,
    /// Any other setting, by its key in the configuration file; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl From<&ServeArgs> for Flags {
    fn from(args: &ServeArgs) -> Flags {
        let networks = (!args.allow_network.is_empty()).then(|| args.allow_network.join(","));
        let flags = [
            ("listen", args.listen.clone()),
            ("store", args.store.clone()),
            ("role", args.role.clone()),
            ("admin_key", args.admin_key.clone()),
            ("master_key_file", args.master_key_file.clone()),
            ("allow_network", networks),
            ("allow_http", args.allow_http.clone()),
            ("retention", args.retention.clone()),
            ("grace", args.grace.clone()),
            ("log.format", args.log_format.clone()),
            ("log.level", args.log_level.clone()),
        ];
        let given = flags.into_iter();
        Flags {
            config: args.config.clone(),
            given: given.filter_map(|(key, text)| Some((key, text?))).collect(),
            set: args.set.clone(),
        }
    }
}

impl std::fmt::Debug for ServeArgs {
    /// Shows only the names of the flags, because their values may be keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = Flags::from(self).given.into_iter().map(|(key, _)| key);
        f.debug_list().entries(keys).finish()
    }
}
