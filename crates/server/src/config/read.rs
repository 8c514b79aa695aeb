//! Reads and validates a configuration document.
//!
//! Reading changes only the settings that the document contains. To get the right precedence, the caller
//! applies the sources one after the other, the strongest last.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;
use posthaste_api::limits::{
    MAX_DELIVERIES_PER_SECOND, MAX_EVENTS_PER_MONTH, MAX_EVENTS_PER_SECOND, MAX_IN_FLIGHT,
    MAX_SCHEDULES, MAX_SHORTEST_SCHEDULE_INTERVAL,
};
use posthaste_core::address::{
    EgressRules, Nat64Prefix, Nat64PrefixError, PortRange, PortRangeError,
};
use posthaste_core::cluster::{LONGEST_LEASE, SHORTEST_LEASE};
use posthaste_core::lane::{BreakerOverrides, BreakerSettings, DisableOverrides, DisableSettings};
use posthaste_core::policy::{MAX_ATTEMPTS, Preset, RetryPolicy, UnknownPreset};
use posthaste_core::schedule::MIN_INTERVAL;
use posthaste_core::secret::Secret;
use posthaste_core::time::{MAX_SPAN, Span};
use posthaste_core::validation::{Fields, ValidationErrors};
use posthaste_engine::vault::{KeySource, Vault, VaultError};
use posthaste_telemetry::logging::LogSettings;
use serde_json::{Value, json};

use super::components::read_bundle;
use super::fields::{
    MAX_BODY_BYTES, MAX_COUNT, count_or_none, parsed, read_bool, read_items, read_path, set,
};
use super::types::{
    Config, EngineSettings, MasterKeySource, RateSetting, RequestLimits, TenantLimits,
};
use super::{
    alerts, dashboard, endpoint_defaults, mail, metrics, notifications, otlp, outboxes, plans,
};

/// Maximum of `store_connections`. A database does not serve more connections of one node well.
const MAX_STORE_CONNECTIONS: u32 = 64;
/// Maximum wait before an upgrade is finished.
const MAX_FINISH_UPGRADE_AFTER: Span = Span::from_days(30);
/// Maximum number of networks in a list.
const MAX_NETWORKS: usize = 1_000;
/// Maximum number of ports or port ranges in a list.
const MAX_PORTS: usize = 1_000;
/// Maximum number of NAT64 prefixes. A network has one, or one for each translator.
const MAX_PREFIXES: usize = 16;
/// Minimum length of the admin key. A shorter one can be guessed by trying.
const MIN_KEY_CHARS: usize = 16;
/// Maximum length of the admin key.
const MAX_KEY_CHARS: usize = 256;
/// Maximum of `grace`. No supervisor waits longer for a shutdown.
const MAX_GRACE: Span = Span::from_hours(1);
const MIN_BODY_BYTES: u32 = 1 << 10;
const MAX_CONNECTIONS: u32 = 1_000_000;
/// Minimum of the memory of request bodies. Less would refuse ordinary events.
const MIN_BODY_MEMORY_BYTES: u32 = 1 << 20;
const MAX_HEADER_TIME: Span = Span::from_mins(5);
/// Maximum of `limits.write_time`. A caller that does not read for longer is gone.
const MAX_WRITE_TIME: Span = Span::from_mins(10);
const MAX_IDLE_TIME: Span = Span::from_hours(1);
/// Maximum request rate. One machine does not accept more requests per second.
const MAX_REQUEST_RATE: u32 = 1_000_000;
/// Maximum of `engine.max_in_flight`. Each attempt in flight needs a socket, and a machine has no more ports
/// for one destination address.
const MAX_FLIGHTS: u32 = 65_536;
const MAX_READY_PER_LANE: u32 = 10_000;
/// Maximum of `limits.max_deliveries_per_request`. A request that makes this many holds about 100 MB.
const MAX_DELIVERIES_PER_REQUEST: u32 = 100_000;
const MAX_RETRY_AFTER: Span = Span::from_days(30);

impl Config {
    /// Sets the settings that `document` contains, and reports those that are invalid. `origin` describes the
    /// source of a master key, for messages.
    pub(super) fn read(&mut self, document: &Value, origin: String, errors: &mut ValidationErrors) {
        let Some(mut fields) = Fields::open(document, "", errors) else {
            return;
        };
        set(&mut self.listen, parsed(&mut fields, "listen", read_listen));
        set(&mut self.store, parsed(&mut fields, "store", str::parse));
        set(&mut self.role, parsed(&mut fields, "role", str::parse));
        set(
            &mut self.lease,
            fields.span("lease", SHORTEST_LEASE, LONGEST_LEASE),
        );
        set(
            &mut self.finish_upgrade_after,
            fields.span("finish_upgrade_after", Span::ZERO, MAX_FINISH_UPGRADE_AFTER),
        );
        let listen = parsed(&mut fields, "store_listen", str::parse);
        self.store_listen = listen.or(self.store_listen.take());
        let connections = fields.count("store_connections", 1, MAX_STORE_CONNECTIONS);
        set(&mut self.store_connections, connections);
        let admin_key = parsed(&mut fields, "admin_key", read_admin_key);
        self.admin_key = admin_key.or(self.admin_key.take());
        set(&mut self.master_key, read_master_key(&mut fields, origin));
        let proxies = read_items(&mut fields, "trusted_proxy", MAX_NETWORKS, read_network);
        set(&mut self.trusted_proxies, proxies);
        read_egress_rules(&mut self.egress, &mut fields);
        self.ca_bundle = read_ca_bundle(&mut fields).or(self.ca_bundle.take());
        let proxy = parsed(&mut fields, "egress_proxy", str::parse);
        self.egress_proxy = proxy.or(self.egress_proxy.take());
        let resolves = read_bool(&mut fields, "egress_proxy_resolves");
        set(&mut self.egress_proxy_resolves, resolves);
        if let Some((policy, written)) = read_policy(&mut fields) {
            (self.retry_policy, self.retry_policy_written) = (policy, written);
        }
        let retention = fields.span("retention", Span::from_secs(1), MAX_SPAN);
        set(&mut self.retention, retention);
        for (name, setting) in [
            ("payload_retention", &mut self.payload_retention),
            ("attempt_retention", &mut self.attempt_retention),
        ] {
            *setting = fields.span(name, Span::from_secs(1), MAX_SPAN).or(*setting);
        }
        set(&mut self.grace, fields.span("grace", Span::ZERO, MAX_GRACE));
        read_section(&mut self.limits, &mut fields, "limits", read_limits);
        let limits = &mut self.tenant_limits;
        read_section(limits, &mut fields, "tenant_limits", read_tenant_limits);
        plans::read(&mut self.plans, &mut fields);
        outboxes::read(&mut self.outboxes, &mut fields);
        self.read_sections(&mut fields);
        fields.finish();
    }

    fn read_sections(&mut self, fields: &mut Fields<'_, '_>) {
        let dashboard = &mut self.dashboard;
        dashboard.public_url = dashboard::read_public_url(fields).or(dashboard.public_url.take());
        read_section(dashboard, fields, "dashboard", dashboard::read_dashboard);
        read_section(dashboard, fields, "portal", dashboard::read_portal);
        read_section(&mut self.engine, fields, "engine", read_engine);
        let defaults = &mut self.endpoint_defaults;
        read_section(
            defaults,
            fields,
            "endpoint_defaults",
            endpoint_defaults::read,
        );
        read_section(&mut self.breaker, fields, "breaker", read_breaker);
        read_section(&mut self.disable, fields, "disable", read_disable);
        read_section(&mut self.alerts, fields, "alerts", alerts::read);
        read_section(&mut self.notices, fields, "notices", notifications::read);
        read_section(&mut self.mail, fields, "mail", mail::read);
        read_section(&mut self.metrics, fields, "metrics", metrics::read);
        read_section(&mut self.log, fields, "log", read_log);
        read_section(&mut self.otlp, fields, "otlp", otlp::read);
    }
}

/// Reads the section `name` of the document, if it has one.
fn read_section<T>(
    settings: &mut T,
    fields: &mut Fields<'_, '_>,
    name: &'static str,
    read: fn(&mut T, Fields<'_, '_>),
) {
    if let Some(section) = fields.object(name) {
        read(settings, section);
    }
}

fn read_egress_rules(egress: &mut EgressRules, fields: &mut Fields<'_, '_>) {
    let allowed = read_items(fields, "allow_network", MAX_NETWORKS, read_network);
    set(&mut egress.allow_networks, allowed);
    let denied = read_items(fields, "deny_network", MAX_NETWORKS, read_network);
    set(&mut egress.deny_networks, denied);
    let allowed = read_items(fields, "allow_port", MAX_PORTS, read_ports);
    set(&mut egress.allow_ports, allowed);
    let denied = read_items(fields, "deny_port", MAX_PORTS, read_ports);
    set(&mut egress.deny_ports, denied);
    let prefixes = read_items(fields, "nat64_prefix", MAX_PREFIXES, read_nat64_prefix);
    set(&mut egress.nat64_prefixes, prefixes);
    set(&mut egress.allow_http, read_bool(fields, "allow_http"));
}

fn read_limits(limits: &mut RequestLimits, mut fields: Fields<'_, '_>) {
    let mut bytes = |name| fields.count(name, MIN_BODY_BYTES, MAX_BODY_BYTES);
    set(&mut limits.body_bytes, bytes("body_bytes"));
    set(&mut limits.batch_body_bytes, bytes("batch_body_bytes"));
    let mut memory = |name| fields.count(name, MIN_BODY_MEMORY_BYTES, u32::MAX);
    set(&mut limits.body_memory_bytes, memory("body_memory_bytes"));
    let of_tenant = memory("tenant_body_memory_bytes");
    limits.tenant_body_memory_bytes = of_tenant.or(limits.tenant_body_memory_bytes);
    let connections = fields.count("connections", 1, MAX_CONNECTIONS);
    set(&mut limits.connections, connections);
    let per_peer = fields.count("connections_per_peer", 1, MAX_CONNECTIONS);
    limits.connections_per_peer = per_peer.or(limits.connections_per_peer);
    let time = fields.span("header_read_time", Span::from_millis(100), MAX_HEADER_TIME);
    set(&mut limits.header_read_time, time);
    let time = fields.span("write_time", Span::from_millis(100), MAX_WRITE_TIME);
    set(&mut limits.write_time, time);
    let time = fields.span("idle_time", Span::from_millis(100), MAX_IDLE_TIME);
    set(&mut limits.idle_time, time);
    let rate = fields.count("requests_per_second", 1, MAX_REQUEST_RATE);
    set(&mut limits.requests_per_second, rate);
    let burst = fields.count("request_burst", 1, MAX_REQUEST_RATE);
    set(&mut limits.request_burst, burst);
    let deliveries = fields.count("max_deliveries_per_request", 1, MAX_DELIVERIES_PER_REQUEST);
    set(&mut limits.max_deliveries_per_request, deliveries);
    fields.finish();
}

fn read_tenant_limits(limits: &mut TenantLimits, mut fields: Fields<'_, '_>) {
    set(
        &mut limits.endpoints,
        fields.count("endpoints", 0, MAX_COUNT),
    );
    let narrow = |count: u64| u32::try_from(count).expect("the limit of the setting fits into u32");
    let mut rate = |name, max: u32| {
        let read = count_or_none(&mut fields, name, max.into());
        read.map(|rate| {
            rate.map_or(RateSetting::Unlimited, |it| {
                RateSetting::PerSecond(narrow(it))
            })
        })
    };
    let events = rate("events_per_second", MAX_EVENTS_PER_SECOND);
    set(&mut limits.events_per_second, events);
    let deliveries = rate("deliveries_per_second", MAX_DELIVERIES_PER_SECOND);
    set(&mut limits.deliveries_per_second, deliveries);
    let per_month = count_or_none(&mut fields, "events_per_month", MAX_EVENTS_PER_MONTH);
    set(&mut limits.events_per_month, per_month);
    let attempts = fields.count("max_attempts", 1, MAX_ATTEMPTS);
    set(&mut limits.max_attempts, attempts);
    let in_flight = count_or_none(&mut fields, "in_flight", MAX_IN_FLIGHT.into());
    set(
        &mut limits.in_flight,
        in_flight.map(|count| count.map(narrow)),
    );
    let schedules = fields.count("schedules", 0, MAX_SCHEDULES);
    set(&mut limits.schedules, schedules);
    let name = "shortest_schedule_interval";
    let shortest = fields.span(name, MIN_INTERVAL, MAX_SHORTEST_SCHEDULE_INTERVAL);
    set(&mut limits.shortest_schedule_interval, shortest);
    fields.finish();
}

fn read_engine(engine: &mut EngineSettings, mut fields: Fields<'_, '_>) {
    let in_flight = fields.count("max_in_flight", 1, MAX_FLIGHTS);
    set(&mut engine.max_in_flight, in_flight);
    let ready = fields.count("ready_per_lane", 1, MAX_READY_PER_LANE);
    set(&mut engine.ready_per_lane, ready);
    let cap = fields.span("retry_after_cap", Span::ZERO, MAX_RETRY_AFTER);
    set(&mut engine.retry_after_cap, cap);
    fields.finish();
}

fn read_breaker(breaker: &mut BreakerSettings, fields: Fields<'_, '_>) {
    let mut given = BreakerOverrides::default();
    given.change(fields);
    given.apply(breaker);
}

fn read_disable(disable: &mut DisableSettings, fields: Fields<'_, '_>) {
    let mut given = DisableOverrides::default();
    given.change(fields);
    given.apply(disable);
}

fn read_log(log: &mut LogSettings, mut fields: Fields<'_, '_>) {
    set(&mut log.format, parsed(&mut fields, "format", str::parse));
    set(&mut log.filter, parsed(&mut fields, "level", str::parse));
    fields.finish();
}

fn read_listen(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| {
        "must be an IP address and a port, such as 127.0.0.1:8420, 0.0.0.0:8420 or [::1]:8420; \
         port 0 picks a free one"
    })
}

/// An admin key must fit into a header. The message does not repeat the key.
fn read_admin_key(text: &str) -> Result<Secret, String> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.len() > MAX_KEY_CHARS {
        return Err(format!(
            "must have {MIN_KEY_CHARS} to {MAX_KEY_CHARS} visible ASCII characters without spaces"
        ));
    }
    if text.len() < MIN_KEY_CHARS {
        return Err(format!(
            "must have at least {MIN_KEY_CHARS} characters, because shorter keys can be guessed: generate one with `openssl rand -hex 32`, or leave admin_key unset to have the first start generate one"
        ));
    }
    Ok(Secret::new(text))
}

fn read_master_key(fields: &mut Fields<'_, '_>, origin: String) -> Option<MasterKeySource> {
    let text = fields.text("master_key");
    let file = parsed(fields, "master_key_file", read_path);
    let Some(text) = text else {
        return file.map(MasterKeySource::File);
    };
    if file.is_some() {
        fields.wrong(
            "master_key_file",
            "cannot be combined with master_key: set one of them",
        );
    }
    let opened = Vault::open_or_create(KeySource::Text {
        text: text.to_owned(),
        origin: origin.clone(),
    });
    match opened {
        Ok(_) => {}
        Err(VaultError::Malformed { flaw, .. }) => fields.wrong("master_key", flaw.to_string()),
        Err(error) => fields.wrong("master_key", error.to_string()),
    }
    Some(MasterKeySource::Text {
        text: Secret::new(text),
        origin,
    })
}

fn read_ca_bundle(fields: &mut Fields<'_, '_>) -> Option<PathBuf> {
    let path = parsed(fields, "ca_bundle", read_path)?;
    if let Err(message) = read_bundle(&path) {
        fields.wrong("ca_bundle", message);
    }
    Some(path)
}

/// Reads a network, or a single address as a network of one.
fn read_network(item: &Value) -> Result<IpNet, &'static str> {
    let text = item.as_str().unwrap_or_default();
    let network = IpNet::from_str(text).map(|network| network.trunc());
    network
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| "must be a network such as \"10.0.0.0/8\" or \"fd00::/8\", or one address")
}

/// Reads a port from a number, or a port or a range from text.
fn read_ports(item: &Value) -> Result<PortRange, PortRangeError> {
    match (item.as_u64(), item.as_str()) {
        (Some(port), _) => {
            let port = u16::try_from(port).map_err(|_| PortRangeError)?;
            PortRange::new(port, port)
        }
        (None, Some(text)) => text.parse(),
        (None, None) => Err(PortRangeError),
    }
}

fn read_nat64_prefix(item: &Value) -> Result<Nat64Prefix, Nat64PrefixError> {
    item.as_str().unwrap_or_default().parse()
}

/// Reads the name of a preset, or a complete policy. Returns also the form that the API shows.
fn read_policy(fields: &mut Fields<'_, '_>) -> Option<(RetryPolicy, Value)> {
    let written = fields.value("retry_policy")?;
    if written.is_string() {
        let read = |text: &str| match text.trim_start().starts_with('{') {
            true => Err("is not valid JSON".to_owned()),
            false => text.parse::<Preset>().map_err(not_a_preset),
        };
        let preset = parsed(fields, "retry_policy", read)?;
        return Some((preset.policy(), json!({"preset": preset.name()})));
    }
    let policy = fields.object("retry_policy").and_then(RetryPolicy::read)?;
    Some((policy, written.clone()))
}

fn not_a_preset(error: UnknownPreset) -> String {
    format!("{error}. A policy can also be a table or JSON")
}
