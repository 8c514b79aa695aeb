//! Permits: requests that may start only for a limited time.
//!
//! A node may send only while it holds its lease. No byte is sent after the permit of a request has ended, on a new
//! or on a reused connection. A request that has started is finished.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use posthaste_egress::{LocalFault, Request, SendPermit};

use crate::fixture::*;

/// Creates a permit that is valid for the first `times` checks.
fn holding(times: usize) -> SendPermit {
    let asked = Arc::new(AtomicUsize::new(0));
    SendPermit::new(move || asked.fetch_add(1, Ordering::SeqCst) < times)
}

fn permitted(url: &str, permit: SendPermit) -> Request {
    Request {
        permit: Some(permit),
        ..request(url)
    }
}

#[tokio::test]
async fn nothing_is_sent_after_the_permit_has_ended() {
    // 0: invalid when the request is passed to the connection; 1: invalid just before its first byte.
    for times in [0, 1] {
        let mut receiver = Receiver::new(|mut peer| async move {
            assert_eq!(peer.read_to_end().await, b"");
            Some(())
        })
        .await;
        let sent = client()
            .send(permitted(&receiver.url(), holding(times)))
            .await;
        assert_eq!(sent.unwrap_err(), LocalFault::PermitEnded);
        receiver.ended().await;
    }
}

#[tokio::test]
async fn nothing_is_sent_on_a_reused_connection_after_the_permit_has_ended() {
    let mut receiver = Receiver::answering(OK).await;
    let client = client();
    let first = client
        .send(permitted(&receiver.url(), holding(usize::MAX)))
        .await;
    assert_eq!(status(&first.unwrap()), 200);
    let sent = client.send(permitted(&receiver.url(), holding(1))).await;
    assert_eq!(sent.unwrap_err(), LocalFault::PermitEnded);
    receiver.ended().await;
    assert_eq!(receiver.untaken_requests(), 1);
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_started_request_is_finished_after_the_permit_has_ended() {
    let mut receiver = Receiver::answering(OK).await;
    // More than the socket buffers hold.
    let body = Bytes::from(vec![b'x'; 3_000_000]);
    let request = Request {
        body: body.clone(),
        ..permitted(&receiver.url(), holding(2))
    };
    let report = client().send(request).await.unwrap();
    assert_eq!(status(&report), 200);
    assert!(receiver.received().await.body == body);
}
