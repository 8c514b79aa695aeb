//! Which ports may be called.
//!
//! A webhook is plain HTTP bytes, and plenty of services that are not HTTP act on bytes they half
//! understand. Ports of such services, and of consoles nobody means to be called by strangers, are
//! refused on every address. The ports that people really run receivers on (80, 443, 3000, 5000,
//! 8000, 8080, 8443, 9000, …) stay open, and so does everything from which operating systems hand
//! out ephemeral ports.

use std::ops::RangeInclusive;

/// Below this, ports belong to the system's services.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;
/// The only privileged ports that are for the web.
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

/// Whether this port may be called, on any host.
pub(super) fn is_open(port: u16) -> bool {
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
    fn the_list_is_ordered_and_keeps_clear_of_ephemeral_ports() {
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

    #[test]
    fn privileged_ports_are_for_the_web_only() {
        let open: Vec<u16> = (0..FIRST_UNPRIVILEGED_PORT)
            .filter(|port| is_open(*port))
            .collect();
        assert_eq!(open, [80, 443]);
    }

    #[test]
    fn databases_are_closed_and_web_servers_open() {
        for port in [
            2375, 2379, 3306, 5432, 5672, 6379, 6443, 8500, 9092, 9200, 10250, 11211, 15672, 27017,
        ] {
            assert!(!is_open(port), "{port}");
        }
        // What Cloudflare proxies to, and what frameworks and application servers listen on.
        for port in [
            1024, 2052, 2053, 2082, 2083, 2086, 2087, 2095, 2096, 3000, 3001, 4000, 4430, 4443,
            5000, 5001, 7001, 7443, 8000, 8001, 8008, 8080, 8081, 8088, 8123, 8443, 8444, 8880,
            8888, 9000, 9001, 9090, 9443, 10000, 10443,
        ] {
            assert!(is_open(port), "{port}");
        }
    }
}
