//! Receivers: endpoints on this machine that record what arrives and answer as configured.
//!
//! Connections are distributed over threads that share only the recorder, so that receiving takes little processor time
//! from the measured process. One in `VERIFY_ONE_IN` signatures is verified, so that unsigned requests cannot count
//! as fast.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use posthaste_core::sign::{
    SignedMessage, SigningKey, SigningKeys, TOLERANCE_SECONDS, VerifyingKeys,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::{mpsc, watch};

use super::error::BenchError;
use super::faults::{Answer, FaultInjector};
use super::payload::{self, MAX_PAYLOAD_BYTES};
use super::recorder::Recorder;

/// Number of signatures of which one is verified.
const VERIFY_ONE_IN: u64 = 256;
/// Maximum number of connections that wait for a thread.
const MAX_HANDED_OVER: usize = 1_024;

/// The behaviour of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Behaviour {
    /// Answers 200 immediately.
    Healthy = 0,
    /// Answers 503 immediately.
    Down = 1,
    /// Answers 200 after [`HANG_DURATION`].
    Hanging = 2,
    /// Answers 400 immediately to every second event, by number, and 200 to the others.
    RefusesOdd = 3,
}

/// Response time of a hanging endpoint.
pub const HANG_DURATION: Duration = Duration::from_secs(30);

/// The state of one endpoint.
#[derive(Default)]
struct Endpoint {
    behaviour: AtomicU8,
    keys: OnceLock<VerifyingKeys>,
    /// Decides the answers instead of the behaviour, if it is set.
    faults: OnceLock<Mutex<FaultInjector>>,
    arrivals: AtomicU64,
}

struct Shared {
    recorder: Arc<Recorder>,
    endpoints: Vec<Endpoint>,
    /// Arrival times of all requests, successful or not, by endpoint. Filled only while `records_arrival_times` is set.
    arrival_times: Mutex<Vec<(usize, u64)>>,
    records_arrival_times: AtomicBool,
}

/// The receivers of one run. They stop when this value is dropped.
pub struct Receivers {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Receivers {
    /// Starts one endpoint for each endpoint of the recorder, all with [`Behaviour::Healthy`].
    pub fn start(recorder: Arc<Recorder>) -> Result<Receivers, BenchError> {
        let cannot = BenchError::machine;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")
            .map_err(cannot("cannot open the receivers"))?;
        let address = listener
            .local_addr()
            .map_err(cannot("cannot open the receivers"))?;
        listener
            .set_nonblocking(true)
            .map_err(cannot("cannot open the receivers"))?;
        let endpoints = (0..recorder.endpoints()).map(|_| Endpoint::default());
        let shared = Arc::new(Shared {
            endpoints: endpoints.collect(),
            recorder,
            arrival_times: Mutex::default(),
            records_arrival_times: AtomicBool::new(false),
        });
        let (stop, stopped) = watch::channel(false);
        let mut threads = Vec::new();
        let mut queues = Vec::new();
        for _ in 0..threads_to_use() {
            let (queue, sockets) = mpsc::channel(MAX_HANDED_OVER);
            queues.push(queue);
            let shared = Arc::clone(&shared);
            threads.push(spawn(stopped.clone(), receive(shared, sockets))?);
        }
        threads.push(spawn(stopped, distribute_connections(listener, queues))?);
        Ok(Receivers {
            address,
            shared,
            stop,
            threads,
        })
    }

    /// Returns the address that all endpoints share.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of an endpoint.
    pub fn url(&self, endpoint: usize) -> String {
        format!("http://{}/{endpoint}", self.address)
    }

    /// Sets the secret of an endpoint, for verifying signatures.
    pub fn trust(&self, endpoint: usize, secret: &str) -> Result<(), BenchError> {
        let keys = SigningKey::parse(secret).and_then(|key| SigningKeys::new(vec![key]));
        let keys =
            keys.map_err(|error| BenchError::Broken(format!("no usable secret: {error}")))?;
        let _ = self.shared.endpoints[endpoint]
            .keys
            .set(keys.verifying_keys());
        Ok(())
    }

    /// Changes the behaviour of an endpoint from now on.
    pub fn set_behaviour(&self, endpoint: usize, behaviour: Behaviour) {
        let current = &self.shared.endpoints[endpoint].behaviour;
        current.store(behaviour as u8, Ordering::Release);
    }

    /// Lets these faults decide all answers of an endpoint. They cannot be replaced.
    pub fn inject_faults(&self, endpoint: usize, faults: FaultInjector) {
        let _ = self.shared.endpoints[endpoint]
            .faults
            .set(Mutex::new(faults));
    }

    /// Returns the answers that the injected faults of an endpoint have given so far, in order.
    pub fn answers(&self, endpoint: usize) -> Vec<Answer> {
        let faults = self.shared.endpoints[endpoint].faults.get();
        let answers = faults.map(|faults| {
            let faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
            faults.answers().to_vec()
        });
        answers.unwrap_or_default()
    }

    /// Starts to record the arrival time of every request, successful or not.
    pub fn record_arrival_times(&self) {
        self.shared
            .records_arrival_times
            .store(true, Ordering::Release);
    }

    /// Returns the recorded arrival times of an endpoint, in order.
    pub fn arrival_times(&self, endpoint: usize) -> Vec<u64> {
        let kept = self.shared.arrival_times.lock();
        let kept = kept.unwrap_or_else(PoisonError::into_inner);
        let of = kept.iter().filter(|(to, _)| *to == endpoint);
        let mut arrival_times: Vec<u64> = of.map(|(_, time)| *time).collect();
        arrival_times.sort_unstable();
        arrival_times
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Returns the number of threads for receiving: half of the cores, because the others send.
fn threads_to_use() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(1)
}

/// Starts a thread that runs a future until the receivers are dropped.
fn spawn(
    mut stopped: watch::Receiver<bool>,
    work: impl Future<Output = ()> + Send + 'static,
) -> Result<JoinHandle<()>, BenchError> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BenchError::machine("cannot start a thread"))?;
    let run = move || {
        runtime.block_on(async {
            tokio::select! {
                () = work => {}
                _ = stopped.changed() => {}
            }
        });
    };
    std::thread::Builder::new()
        .name("receiver".to_owned())
        .spawn(run)
        .map_err(BenchError::machine("cannot start a thread"))
}

/// Distributes connections over the threads in turn.
async fn distribute_connections(
    listener: std::net::TcpListener,
    queues: Vec<mpsc::Sender<std::net::TcpStream>>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    for queue in queues.iter().cycle() {
        let Ok((socket, _)) = listener.accept().await else {
            continue;
        };
        let Ok(socket) = socket.into_std() else {
            continue;
        };
        if queue.send(socket).await.is_err() {
            return;
        }
    }
}

async fn receive(shared: Arc<Shared>, mut sockets: mpsc::Receiver<std::net::TcpStream>) {
    while let Some(socket) = sockets.recv().await {
        let Ok(socket) = TcpStream::from_std(socket) else {
            continue;
        };
        let _ = socket.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&shared), request));
            // Errors of the sender are ignored: events that it did not send will be missing in the recorder.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let arrived_at = shared.recorder.now();
    let (head, body) = request.into_parts();
    let status = match Limited::new(body, MAX_PAYLOAD_BYTES).collect().await {
        Ok(body) => {
            let index = head.uri.path().trim_start_matches('/').parse().ok();
            shared
                .take(index, &head.headers, &body.to_bytes(), arrived_at)
                .await
        }
        Err(_) => StatusCode::BAD_REQUEST,
    };
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    Ok(response)
}

impl Shared {
    async fn take(
        &self,
        index: Option<usize>,
        headers: &HeaderMap,
        body: &Bytes,
        arrived_at: u64,
    ) -> StatusCode {
        let endpoint = index.and_then(|index| Some((index, self.endpoints.get(index)?)));
        let Some((index, endpoint)) = endpoint else {
            self.recorder.record_unexpected("a request to no endpoint");
            return StatusCode::NOT_FOUND;
        };
        if self.records_arrival_times.load(Ordering::Acquire) {
            let mut arrival_times = self
                .arrival_times
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            arrival_times.push((index, arrived_at));
        }
        let behaviour = endpoint.behaviour.load(Ordering::Acquire);
        if behaviour == Behaviour::Down as u8 {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        if behaviour == Behaviour::Hanging as u8 {
            tokio::time::sleep(HANG_DURATION).await;
            // The sender may have timed out long ago, so this does not count as an arrival.
            return StatusCode::OK;
        }
        let Some(number) = payload::number(body) else {
            self.recorder
                .record_unexpected("a body that was changed on its way");
            return StatusCode::BAD_REQUEST;
        };
        if behaviour == Behaviour::RefusesOdd as u8 && !number.is_multiple_of(2) {
            return StatusCode::BAD_REQUEST;
        }
        if let Some(faults) = endpoint.faults.get() {
            let (status, latency) = {
                let mut faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
                (faults.answer(arrived_at, number), faults.latency())
            };
            tokio::time::sleep(latency).await;
            if status != StatusCode::OK {
                return status;
            }
        }
        let nth = endpoint.arrivals.fetch_add(1, Ordering::Relaxed);
        if nth.is_multiple_of(VERIFY_ONE_IN)
            && let Err(why) = verify(endpoint, headers, body)
        {
            self.recorder.record_bad_signature(&why);
        }
        self.recorder.record_arrival(index, number);
        StatusCode::OK
    }
}

fn verify(endpoint: &Endpoint, headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let text = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.ok_or_else(|| format!("there is no {name}"))
    };
    let message = SignedMessage {
        id: text("webhook-id")?,
        timestamp: text("webhook-timestamp")?,
        signatures: text("webhook-signature")?,
        body,
    };
    let keys = endpoint.keys.get().ok_or("no secret was agreed on")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let verified = keys.verify(&message, now, TOLERANCE_SECONDS);
    verified.map_err(|error| error.to_string())
}
