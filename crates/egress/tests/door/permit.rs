//! Permits: requests that may start only for a limited time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use posthaste_egress::{LocalFault, Request, SendPermit};

use crate::kit::*;

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
async fn nothing_is_sent_once_it_is_too_late() {
    // 0: invalid when the request is passed to the connection; 1: invalid just before its first byte.
    for times in [0, 1] {
        let mut receiver = Receiver::new(|mut peer| async move {
            assert_eq!(peer.hear_rest().await, b"");
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
async fn nor_on_a_connection_that_was_used_before() {
    let mut receiver = Receiver::answering(OK).await;
    let client = client();
    let first = client
        .send(permitted(&receiver.url(), holding(usize::MAX)))
        .await;
    assert_eq!(status(&first.unwrap()), 200);
    let sent = client.send(permitted(&receiver.url(), holding(1))).await;
    assert_eq!(sent.unwrap_err(), LocalFault::PermitEnded);
    receiver.ended().await;
    assert_eq!(receiver.unasked(), 1);
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn what_has_begun_is_finished() {
    let mut receiver = Receiver::answering(OK).await;
    // More than the socket buffers hold.
    let body = Bytes::from(vec![b'x'; 3_000_000]);
    let request = Request {
        body: body.clone(),
        ..permitted(&receiver.url(), holding(2))
    };
    let report = client().send(request).await.unwrap();
    assert_eq!(status(&report), 200);
    assert!(receiver.heard().await.body == body);
}
