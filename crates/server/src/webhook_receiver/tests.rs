//! Tests of the receiver over real connections.

use super::*;
use posthaste_egress::Roots;
use posthaste_egress::trusted_client::{self, BaseUrl, TrustedClientError};

/// Timeout that only a bug exceeds.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

async fn post(
    listener: &ReceiverServer,
    body: impl Into<Bytes>,
) -> Result<Response<Bytes>, TrustedClientError> {
    let origin = BaseUrl::plain(listener.address());
    let mut connection = trusted_client::connect(&origin, &Roots::none(), TEST_TIMEOUT).await?;
    let request = Request::post("/hook")
        .header("posthaste-attempt", "2")
        .header("posthaste-event-type", "invoice.paid")
        .body(Full::new(body.into()));
    connection.send(request.unwrap(), TEST_TIMEOUT).await
}

fn always(failure: Answer) -> Behaviour {
    Behaviour {
        fails: FailureCondition::Always,
        failure,
        ..Behaviour::healthy()
    }
}

#[tokio::test]
async fn it_reports_each_request_with_its_answer() {
    let failing = always(Answer::status(429).retry_after(Span::from_millis(1_500)));
    let (listener, mut request) = ReceiverServer::start(ReceiverSettings::local(failing)).unwrap();
    let answer = post(&listener, "{}").await.unwrap();
    assert_eq!(answer.status(), 429);
    // 1.5 s is rounded up: a retry after 1 s would be too early.
    assert_eq!(answer.headers()[RETRY_AFTER], "2");
    let request = request.recv().await.unwrap();
    assert_eq!((request.number, request.attempt()), (1, Some(2)));
    assert_eq!(request.event_type(), Some("invoice.paid"));
    assert_eq!(
        (request.path.as_str(), &request.body[..]),
        ("/hook", &b"{}"[..])
    );
    assert_eq!(
        (request.answer, request.check),
        (failing.failure, SignatureCheck::Unchecked)
    );
    assert_eq!(
        (listener.totals().requests, listener.totals().failed()),
        (1, 1)
    );
}

#[tokio::test]
async fn its_behaviour_can_be_changed() {
    let (listener, request) =
        ReceiverServer::start(ReceiverSettings::local(Behaviour::healthy())).unwrap();
    // The reader of the channel is dropped, and the receiver continues.
    drop(request);
    assert_eq!(post(&listener, "").await.unwrap().status(), 200);
    listener.set_behaviour(always(Answer::status(500)));
    assert_eq!(post(&listener, "").await.unwrap().status(), 500);
    assert_eq!(listener.totals().succeeded, 1);
}

#[tokio::test]
async fn it_reports_requests_that_it_never_answers() {
    let hanging = always(Answer::Hang);
    let (listener, mut request) = ReceiverServer::start(ReceiverSettings::local(hanging)).unwrap();
    tokio::select! {
        _ = post(&listener, "x") => panic!("it answered"),
        request = request.recv() => assert_eq!(request.unwrap().answer, Answer::Hang),
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let (listener, _request) =
        ReceiverServer::start(ReceiverSettings::local(Behaviour::healthy())).unwrap();
    let answer = post(&listener, vec![b'x'; MAX_BODY_BYTES + 1]).await;
    // The receiver may close the connection before the sender has read the answer.
    let status = answer.map(|answer| answer.status().as_u16());
    assert!(
        matches!(status, Ok(413) | Err(TrustedClientError::Broken(_))),
        "{status:?}"
    );
    let answer = post(&listener, vec![b'x'; MAX_BODY_BYTES]).await;
    assert_eq!(answer.unwrap().status(), 200);
}

#[tokio::test]
async fn a_receiver_that_is_down_refuses_connections_and_comes_back_on_its_port() {
    let settings = ReceiverSettings {
        opens_after: Span::from_hours(1),
        ..ReceiverSettings::local(Behaviour::healthy())
    };
    let (closed, _request) = ReceiverServer::start(settings).unwrap();
    let refused = post(&closed, "").await;
    assert!(matches!(refused, Err(TrustedClientError::NotConnected(_))));

    let settings = ReceiverSettings {
        opens_after: Span::from_millis(1),
        ..ReceiverSettings::local(Behaviour::healthy())
    };
    let (opening, _request) = ReceiverServer::start(settings).unwrap();
    let opened = tokio::time::timeout(TEST_TIMEOUT, async {
        loop {
            match post(&opening, "").await {
                Ok(answer) => break answer,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    });
    assert_eq!(opened.await.unwrap().status(), 200);
}

#[tokio::test]
async fn dropping_it_closes_its_connections() {
    let (listener, _request) =
        ReceiverServer::start(ReceiverSettings::local(Behaviour::healthy())).unwrap();
    let origin = BaseUrl::plain(listener.address());
    let mut connection = trusted_client::connect(&origin, &Roots::none(), TEST_TIMEOUT)
        .await
        .unwrap();
    let get = || Request::get("/").body(Full::default()).unwrap();
    assert_eq!(
        connection.send(get(), TEST_TIMEOUT).await.unwrap().status(),
        200
    );
    drop(listener);
    assert!(matches!(
        connection.send(get(), TEST_TIMEOUT).await,
        Err(TrustedClientError::Broken(_))
    ));
}

#[test]
fn requests_are_counted_by_the_second() {
    let mut state = State {
        behaviour: Behaviour::rate_limiting(2, Span::from_secs(1)),
        rng: Rng::seeded(1),
        request_count: 0,
        second: (0, 0),
        totals: RequestTotals::default(),
    };
    let taken = [0, 400, 900, 1_000, 1_100, 1_200, 5_000]
        .map(|at| state.decide(None, Span::from_millis(at)).1.is_success());
    assert_eq!(taken, [true, true, false, true, true, false, true]);
}
