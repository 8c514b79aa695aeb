//! Ports that may be called.
//!
//! A webhook request can do harm at services that do not speak HTTP but act on bytes they partly understand. Ports
//! of such services, and of admin consoles that are not meant for strangers, are refused on every address. The
//! ports that receivers commonly use (80, 443, 3000, 5000, 8000, 8080, 8443, 9000, …) are allowed, and so are the
//! ephemeral ports of operating systems. The operator's lists take precedence.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use thiserror::Error;

use super::EgressRules;

/// A port or a range of ports in the operator's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// The text is not a port or a range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be a port from 1 to 65535, or a range such as \"9000-9100\"")]
pub struct PortRangeError;

impl PortRange {
    /// Creates the range from `first` to `last`. Nothing listens on port 0, so no range may contain it.
    pub fn new(first: u16, last: u16) -> Result<PortRange, PortRangeError> {
        if first == 0 || last < first {
            return Err(PortRangeError);
        }
        Ok(PortRange { first, last })
    }

    /// Returns true if the range contains the port.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<PortRange, PortRangeError> {
        let port = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            let port = is_plain.then(|| text.parse().ok()).flatten();
            port.ok_or(PortRangeError)
        };
        match text.split_once('-') {
            Some((first, last)) => PortRange::new(port(first.trim())?, port(last.trim())?),
            None => PortRange::new(port(text)?, port(text)?),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return write!(formatter, "{}", self.first);
        }
        write!(formatter, "{}-{}", self.first, self.last)
    }
}

/// Ports below this one are privileged: they belong to system services.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;
/// The only privileged ports for web servers.
const WEB_PORTS: [u16; 2] = [80, 443];

/// Services that no webhook is meant for, in ascending order.
const INTERNAL_SERVICES: &[(RangeInclusive<u16>, &str)] = &[
    (1080..=1080, "SOCKS proxy"),
    (1099..=1099, "Java RMI"),
    (1414..=1414, "IBM MQ"),
    (1433..=1434, "Microsoft SQL Server"),
    (1521..=1521, "Oracle database"),
    (1719..=1720, "H.323"),
    (1723..=1723, "PPTP"),
    (1883..=1883, "MQTT"),
    (2049..=2049, "NFS"),
    (2181..=2181, "ZooKeeper"),
    (2375..=2377, "Docker"),
    (2379..=2380, "etcd"),
    (3050..=3050, "Firebird"),
    (3128..=3128, "Squid proxy"),
    (3260..=3260, "iSCSI"),
    (3268..=3269, "Active Directory"),
    (3306..=3306, "MySQL"),
    (3389..=3389, "remote desktop"),
    (3659..=3659, "Apple SASL"),
    (3690..=3690, "Subversion"),
    (4045..=4045, "NFS lock daemon"),
    (4190..=4190, "ManageSieve"),
    (4222..=4222, "NATS"),
    (4369..=4369, "Erlang port mapper"),
    (4646..=4648, "Nomad"),
    (4848..=4848, "GlassFish console"),
    (5005..=5005, "Java debugger"),
    (5044..=5044, "Logstash"),
    (5060..=5061, "SIP"),
    (5353..=5353, "multicast DNS"),
    (5355..=5355, "LLMNR"),
    (5432..=5433, "PostgreSQL"),
    (5439..=5439, "Redshift"),
    (5555..=5555, "Android debugger"),
    (5601..=5601, "Kibana"),
    (5671..=5672, "AMQP"),
    (5900..=5910, "VNC"),
    (5984..=5986, "CouchDB and WinRM"),
    (6000..=6010, "X11"),
    (6033..=6033, "ProxySQL"),
    (6379..=6380, "Redis"),
    (6432..=6432, "PgBouncer"),
    (6443..=6443, "Kubernetes"),
    (6566..=6566, "SANE"),
    (6665..=6669, "IRC"),
    (6679..=6679, "IRC"),
    (6697..=6697, "IRC"),
    (7199..=7199, "Cassandra JMX"),
    (7474..=7474, "Neo4j"),
    (7687..=7687, "Neo4j"),
    (7946..=7946, "Docker swarm"),
    (8009..=8009, "AJP"),
    (8086..=8086, "InfluxDB"),
    (8089..=8089, "Splunk management"),
    (8161..=8161, "ActiveMQ console"),
    (8200..=8201, "Vault"),
    (8300..=8302, "Consul"),
    (8500..=8503, "Consul"),
    (8529..=8529, "ArangoDB"),
    (8600..=8600, "Consul DNS"),
    (8983..=8983, "Solr"),
    (9042..=9042, "Cassandra"),
    (9092..=9094, "Kafka"),
    (9160..=9160, "Cassandra"),
    (9200..=9200, "Elasticsearch"),
    (9300..=9300, "Elasticsearch"),
    (9418..=9418, "git"),
    (9990..=9990, "JBoss management"),
    (10080..=10080, "Amanda"),
    (10248..=10259, "Kubernetes"),
    (11210..=11211, "Couchbase and memcached"),
    (15671..=15672, "RabbitMQ management"),
    (16379..=16379, "Redis cluster"),
    (19530..=19530, "Milvus"),
    (25672..=25672, "RabbitMQ cluster"),
    (26257..=26257, "CockroachDB"),
    (26379..=26379, "Redis sentinel"),
    (27017..=27020, "MongoDB"),
    (28015..=28015, "RethinkDB"),
    (28017..=28017, "MongoDB console"),
];

impl EgressRules {
    /// Returns true if this port may be called, on any host. `deny_ports` win over `allow_ports`, which win over
    /// the built-in list. Port 0 is never allowed.
    pub fn allows_port(&self, port: u16) -> bool {
        let is_in = |ranges: &[PortRange]| ranges.iter().any(|range| range.contains(port));
        if port == 0 || is_in(&self.deny_ports) {
            return false;
        }
        is_in(&self.allow_ports) || is_open(port)
    }
}

/// Returns true if the built-in list allows this port.
fn is_open(port: u16) -> bool {
    if port < FIRST_UNPRIVILEGED_PORT {
        return WEB_PORTS.contains(&port);
    }
    !INTERNAL_SERVICES
        .iter()
        .any(|(ports, _)| ports.contains(&port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_list_is_sorted_and_has_no_ephemeral_ports() {
        const FIRST_EPHEMERAL_PORT: u16 = 32_768;
        let mut last = FIRST_UNPRIVILEGED_PORT;
        for (ports, service) in INTERNAL_SERVICES {
            assert!(
                last < *ports.start() && ports.start() <= ports.end(),
                "{service}"
            );
            last = *ports.end();
        }
        assert!(last < FIRST_EPHEMERAL_PORT);
        assert!((FIRST_EPHEMERAL_PORT..=u16::MAX).all(is_open));
    }

    fn ranges(list: &[&str]) -> Vec<PortRange> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn deny_list_precedes_allow_list_precedes_table() {
        let rules = EgressRules {
            allow_ports: ranges(&["5432", "1-100"]),
            deny_ports: ranges(&["25", "443", "8000-8100", "6379"]),
            ..EgressRules::default()
        };
        let ours = (0..=u16::MAX).filter(|port| rules.allows_port(*port));
        let expected = (1..=u16::MAX).filter(|port| match port {
            25 | 443 | 8000..=8100 => false,
            1..=100 | 5432 => true,
            port => is_open(*port),
        });
        assert!(ours.eq(expected));
        let all = EgressRules {
            allow_ports: ranges(&["1-65535"]),
            ..EgressRules::default()
        };
        assert!((1..=u16::MAX).all(|port| all.allows_port(port)));
        assert!(!all.allows_port(0), "port 0 is never allowed");
    }

    #[test]
    fn a_range_is_two_ports_in_order() {
        for (text, shown) in [
            ("1", "1"),
            ("65535", "65535"),
            ("80-80", "80"),
            ("1 - 9", "1-9"),
        ] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), shown);
        }
        for text in [
            "", "0", "0-5", "9-1", "65536", "-1", "1-", "-", "+80", "80-90-95", "http", "8 0",
        ] {
            assert_eq!(text.parse::<PortRange>(), Err(PortRangeError), "{text}");
        }
    }

    #[test]
    fn privileged_ports_are_refused_except_http_and_https() {
        let open: Vec<u16> = (0..FIRST_UNPRIVILEGED_PORT)
            .filter(|port| is_open(*port))
            .collect();
        assert_eq!(open, [80, 443]);
    }

    #[test]
    fn database_ports_are_refused_and_web_ports_allowed() {
        for port in [
            2375, 2379, 3306, 5432, 5672, 6379, 6443, 8500, 9092, 9200, 10250, 11211, 15672, 27017,
        ] {
            assert!(!is_open(port), "{port}");
        }
        // Ports that Cloudflare proxies to, and that frameworks and application servers listen on.
        for port in [
            1024, 2052, 2053, 2082, 2083, 2086, 2087, 2095, 2096, 3000, 3001, 4000, 4430, 4443,
            5000, 5001, 7001, 7443, 8000, 8001, 8008, 8080, 8081, 8088, 8123, 8443, 8444, 8880,
            8888, 9000, 9001, 9090, 9443, 10000, 10443,
        ] {
            assert!(is_open(port), "{port}");
        }
    }
}
