//! Writes the response that acknowledges an event.

use std::io::Write;

use posthaste_store::AcceptedEvent;

/// Writes the response for an accepted event. A repeated request gets the same response; the current status
/// of the deliveries is not part of it.
///
/// It is formatted by hand, because it is the most frequent response. Equal to
/// [`AcceptedEvent`](crate::resources::AcceptedEvent) in JSON. Ids, types and times contain no
/// characters that JSON must escape.
pub(super) fn write_accepted(event: &AcceptedEvent, out: &mut Vec<u8>) {
    let infallible = "writing to a vector does not fail";
    write!(
        out,
        r#"{{"id":"{}","type":"{}","created_at":"{}","deliveries":["#,
        event.id, event.event_type, event.created_at
    )
    .expect(infallible);
    for (index, delivery) in event.deliveries.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write!(
            out,
            r#"{{"id":"{}","endpoint_id":"{}","status":"pending"}}"#,
            delivery.id, delivery.endpoint
        )
        .expect(infallible);
    }
    out.extend_from_slice(b"]}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::{self, EventDelivery};
    use posthaste_core::delivery::Status;
    use posthaste_core::id::{DeliveryId, EndpointId, EventId};
    use posthaste_core::time::Timestamp;
    use posthaste_store::AcceptedDelivery;

    #[test]
    fn an_accepted_event_is_written_like_its_resource() {
        let delivery = |number| AcceptedDelivery {
            id: DeliveryId(number),
            endpoint: EndpointId(number + 1),
        };
        let event = AcceptedEvent {
            id: EventId(1),
            event_type: "invoice.paid".parse().expect("a type"),
            created_at: Timestamp(1_794_744_000_000),
            deliveries: vec![delivery(2), delivery(4)],
        };
        let deliveries = event.deliveries.iter().map(|delivery| EventDelivery {
            id: delivery.id.to_string(),
            endpoint_id: delivery.endpoint.to_string(),
            status: Status::Pending,
        });
        let resource = resources::AcceptedEvent {
            id: event.id.to_string(),
            r#type: event.event_type.to_string(),
            created_at: event.created_at.to_string(),
            deliveries: deliveries.collect(),
        };
        let mut written = Vec::new();
        write_accepted(&event, &mut written);
        assert_eq!(written, serde_json::to_vec(&resource).expect("plain data"));
    }
}
