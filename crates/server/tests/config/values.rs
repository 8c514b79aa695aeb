//! Something to set each setting to.

/// Three values of each setting, none of them the default but where there are only two.
pub(crate) const VALUES: &[(&str, [&str; 3])] = &[
    ("listen", ["127.0.0.1:1", "127.0.0.1:2", "[::1]:3"]),
    ("store", ["sqlite:a.db", "sqlite:b.db", "sqlite:c.db"]),
    ("role", ["api", "worker", "api"]),
    ("lease", ["3s", "7s", "10s"]),
    (
        "store_listen",
        ["postgres://a@b/c", "postgres://a@b/d", "postgres://a@b/e"],
    ),
    ("store_connections", ["1", "2", "5"]),
    ("admin_key", ["a", "b", "c"]),
    (
        "master_key",
        [
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "CAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        ],
    ),
    ("master_key_file", ["a.key", "b.key", "c.key"]),
    (
        "trusted_proxy",
        ["10.0.0.0/8", "127.0.0.0/8,::1", "10.1.2.3"],
    ),
    (
        "allow_network",
        ["10.0.0.0/8", "127.0.0.0/8,::1", "10.1.2.3"],
    ),
    (
        "deny_network",
        ["192.0.2.0/24", "1.1.1.1/32,2000::/3", "9.9.9.9"],
    ),
    ("allow_port", ["25", "5432,9000-9100", "1-65535"]),
    ("deny_port", ["8080", "1-442,444-65535", "3000"]),
    (
        "nat64_prefix",
        [
            "64:ff9b::/96",
            "2001:db8::/32,64:ff9b:1::/48",
            "64:ff9b:1::/56",
        ],
    ),
    ("allow_http", ["true", "false", "true"]),
    ("ca_bundle", ["a.pem", "b.pem", "c.pem"]),
    (
        "egress_proxy",
        ["http://a:1", "https://u:p@b", "http://[::1]:3128"],
    ),
    ("egress_proxy_resolves", ["true", "false", "true"]),
    (
        "retry_policy",
        [
            "swift",
            "brisk",
            "{\"preset\": \"swift\", \"max_attempts\": 3}",
        ],
    ),
    ("retention", ["1d", "2d", "3d"]),
    ("grace", ["0s", "2s", "3s"]),
    (
        "public_url",
        ["https://a.example", "http://b.example:8420", "http://[::1]"],
    ),
    ("limits.body_bytes", ["1024", "2048", "4096"]),
    ("limits.batch_body_bytes", ["1024", "2048", "4096"]),
    ("limits.connections", ["1", "2", "3"]),
    ("limits.header_read_time", ["1s", "2s", "3s"]),
    ("limits.requests_per_second", ["1", "2", "3"]),
    ("limits.request_burst", ["1", "2", "3"]),
    ("tenant_limits.endpoints", ["0", "2", "3"]),
    ("tenant_limits.events_per_second", ["1", "none", "3"]),
    ("tenant_limits.max_attempts", ["10", "20", "40"]),
    ("dashboard.enabled", ["false", "true", "false"]),
    ("dashboard.session", ["1h", "2h", "3h"]),
    ("portal.name", ["Acme", "Globex", "Initech"]),
    ("portal.logo", ["a.svg", "b.png", "c.webp"]),
    ("portal.accent", ["#000000", "#111111", "#222222"]),
    ("portal.accent_dark", ["#eeeeee", "#dddddd", "#cccccc"]),
    (
        "portal.frame_ancestors",
        [
            "https://a.example",
            "https://b.example,https://*.b.example",
            "http://c.example:3000",
        ],
    ),
    ("engine.max_in_flight", ["1", "2", "3"]),
    ("engine.ready_per_lane", ["1", "2", "3"]),
    ("engine.retry_after_cap", ["0s", "2s", "3s"]),
    ("breaker.window", ["1s", "2s", "3s"]),
    ("breaker.min_samples", ["1", "2", "3"]),
    ("breaker.failure_ratio", ["0.25", "1", "0.75"]),
    ("breaker.consecutive_failures", ["1", "2", "3"]),
    ("breaker.exhausted_deliveries", ["1", "2", "3"]),
    ("breaker.first_wait", ["1s", "2s", "3s"]),
    ("breaker.longest_wait", ["10s", "20s", "30s"]),
    (
        "mail.server",
        [
            "smtp://mx.example",
            "smtps://user:password@mx.example:2465",
            "smtp://[::1]:25",
        ],
    ),
    ("mail.password", ["a", "b", "c"]),
    ("mail.tls", ["required", "implicit", "none"]),
    (
        "mail.from",
        ["a@b.example", "posthaste <a@b.example>", "c@d.example"],
    ),
    (
        "mail.to",
        ["a@b.example", "a@b.example,c@d.example", "e@f.example"],
    ),
    ("mail.every", ["0s", "1m", "1h"]),
    ("log.format", ["human", "json", "human"]),
    (
        "log.level",
        ["off", "debug", "warn,posthaste::attempt=info"],
    ),
];
