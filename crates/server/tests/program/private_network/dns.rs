//! A name server on loopback that answers each name with the test's replies and records all queries.
//!
//! It takes the place of the machine's recursive resolver: it follows aliases itself. Every answer has a TTL of zero.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Maximum length of an answer over UDP. A longer one is truncated, and the resolver asks again over TCP.
const MAX_UDP_BYTES: usize = 512;
const HEAD_BYTES: usize = 12;
/// Maximum number of aliases in an answer.
const MAX_ALIASES: usize = 16;
const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_AAAA: u16 = 28;

/// The answer to one lookup of a name.
#[derive(Clone)]
pub(crate) enum Reply {
    /// The addresses of the name. The list may be empty.
    Addresses(Vec<IpAddr>),
    /// The name is an alias of this name.
    Alias(&'static str),
    /// An error code: 2 for a server failure, 3 for no such name, 5 for refused.
    Code(u8),
    /// No answer.
    Silence,
    /// An answer with the wrong id.
    WrongId(Vec<IpAddr>),
    /// First a forged answer with another id, then the right one.
    Forged(Vec<IpAddr>, Vec<IpAddr>),
    /// An answer that is cut off without the truncation flag.
    Garbage,
}

pub(crate) const SERVER_FAILED: Reply = Reply::Code(2);
pub(crate) const NO_SUCH_NAME: Reply = Reply::Code(3);
pub(crate) const NOT_FOR_YOU: Reply = Reply::Code(5);

/// A reply with these addresses.
pub(crate) fn addresses(list: &str) -> Reply {
    Reply::Addresses(parsed(list))
}

/// Parses a list of addresses.
pub(crate) fn parsed(list: &str) -> Vec<IpAddr> {
    let parse = |address: &str| address.parse().expect("an address");
    list.split_whitespace().map(parse).collect()
}

/// The answers to the lookups of a name, in order.
struct Script {
    replies: Vec<Reply>,
    /// True if they start again after the last one. Otherwise the last one is repeated.
    again: bool,
    lookups: usize,
}

impl Script {
    fn current(&self) -> &Reply {
        let nth = self.lookups.saturating_sub(1);
        let last = self.replies.len() - 1;
        let nth = if self.again {
            nth % self.replies.len()
        } else {
            nth.min(last)
        };
        &self.replies[nth]
    }
}

#[derive(Default)]
struct Zone {
    scripts: HashMap<String, Script>,
    asked: Vec<String>,
    over_tcp: usize,
}

/// The name server. An unknown name does not exist, unless it ends in a search domain: such a name has a public
/// address.
#[derive(Clone, Default)]
pub(crate) struct NameServer(Arc<Mutex<Zone>>);

/// Address of all names below the search domains.
pub(crate) const SEARCHED: &str = "45.60.0.99";

impl NameServer {
    /// Starts the server at the address that the machine's resolver uses.
    pub(crate) async fn start() -> NameServer {
        let server = NameServer::default();
        let socket = UdpSocket::bind("127.0.0.1:53").await.expect("port 53");
        let listener = TcpListener::bind("127.0.0.1:53").await.expect("port 53");
        tokio::spawn(server.clone().serve_udp(socket));
        tokio::spawn(server.clone().accept(listener));
        server
    }

    /// Answers the lookups of a name with these replies in order, and then always with the last one.
    pub(crate) fn set_replies(&self, name: &str, replies: &[Reply]) {
        self.script(name, replies, false);
    }

    /// Answers the lookups of a name with these replies in turn.
    pub(crate) fn alternate(&self, name: &str, replies: &[Reply]) {
        self.script(name, replies, true);
    }

    fn script(&self, name: &str, replies: &[Reply], again: bool) {
        let script = Script {
            replies: replies.to_vec(),
            again,
            lookups: 0,
        };
        let mut zone = self.0.lock().expect("the mutex is not poisoned");
        zone.scripts.insert(name.to_owned(), script);
    }

    /// Every name that was queried, once per query.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.0
            .lock()
            .expect("the mutex is not poisoned")
            .asked
            .clone()
    }

    /// Number of queries over TCP.
    pub(crate) fn over_tcp(&self) -> usize {
        self.0.lock().expect("the mutex is not poisoned").over_tcp
    }

    /// Every address that any name has had.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let zone = self.0.lock().expect("the mutex is not poisoned");
        let replies = zone.scripts.values().flat_map(|script| &script.replies);
        replies
            .flat_map(|reply| match reply {
                Reply::Addresses(list) | Reply::WrongId(list) => list.clone(),
                Reply::Forged(first, second) => [first.as_slice(), second].concat(),
                Reply::Alias(_) | Reply::Code(_) | Reply::Silence | Reply::Garbage => Vec::new(),
            })
            .collect()
    }

    async fn serve_udp(self, socket: UdpSocket) {
        let mut question = [0; MAX_UDP_BYTES];
        while let Ok((length, from)) = socket.recv_from(&mut question).await {
            for mut answer in self.answers(&question[..length], false) {
                if answer.len() > MAX_UDP_BYTES {
                    answer = cut(answer);
                }
                let _ = socket.send_to(&answer, from).await;
            }
        }
    }

    async fn accept(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(self.clone().converse(stream));
        }
    }

    async fn converse(self, mut stream: TcpStream) -> Option<()> {
        loop {
            let length = stream.read_u16().await.ok()?;
            let mut question = vec![0; usize::from(length)];
            stream.read_exact(&mut question).await.ok()?;
            for answer in self.answers(&question, true) {
                stream.write_u16(answer.len().try_into().ok()?).await.ok()?;
                stream.write_all(&answer).await.ok()?;
            }
        }
    }

    /// Returns the answers to one query: one, none or several.
    fn answers(&self, question: &[u8], over_tcp: bool) -> Vec<Vec<u8>> {
        let Some(question) = Question::read(question) else {
            return Vec::new();
        };
        let mut zone = self.0.lock().expect("the mutex is not poisoned");
        zone.asked.push(question.name.clone());
        zone.over_tcp += usize::from(over_tcp);
        // A lookup queries IPv4 first, then IPv6, and repeats a query over TCP if needed.
        if question.kind == TYPE_A
            && !over_tcp
            && let Some(script) = zone.scripts.get_mut(&question.name)
        {
            script.lookups += 1;
        }
        zone.answer(&question)
    }
}

impl Zone {
    fn answer(&self, question: &Question) -> Vec<Vec<u8>> {
        let reply = self.reply(&question.name);
        match &reply {
            Reply::Silence => Vec::new(),
            Reply::Code(code) => vec![question.answer(*code, &[])],
            Reply::Garbage => {
                let mut answer = question.answer(0, &[Record::Address(parsed("45.60.0.1")[0])]);
                answer.truncate(answer.len() - 7);
                vec![answer]
            }
            Reply::WrongId(list) => vec![question.forged(list)],
            Reply::Forged(first, second) => {
                vec![question.forged(first), question.addresses(second)]
            }
            Reply::Addresses(list) => vec![question.addresses(list)],
            Reply::Alias(_) => vec![question.answer(0, &self.follow(reply))],
        }
    }

    fn reply(&self, name: &str) -> Reply {
        match self.scripts.get(name) {
            Some(script) => script.current().clone(),
            None if name.ends_with(".evil.internal") || name.ends_with(".corp") => {
                addresses(SEARCHED)
            }
            None => NO_SUCH_NAME,
        }
    }

    /// Follows a chain of aliases to its end.
    fn follow(&self, mut reply: Reply) -> Vec<Record> {
        let mut records = Vec::new();
        while let Reply::Alias(next) = reply
            && records.len() < MAX_ALIASES
        {
            records.push(Record::Alias(next));
            reply = self.reply(next);
        }
        if let Reply::Addresses(list) = reply {
            records.extend(list.into_iter().map(Record::Address));
        }
        records
    }
}

enum Record {
    Address(IpAddr),
    Alias(&'static str),
}

struct Question {
    id: u16,
    name: String,
    kind: u16,
    /// The bytes of the question, which the answer repeats.
    written: Vec<u8>,
}

impl Question {
    fn read(bytes: &[u8]) -> Option<Question> {
        let id = u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]);
        let mut labels = Vec::new();
        let mut at = HEAD_BYTES;
        loop {
            let length = usize::from(*bytes.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            let label = bytes.get(at..at + length)?;
            labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
            at += length;
        }
        let kind = u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]);
        Some(Question {
            id,
            name: labels.join("."),
            kind,
            written: bytes.get(HEAD_BYTES..at + 4)?.to_vec(),
        })
    }

    fn addresses(&self, list: &[IpAddr]) -> Vec<u8> {
        let records: Vec<Record> = list.iter().copied().map(Record::Address).collect();
        self.answer(0, &records)
    }

    fn forged(&self, list: &[IpAddr]) -> Vec<u8> {
        let mut answer = self.addresses(list);
        answer[0] ^= 0xff;
        answer
    }

    fn answer(&self, code: u8, records: &[Record]) -> Vec<u8> {
        let wanted = |record: &&Record| match record {
            Record::Address(IpAddr::V4(_)) => self.kind == TYPE_A,
            Record::Address(IpAddr::V6(_)) => self.kind == TYPE_AAAA,
            Record::Alias(_) => true,
        };
        let records: Vec<&Record> = records.iter().filter(wanted).collect();
        let count = u16::try_from(records.len()).expect("not so many");
        let mut answer = Vec::new();
        answer.extend(self.id.to_be_bytes());
        // Flags: a response, recursion desired and available.
        answer.extend([0x81, 0x80 | code, 0, 1]);
        answer.extend(count.to_be_bytes());
        answer.extend([0; 4]);
        answer.extend(&self.written);
        let mut owner = self.name.as_str();
        for record in records {
            answer.extend(encoded(owner));
            let (kind, data) = match record {
                Record::Address(IpAddr::V4(address)) => (TYPE_A, address.octets().to_vec()),
                Record::Address(IpAddr::V6(address)) => (TYPE_AAAA, address.octets().to_vec()),
                Record::Alias(name) => {
                    owner = name;
                    (TYPE_CNAME, encoded(name))
                }
            };
            answer.extend(kind.to_be_bytes());
            // Class IN, TTL zero.
            answer.extend([0, 1, 0, 0, 0, 0]);
            let length = u16::try_from(data.len()).expect("short");
            answer.extend(length.to_be_bytes());
            answer.extend(data);
        }
        answer
    }
}

fn encoded(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).expect("a label"));
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// Truncates an answer that is too long to its head and question, and sets the truncation flag.
fn cut(mut answer: Vec<u8>) -> Vec<u8> {
    const CUT: u8 = 0x02;
    let question = Question::read(&answer).expect("we wrote it");
    answer[2] |= CUT;
    answer[6..HEAD_BYTES].fill(0);
    answer.truncate(HEAD_BYTES + question.written.len());
    answer
}
