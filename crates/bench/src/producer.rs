//! Producers: clients that send events at full speed or at a given rate.
//!
//! Each connection sends one request, waits for the response and sends the next, as an application's connection pool
//! does. The number of connections therefore limits the outstanding requests. All connections run on one separate
//! thread. Any response other than 202 fails the run, so that refused events cannot count as fast.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use posthaste_egress::trusted_client;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::error::BenchError;
use super::payload;
use super::recorder::Recorder;

/// Number of events in a batch.
pub const BATCH: usize = 1_000;
/// Maximum time to wait for a response.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Maximum length of an error response in a failure message.
const MAX_ERROR_CHARS: usize = 300;

/// The API that events are sent to.
#[derive(Clone)]
pub struct ApiTarget {
    /// Address of the relay or the server.
    pub address: SocketAddr,
    /// The tenant that the events belong to.
    pub tenant: String,
    /// API key of the tenant.
    pub key: String,
}

/// The events to send.
#[derive(Clone)]
pub struct Load {
    /// Numbers of the events.
    pub events: Range<usize>,
    /// Events per second; `None` for full speed.
    pub per_second: Option<f64>,
    /// Number of concurrent requests.
    pub connections: usize,
    /// Length of each payload, in bytes.
    pub payload_bytes: usize,
    /// The type of each event, by its number.
    pub event_type: Arc<dyn Fn(usize) -> Arc<str> + Send + Sync>,
}

impl Load {
    /// Returns a function that gives all events the same type.
    pub fn same_type(name: &str) -> Arc<dyn Fn(usize) -> Arc<str> + Send + Sync> {
        let name: Arc<str> = name.into();
        Arc::new(move |_| Arc::clone(&name))
    }
}

/// Sends events one by one on a separate thread until all are answered.
pub async fn produce(
    target: &ApiTarget,
    load: Load,
    recorder: &Arc<Recorder>,
) -> Result<(), BenchError> {
    let mode = Mode::Single(Arc::clone(recorder));
    Producer::new(target, "events", load, mode)?.run().await
}

/// Sends events in batches at full speed. `accepted` counts the accepted ones.
pub async fn produce_batches(
    target: &ApiTarget,
    load: Load,
    accepted: Arc<AtomicUsize>,
) -> Result<(), BenchError> {
    let mode = Mode::Batches(accepted);
    let producer = Producer::new(target, "events/batch", load, mode)?;
    producer.run().await
}

/// Size of the requests, with the record of the accepted events.
enum Mode {
    Single(Arc<Recorder>),
    Batches(Arc<AtomicUsize>),
}

/// Everything that the connections of one load share.
struct Producer {
    template: RequestTemplate,
    counter: Counter,
    load: Load,
    mode: Mode,
}

impl Producer {
    fn new(
        target: &ApiTarget,
        resource: &str,
        load: Load,
        mode: Mode,
    ) -> Result<Producer, BenchError> {
        let path = format!("/v1/tenants/{}/{resource}", target.tenant);
        Ok(Producer {
            template: RequestTemplate::new(target, &path)?,
            counter: Counter::new(load.events.clone()),
            load,
            mode,
        })
    }

    /// Sends all events on a separate thread.
    async fn run(self) -> Result<(), BenchError> {
        let producer = Arc::new(self);
        on_own_thread(move || async move {
            let start = Instant::now();
            let mut connections = JoinSet::new();
            for _ in 0..producer.load.connections.max(1) {
                let producer = Arc::clone(&producer);
                connections.spawn(async move {
                    let sent = match &producer.mode {
                        Mode::Single(recorder) => producer.send_single(recorder, start).await,
                        Mode::Batches(accepted) => producer.send_batches(accepted).await,
                    };
                    producer.counter.stop_if_failed(sent)
                });
            }
            join_all(connections).await
        })
        .await
    }

    async fn send_single(&self, recorder: &Recorder, start: Instant) -> Result<(), BenchError> {
        let load = &self.load;
        let mut connection = self.template.dial().await?;
        while let Some(numbers) = self.counter.take(1) {
            let number = numbers.start;
            if let Some(per_second) = load.per_second {
                let nth = number - load.events.start;
                sleep_until(start + Duration::from_secs_f64(nth as f64 / per_second)).await;
            }
            let body = payload::event(&(load.event_type)(number), number, load.payload_bytes);
            recorder.record_sent(number);
            self.template.post(&mut connection, body).await?;
            recorder.record_accepted(number);
        }
        Ok(())
    }

    async fn send_batches(&self, accepted: &AtomicUsize) -> Result<(), BenchError> {
        let mut connection = self.template.dial().await?;
        while let Some(numbers) = self.counter.take(BATCH) {
            let names: Vec<(Arc<str>, usize)> = numbers
                .clone()
                .map(|number| ((self.load.event_type)(number), number))
                .collect();
            let events = names.iter().map(|(name, number)| (&**name, *number));
            let body = payload::batch(events, self.load.payload_bytes);
            self.template.post(&mut connection, body).await?;
            accepted.fetch_add(numbers.len(), Ordering::Relaxed);
        }
        Ok(())
    }
}

async fn join_all(mut connections: JoinSet<Result<(), BenchError>>) -> Result<(), BenchError> {
    let mut outcome = Ok(());
    while let Some(ended) = connections.join_next().await {
        let ended = ended.unwrap_or_else(|panic| Err(BenchError::Broken(panic.to_string())));
        outcome = outcome.and(ended);
    }
    outcome
}

/// Runs a future on a separate thread and waits for its result.
pub async fn on_own_thread<W, F>(work: W) -> Result<(), BenchError>
where
    W: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<(), BenchError>>,
{
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BenchError::machine("cannot start a thread"))?;
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("producer".to_owned())
        .spawn(move || {
            let _ = sender.send(runtime.block_on(work()));
        })
        .map_err(BenchError::machine("cannot start a thread"))?;
    receiver
        .await
        .unwrap_or_else(|_| Err(BenchError::Broken("a producer panicked".to_owned())))
}

/// Hands out event numbers, and stops after a failure.
struct Counter {
    next: AtomicUsize,
    end: usize,
    failed: AtomicBool,
}

impl Counter {
    fn new(range: Range<usize>) -> Counter {
        Counter {
            next: AtomicUsize::new(range.start),
            end: range.end,
            failed: AtomicBool::new(false),
        }
    }

    /// Takes up to `most` numbers.
    fn take(&self, most: usize) -> Option<Range<usize>> {
        let start = self.next.fetch_add(most, Ordering::Relaxed);
        let failed = self.failed.load(Ordering::Relaxed);
        (start < self.end && !failed).then(|| start..self.end.min(start + most))
    }

    fn stop_if_failed(&self, outcome: Result<(), BenchError>) -> Result<(), BenchError> {
        if outcome.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        outcome
    }
}

/// The parts that all requests have in common.
struct RequestTemplate {
    address: SocketAddr,
    uri: Uri,
    host: HeaderValue,
    authorization: HeaderValue,
}

impl RequestTemplate {
    fn new(target: &ApiTarget, path: &str) -> Result<RequestTemplate, BenchError> {
        let header = |value: String| {
            let refused = |_| BenchError::Usage(format!("{value:?} cannot be a header"));
            HeaderValue::from_str(&value).map_err(refused)
        };
        Ok(RequestTemplate {
            address: target.address,
            uri: path
                .parse()
                .map_err(|_| BenchError::Usage(format!("{path:?} is no path")))?,
            host: header(target.address.to_string())?,
            authorization: header(format!("Bearer {}", target.key))?,
        })
    }

    async fn dial(&self) -> Result<SendRequest<Full<Bytes>>, BenchError> {
        trusted_client::dial(self.address)
            .await
            .map_err(|error| self.unanswered(&error))
    }

    fn unanswered(&self, error: &dyn std::error::Error) -> BenchError {
        BenchError::Unanswered {
            what: format!("POST {}", self.uri.path()),
            why: error.to_string(),
        }
    }

    /// Sends one request and reads the complete response.
    async fn post(
        &self,
        connection: &mut SendRequest<Full<Bytes>>,
        body: String,
    ) -> Result<(), BenchError> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(AUTHORIZATION, self.authorization.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let exchange = async {
            connection.ready().await?;
            let (head, body) = connection.send_request(request).await?.into_parts();
            Ok((head.status, body.collect().await?.to_bytes()))
        };
        let answered: Result<_, hyper::Error> = timeout(MAX_WAIT, exchange)
            .await
            .map_err(|late| self.unanswered(&late))?;
        let (status, answer) = answered.map_err(|error| self.unanswered(&error))?;
        if status == StatusCode::ACCEPTED {
            return Ok(());
        }
        let answer = String::from_utf8_lossy(&answer);
        Err(BenchError::Refused {
            what: format!("POST {}", self.uri.path()),
            status: status.as_u16(),
            answer: answer.chars().take(MAX_ERROR_CHARS).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_handed_out_once() {
        let counter = Counter::new(5..12);
        let ranges: Vec<_> = std::iter::from_fn(|| counter.take(3)).collect();
        assert_eq!(ranges, [5..8, 8..11, 11..12]);
    }

    #[test]
    fn a_failure_stops_the_other_connections() {
        let counter = Counter::new(0..10);
        assert!(counter.take(1).is_some());
        let failed = Err(BenchError::Broken("x".to_owned()));
        assert!(counter.stop_if_failed(failed).is_err());
        assert_eq!(counter.take(1), None);
    }
}
