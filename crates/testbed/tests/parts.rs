//! Tests of each testbed fixture. A fixture that is wrong makes every test wrong that uses it.

#![allow(
    clippy::disallowed_methods,
    reason = "the testbed is called as nodes and databases are"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use posthaste_testbed::{
    Answer, Api, Database, Direction, Node, PATIENCE, PrivatePostgres, Receiver, StopMode,
    TcpProxy, checks,
};

/// Starts a server that sends back everything that it receives.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut back = stream.try_clone().expect("a second handle");
                let _ = std::io::copy(&mut &stream, &mut back);
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

fn connect(proxy: &TcpProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).expect("the proxy listens");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a time limit");
    stream
}

fn echoed(stream: &mut TcpStream, words: &[u8]) -> Vec<u8> {
    stream.write_all(words).expect("the bytes can be written");
    let mut received = vec![0; words.len()];
    stream
        .read_exact(&mut received)
        .expect("the bytes come back");
    received
}

/// Reads until the connection ends or is reset.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    let mut piece = [0; 1_024];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return received,
            Ok(read) => received.extend(&piece[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return received,
            Err(error) => panic!("the connection was not closed: {error}"),
        }
    }
}

#[test]
fn a_proxy_forwards_everything_until_it_is_cut() {
    let proxy = TcpProxy::to(echo());
    let mut one = connect(&proxy);
    let mut other = connect(&proxy);
    assert_eq!(echoed(&mut one, b"hello"), b"hello");
    assert_eq!(echoed(&mut other, b"hello"), b"hello");
    assert_eq!(
        (proxy.connections(), proxy.passed(Direction::ToDatabase)),
        (2, 10)
    );
    proxy.cut();
    assert_eq!(rest(&mut one), b"");
    assert_eq!(rest(&mut other), b"");
    assert_eq!(echoed(&mut connect(&proxy), b"again"), b"again");
}

#[tokio::test]
async fn a_proxy_is_cut_at_the_exact_byte() {
    for bytes in [0, 1, 7] {
        let proxy = TcpProxy::to(echo());
        let mut one = connect(&proxy);
        assert_eq!(echoed(&mut one, b"hello"), b"hello");
        proxy.cut_after(Direction::FromDatabase, bytes);
        one.write_all(b"0123456789")
            .expect("the bytes can be written");
        assert_eq!(rest(&mut one), b"0123456789"[..bytes]);
        proxy.until_cut().await;

        let mut one = connect(&proxy);
        assert_eq!(echoed(&mut one, b"hello"), b"hello");
        let before = proxy.passed(Direction::ToDatabase);
        proxy.cut_after(Direction::ToDatabase, bytes);
        one.write_all(b"0123456789")
            .expect("the bytes can be written");
        proxy.until_cut().await;
        rest(&mut one);
        assert_eq!(proxy.passed(Direction::ToDatabase) - before, bytes as u64);
    }
}

#[test]
fn a_held_proxy_forwards_nothing_and_later_everything() {
    let proxy = TcpProxy::to(echo());
    let mut stream = connect(&proxy);
    assert_eq!(echoed(&mut stream, b"hello"), b"hello");
    let passed = proxy.passed(Direction::ToDatabase);
    proxy.hold();
    stream
        .write_all(b"lost?")
        .expect("the bytes can be written");
    let soon = Some(Duration::from_millis(50));
    stream.set_read_timeout(soon).expect("a time limit");
    let received = stream.read(&mut [0; 5]).expect_err("no bytes arrive");
    assert_eq!(received.kind(), ErrorKind::WouldBlock);
    assert_eq!(proxy.passed(Direction::ToDatabase), passed);
    proxy.release();
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a time limit");
    let mut received = [0; 5];
    stream.read_exact(&mut received).expect("the held bytes");
    assert_eq!(&received, b"lost?");
}

#[test]
fn a_refusing_proxy_closes_only_new_connections() {
    let proxy = TcpProxy::to(echo());
    let mut old = connect(&proxy);
    assert_eq!(echoed(&mut old, b"hello"), b"hello");
    proxy.refuse();
    assert_eq!(rest(&mut connect(&proxy)), b"");
    assert_eq!(echoed(&mut old, b"still"), b"still");
    proxy.admit();
    assert_eq!(echoed(&mut connect(&proxy), b"hello"), b"hello");
}

#[test]
fn a_database_exists_for_one_test() {
    let database = Database::with_schema();
    database.query("CREATE TABLE words (word text)");
    database.query("INSERT INTO words VALUES ('hello'), (NULL)");
    let words = database.query("SELECT word FROM words");
    assert_eq!(words, [[Some("hello".to_owned())], [None]]);
    let other = Database::with_schema();
    let ours = format!(
        "SELECT count(*) FROM pg_database WHERE datname = '{}'",
        name(&database)
    );
    assert_eq!(other.number(&ours), 1);
    drop(database);
    assert_eq!(other.number(&ours), 0);
}

fn name(database: &Database) -> String {
    let url = database.url();
    url.rsplit('/').next().expect("a name").to_owned()
}

#[test]
fn a_database_is_reached_through_a_proxy() {
    let database = Database::with_schema();
    let proxy = TcpProxy::to(database.address());
    let through = database.url_via_proxy(&proxy);
    assert!(through.contains(&proxy.address().to_string()), "{through}");
    assert!(through.ends_with(&name(&database)), "{through}");
}

#[test]
fn a_private_server_keeps_committed_data_after_a_stop_or_kill() {
    let server = PrivatePostgres::start(&[("fsync", "on"), ("application_name", "it's me")]);
    let database = Database::on(&server);
    assert_eq!(database.query("SHOW fsync"), [[Some("on".to_owned())]]);
    let name = database.query("SHOW application_name");
    assert_eq!(name, [[Some("it's me".to_owned())]]);
    database.query("CREATE TABLE ends (way text)");
    let first = server.pid();
    for stop in [StopMode::Fast, StopMode::Immediate] {
        database.query(&format!("INSERT INTO ends VALUES ('{stop:?}')"));
        server.restart(stop);
    }
    database.query("INSERT INTO ends VALUES ('killed')");
    server.kill();
    server.start_again();
    assert_eq!(database.number("SELECT count(*) FROM ends"), 3);
    assert_ne!(server.pid(), first);
    drop(database);
    let (address, pid) = (server.address(), server.pid());
    drop(server);
    assert!(TcpStream::connect(address).is_err());
    assert!(has_ended(pid));
}

/// Returns true if a process has ended. A zombie counts as ended.
fn has_ended(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    after_name.starts_with('Z')
}

#[tokio::test]
async fn a_receiver_records_path_time_and_duration() {
    let receiver = Receiver::start(|arrival| match arrival.path.as_str() {
        "/slow" => Answer::status(503).after(Duration::from_millis(50)),
        "/never" => Answer::hang(),
        _ => Answer::status(204),
    })
    .await;
    let before = Instant::now();
    let address = receiver.address.to_string();
    let mut api = Api::new(&address, "nobody");
    assert_eq!(api.get("/quick").await.status, 204);
    assert_eq!(api.get("/slow").await.status, 503);
    let never = tokio::spawn(async move { Api::new(&address, "nobody").get("/never").await });
    receiver.arrivals(3).await;
    let slow = receiver.records_at("slow");
    let stayed = slow[0].left_at.expect("an answered request") - slow[0].at;
    assert!(stayed >= Duration::from_millis(50), "{stayed:?}");
    assert!(slow[0].at > before);
    assert_eq!(receiver.records_at("never")[0].left_at, None);
    assert_eq!(checks::max_concurrent(&receiver.records()), 1);
    // A client that disconnects ends its request.
    never.abort();
    let deadline = Instant::now() + PATIENCE;
    while receiver.records_at("never")[0].left_at.is_none() {
        assert!(
            Instant::now() < deadline,
            "the request of a disconnected client did not end"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_node_is_started_frozen_woken_and_stopped() {
    let mut program = Command::new("sh");
    program.args([
        "-c",
        "trap 'echo bye; exit 3' TERM; echo one >&2; echo on http://127.0.0.1:1/.; while :; do sleep 0.01; done",
    ]);
    let mut node = Node::spawn(program);
    assert_eq!(node.address, "127.0.0.1:1");
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", node.pid()))
            .expect("the program runs");
        stat.rsplit_once(") ").expect("a name").1.chars().next()
    };
    node.freeze();
    until(|| state() == Some('T'));
    node.wake();
    until(|| state() != Some('T'));
    assert_eq!(node.stop().code(), Some(3));
    until(|| node.log().contains(&"bye".to_owned()) && node.log().contains(&"one".to_owned()));
}

fn until(wanted: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !wanted() {
        assert!(
            Instant::now() < deadline,
            "the condition did not hold in time"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn a_receiver_knows_which_node_sent_a_request() {
    let receiver = Receiver::healthy().await;
    let address = receiver.address;
    let script = format!(
        "echo on http://127.0.0.1:1/.; exec 3<>/dev/tcp/127.0.0.1/{}; \
         printf 'POST /hook HTTP/1.1\\r\\nhost: it\\r\\ncontent-length: 0\\r\\n\\r\\n' >&3; sleep 60",
        address.port()
    );
    let [one, other] = [(); 2].map(|()| {
        let mut program = Command::new("bash");
        program.args(["-c", &script]);
        Node::spawn(program)
    });
    let records = receiver.arrivals(2).await;
    let mut senders: Vec<_> = records.iter().map(|arrival| arrival.sender).collect();
    senders.sort_unstable();
    let mut nodes = [Some(one.pid()), Some(other.pid())];
    nodes.sort_unstable();
    assert_eq!(senders, nodes);
    Api::new(&address.to_string(), "nobody").get("/hook").await;
    assert_eq!(receiver.records()[2].sender, None);
}
