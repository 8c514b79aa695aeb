//! Three nodes on PostgreSQL, each behind its own TCP proxy, under the faults of a schedule.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use posthaste_core::rng::Rng;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::{sleep, sleep_until, timeout};

use super::checks::{self, ClosedPeriod, EndpointLimits, Evidence, Fault, Findings};
use super::load::{Load, LoadReport};
use super::report::{ScenarioRow, SoakReport};
use super::schedule::{FaultKind, ScheduledFault, schedule};
use super::{SoakOptions, TENANT};
use crate::{
    ADMIN_KEY, Answer, Api, Arrival, Database, Node, NodeOptions, PrivatePostgres, Receiver,
    StopMode, TcpProxy,
};

/// Number of nodes.
const NODES: usize = 3;
/// Number of endpoints. The last one is disabled and enabled again and again.
const ENDPOINTS: usize = 12;
const SWITCHED: usize = ENDPOINTS - 1;
/// Time for which the last endpoint stays disabled, and enabled.
const SWITCH_PAUSE: Duration = Duration::from_millis(2_500);
/// Maximum time of an answer to a change of an endpoint's status: its time limit of 12 s, and some for the machine.
const STATUS_WITHIN: Duration = Duration::from_secs(14);
/// A fault that lasts longer moves the victim's endpoints to other nodes: the lease and some heartbeats.
const MOVES_AFTER: Duration = Duration::from_secs(9);
/// Time from the end of the load to the checks.
const SETTLE: Duration = Duration::from_secs(1);

const LIMITS: EndpointLimits = EndpointLimits {
    max_in_flight: 4,
    per_second: 200,
    burst: 200,
    max_attempts: 60,
};

/// Returns the limits of an endpoint. Some are near the load.
fn limits(number: usize) -> EndpointLimits {
    match number % 4 {
        1 => EndpointLimits {
            max_in_flight: 1,
            ..LIMITS
        },
        2 => EndpointLimits {
            per_second: 12,
            burst: 12,
            ..LIMITS
        },
        _ => LIMITS,
    }
}

/// Runs the faults of the seed, and returns what happened.
///
/// # Panics
///
/// If the nodes cannot be started, or do not recover after the last fault.
pub async fn run(options: &SoakOptions) -> SoakReport {
    let faults = schedule(options.seed, options.duration, NODES, &options.kinds);
    println!("seed {}: {} faults", options.seed, faults.len());
    for fault in &faults {
        println!("  {fault}");
    }
    let mut soak = ClusterSoak::start(options).await;
    let load = Load::start(ENDPOINTS, options.events_per_second, &soak.addresses);
    let (stop, stopped) = watch::channel(false);
    let switcher = soak.start_switcher(options.seed, stopped);
    let began = Instant::now();
    for fault in &faults {
        sleep_until((began + fault.at).into()).await;
        soak.inject(fault).await;
    }
    sleep_until((began + options.duration).into()).await;
    stop.send_replace(true);
    let switches = switcher.await.expect("no panic");
    let load = load.finish().await;
    sleep(SETTLE).await;
    soak.report(options, &load, &switches).await
}

/// The nodes, and what has happened so far.
struct ClusterSoak {
    /// Before its server, so that it is dropped while the server runs.
    database: Database,
    server: Option<PrivatePostgres>,
    home: TempDir,
    program: std::path::PathBuf,
    proxies: Vec<TcpProxy>,
    nodes: Vec<Node>,
    /// Log lines of earlier processes that report a panic.
    panics: Vec<String>,
    addresses: watch::Sender<Vec<String>>,
    receiver: Receiver,
    endpoints: Vec<String>,
    faults: Vec<(FaultKind, usize, Fault)>,
}

/// Records of the task that disables and enables the last endpoint.
#[derive(Debug, Default)]
struct Switches {
    closed: Vec<ClosedPeriod>,
    /// Durations of the answers.
    answers: Vec<Duration>,
    refused: usize,
    /// Answers after the time limit, with the times of their requests.
    late: Vec<(Instant, Duration)>,
    violations: Vec<String>,
}

impl ClusterSoak {
    async fn start(options: &SoakOptions) -> ClusterSoak {
        let stops_database = FaultKind::OF_DATABASE
            .iter()
            .any(|kind| options.kinds.contains(kind));
        let server = stops_database.then(|| PrivatePostgres::start(&[]));
        let database = server
            .as_ref()
            .map_or_else(Database::with_schema, Database::on);
        let proxies = (0..NODES)
            .map(|_| TcpProxy::to(database.address()))
            .collect();
        let answer = |arrival: &Arrival| {
            let endpoint: usize = arrival
                .path
                .trim_start_matches('/')
                .parse()
                .unwrap_or_default();
            let refuses =
                endpoint % 4 == 3 && arrival.number.is_multiple_of(9) && arrival.attempt() < 4;
            let status = if refuses { 500 } else { 200 };
            Answer::status(status).after(Duration::from_millis(5 + endpoint as u64 * 2))
        };
        let mut soak = ClusterSoak {
            database,
            server,
            home: tempfile::tempdir().expect("a directory"),
            program: options.program.clone(),
            proxies,
            nodes: Vec::new(),
            panics: Vec::new(),
            addresses: watch::Sender::default(),
            receiver: Receiver::start(answer).await,
            endpoints: Vec::new(),
            faults: Vec::new(),
        };
        for node in 0..NODES {
            let started = soak.launch(node);
            soak.nodes.push(started);
        }
        for node in &soak.nodes {
            node.until_ready().await;
        }
        soak.publish_addresses();
        soak.create_endpoints().await;
        soak
    }

    fn launch(&self, node: usize) -> Node {
        let url = self.database.url_via_proxy(&self.proxies[node]);
        let options = NodeOptions::new(&self.program, &url, self.home.path())
            .with(&["--log-level", "info,posthaste::attempt=off"]);
        block_in_place(|| Node::start(&options))
    }

    fn publish_addresses(&self) {
        let addresses = self.nodes.iter().map(|node| node.address.clone());
        self.addresses.send_replace(addresses.collect());
    }

    async fn create_endpoints(&mut self) {
        let mut api = self.nodes[0].api();
        api.tenant(TENANT).await;
        for number in 0..ENDPOINTS {
            let limits = limits(number);
            let fields = json!({
                "url": self.receiver.url_of(&number.to_string()),
                "event_types": [format!("t.{number}")],
                "max_in_flight": limits.max_in_flight,
                "rate_limit": {"per_second": limits.per_second, "burst": limits.burst},
                "retry_policy": {"backoff": {"kind": "fixed", "interval": "200ms"},
                                 "max_attempts": limits.max_attempts},
            });
            let endpoint = api.endpoint(TENANT, fields).await;
            self.endpoints
                .push(endpoint["id"].as_str().expect("an id").to_owned());
        }
    }

    /// Injects a fault and waits until it is over.
    async fn inject(&mut self, fault: &ScheduledFault) {
        let (at, proxy) = (fault.node, &self.proxies[fault.node]);
        let victim = self.nodes[at].pid();
        let began = Instant::now();
        eprintln!(
            "soak: {} of node {at} (process {victim}) for {:?}",
            fault.kind.name(),
            fault.lasts
        );
        match fault.kind {
            FaultKind::Kill | FaultKind::Stop => {
                let node = &mut self.nodes[at];
                let is_kill = fault.kind == FaultKind::Kill;
                block_in_place(|| {
                    if is_kill {
                        node.kill();
                    } else {
                        node.stop();
                    }
                });
                self.panics.extend(panics(&self.nodes[at]));
                sleep(fault.lasts).await;
                self.nodes[at] = self.launch(at);
                self.publish_addresses();
            }
            FaultKind::Freeze => {
                self.nodes[at].freeze();
                sleep(fault.lasts).await;
                self.nodes[at].wake();
            }
            FaultKind::Cut => proxy.cut(),
            FaultKind::CutAfterBytes => {
                let (direction, bytes) = fault.cut_after;
                proxy.cut_after(direction, bytes);
                sleep(fault.lasts).await;
                proxy.cancel_cut();
            }
            FaultKind::BlackHole => {
                proxy.hold();
                sleep(fault.lasts).await;
                proxy.release();
            }
            FaultKind::DeafDatabase => {
                proxy.hold_one_way(crate::Direction::ToDatabase);
                sleep(fault.lasts).await;
                proxy.release();
            }
            FaultKind::DeafNode => {
                proxy.hold_one_way(crate::Direction::FromDatabase);
                sleep(fault.lasts).await;
                proxy.release();
            }
            FaultKind::SlowLink => {
                proxy.delay(fault.delay_ms.clone(), fault.seed);
                sleep(fault.lasts).await;
                proxy.undelay();
            }
            FaultKind::AllSlow => {
                for (number, proxy) in self.proxies.iter().enumerate() {
                    proxy.delay(fault.delay_ms.clone(), fault.seed ^ number as u64);
                }
                sleep(fault.lasts).await;
                self.proxies.iter().for_each(TcpProxy::undelay);
            }
            FaultKind::DatabaseRestart | FaultKind::DatabaseCrash => {
                let server = self.server.as_ref().expect("a private server");
                let crashes = fault.kind == FaultKind::DatabaseCrash;
                block_in_place(|| {
                    if crashes {
                        server.kill();
                    } else {
                        server.stop(StopMode::Fast);
                    }
                });
                sleep(fault.lasts).await;
                block_in_place(|| server.start_again());
            }
        }
        let happened = Fault {
            name: fault.kind.name(),
            victim: (!fault.kind.hits_all()).then_some(victim),
            began,
            ended: Instant::now(),
            explains_duplicates: fault.kind != FaultKind::Stop,
        };
        self.faults.push((fault.kind, at, happened));
    }

    /// Starts the task that disables and enables the last endpoint through any node.
    fn start_switcher(&self, seed: u64, stopped: watch::Receiver<bool>) -> JoinHandle<Switches> {
        let path = format!(
            "/v1/tenants/{TENANT}/endpoints/{}",
            self.endpoints[SWITCHED]
        );
        let addresses = self.addresses.subscribe();
        let mut rng = Rng::seeded(seed ^ 0x5717_c4e5);
        tokio::spawn(async move {
            let mut switches = Switches::default();
            while !*stopped.borrow() {
                if switches.set(&path, "disable", &addresses, &mut rng).await {
                    let from = Instant::now();
                    sleep(SWITCH_PAUSE).await;
                    let until = Instant::now();
                    switches.closed.push(ClosedPeriod { from, until });
                }
                while !switches.set(&path, "enable", &addresses, &mut rng).await {}
                sleep(SWITCH_PAUSE).await;
            }
            switches
        })
    }

    async fn report(
        mut self,
        options: &SoakOptions,
        load: &LoadReport,
        switches: &Switches,
    ) -> SoakReport {
        for node in &self.nodes {
            node.until_ready().await;
        }
        let records = self.receiver.records();
        let limits: Vec<EndpointLimits> = (0..ENDPOINTS).map(limits).collect();
        let faults: Vec<Fault> = self
            .faults
            .iter()
            .map(|(_, _, fault)| fault.clone())
            .collect();
        let evidence = Evidence {
            records: &records,
            load,
            faults: &faults,
            endpoints: &limits,
            switched: Some((SWITCHED, &switches.closed)),
            check_stats: options.check_stats,
        };
        let mut findings = checks::check(&mut self.nodes[0].api(), &evidence).await;
        // What arrived while the checks waited counts, too.
        let records = self.receiver.records();
        for node in &self.nodes {
            self.panics.extend(panics(node));
        }
        let mut report = SoakReport {
            title: format!(
                "Cluster of {NODES} nodes, seed {}, {:?}",
                options.seed, options.duration
            ),
            rows: rows(&self.faults, &findings, &records, load),
            ..SoakReport::default()
        };
        let kills = self
            .faults
            .iter()
            .filter(|(kind, _, _)| *kind == FaultKind::Kill);
        report.total("faults", self.faults.len());
        report.total("kills", kills.count());
        report.total("events accepted", load.events.len());
        report.total("deliveries", findings.deliveries);
        report.total("requests received", records.len());
        report.total("refused or unanswered", load.refused + load.unanswered);
        report.total("disables and enables answered", switches.answers.len());
        report.total("of them refused", switches.refused);
        let slowest = switches.answers.iter().max().copied().unwrap_or_default();
        report.total("slowest of them", format!("{:.2} s", slowest.as_secs_f64()));
        // A frozen node answers when it is resumed.
        let was_frozen = |at: Instant| {
            let frozen = self
                .faults
                .iter()
                .filter(|(kind, _, _)| *kind == FaultKind::Freeze);
            let during = |fault: &Fault| fault.began <= at + STATUS_WITHIN && at <= fault.ended;
            frozen.into_iter().any(|(_, _, fault)| during(fault))
        };
        let late = switches.late.iter().filter(|(at, _)| !was_frozen(*at));
        let late = late.map(|(_, took)| format!("a change of the status took {took:?}"));
        report.violations.extend(late);
        report.total("lost", findings.lost);
        report.total(
            "duplicates with a cause",
            findings.duplicates.values().sum::<usize>(),
        );
        report.total("duplicates without a cause", findings.unexplained);
        report.violations.append(&mut findings.violations);
        report
            .violations
            .extend(switches.violations.iter().cloned());
        let panics = self.panics.iter().map(|line| format!("panic: {line}"));
        report.violations.extend(panics);
        report
    }
}

impl Switches {
    /// Asks a node to disable or enable the endpoint. Returns true if that was acknowledged.
    async fn set(
        &mut self,
        path: &str,
        verb: &str,
        addresses: &watch::Receiver<Vec<String>>,
        rng: &mut Rng,
    ) -> bool {
        let address = rng.pick(&addresses.borrow()).clone();
        let mut api = Api::new(&address, ADMIN_KEY);
        let began = Instant::now();
        let path = format!("{path}/{verb}");
        let call = timeout(2 * STATUS_WITHIN, api.try_call("POST", &path, None)).await;
        let took = began.elapsed();
        if call.is_ok() && took > STATUS_WITHIN {
            self.late.push((began, took));
        }
        let reply = match call {
            // The node was killed, or is being started.
            Ok(None) => {
                sleep(Duration::from_millis(50)).await;
                return false;
            }
            // A frozen node answers later.
            Err(_) => return false,
            Ok(Some(reply)) => reply,
        };
        self.answers.push(took);
        match reply.status {
            200 => true,
            503 => {
                self.refused += 1;
                let says_so =
                    reply.text.contains("may have") || reply.text.contains("Nothing was changed");
                if !says_so {
                    let text = format!("a 503 does not say what took effect: {}", reply.text);
                    self.violations.push(text);
                }
                false
            }
            other => {
                self.violations
                    .push(format!("{verb} was answered {other}: {}", reply.text));
                false
            }
        }
    }
}

/// Returns the log lines of a node that report a panic.
fn panics(node: &Node) -> Vec<String> {
    let mut log = node.log();
    log.retain(|line| line.contains("panicked"));
    log
}

/// Sums up the faults by kind.
fn rows(
    faults: &[(FaultKind, usize, Fault)],
    findings: &Findings,
    records: &[Arrival],
    load: &LoadReport,
) -> Vec<ScenarioRow> {
    let mut by_endpoint: BTreeMap<&str, Vec<&Arrival>> = BTreeMap::new();
    for arrival in records {
        by_endpoint.entry(&arrival.path).or_default().push(arrival);
    }
    by_endpoint.remove(format!("/{SWITCHED}").as_str());
    let mut rows: BTreeMap<FaultKind, ScenarioRow> = BTreeMap::new();
    for (index, (kind, node, fault)) in faults.iter().enumerate() {
        let row = rows.entry(*kind).or_default();
        row.name = kind.name();
        row.count += 1;
        row.duplicates += findings.duplicates.get(&index).copied().unwrap_or_default();
        row.fail_overs.extend(fail_over(fault, &by_endpoint));
        row.stalls.extend(stall(fault, &by_endpoint));
        if !kind.hits_all() {
            row.other_accepts
                .extend(accepts_elsewhere(fault, *node, load));
        }
    }
    rows.into_values().collect()
}

/// Returns the time until another node had sent to each endpoint that the victim served.
fn fail_over(fault: &Fault, by_endpoint: &BTreeMap<&str, Vec<&Arrival>>) -> Option<Duration> {
    if fault.ended - fault.began < MOVES_AFTER {
        return None;
    }
    let victim = fault.victim?;
    let taken_over = by_endpoint.values().filter_map(|arrivals| {
        let before = arrivals.iter().rfind(|arrival| arrival.at < fault.began)?;
        if before.sender != Some(victim) {
            return None;
        }
        let after = arrivals.iter().find(|arrival| {
            arrival.at > fault.began && arrival.sender.is_some_and(|sender| sender != victim)
        });
        after.map(|arrival| arrival.at - fault.began)
    });
    taken_over.max()
}

/// Returns the longest time that an endpoint got nothing during a fault.
fn stall(fault: &Fault, by_endpoint: &BTreeMap<&str, Vec<&Arrival>>) -> Option<Duration> {
    let gaps = by_endpoint.values().flat_map(|arrivals| {
        let pairs = arrivals.windows(2);
        let during = pairs.filter(|pair| pair[0].at <= fault.ended && fault.began <= pair[1].at);
        during.map(|pair| pair[1].at.duration_since(pair[0].at))
    });
    gaps.max()
}

/// Returns the time within which 99 of 100 accepts were answered by the nodes that a fault did not hit.
fn accepts_elsewhere(fault: &Fault, node: usize, load: &LoadReport) -> Option<Duration> {
    let during = |at: Instant| fault.began <= at && at <= fault.ended;
    let accepted = load.accepted.iter();
    let accepted = accepted.filter(|it| it.node != node && during(it.sent_at));
    let mut times: Vec<Duration> = accepted.map(|it| it.took).collect();
    times.sort_unstable();
    times
        .get((times.len() * 99 / 100).min(times.len().saturating_sub(1)))
        .copied()
}
