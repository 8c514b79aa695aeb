//! Writes the response that acknowledges an event.

use std::io::Write;

use posthaste_store::AcceptedEvent;

use crate::resources::MAX_DELIVERIES_ACKNOWLEDGED;

/// Writes the response for an accepted event. A repeated request gets the same response; the current status
/// of the deliveries is not part of it. Lists at most [`MAX_DELIVERIES_ACKNOWLEDGED`] deliveries, and takes them from
/// `room`, the number of deliveries that the response may still list.
///
/// It is formatted by hand, because it is the most frequent response. Equal to
/// [`AcceptedEvent`](crate::resources::AcceptedEvent) in JSON. Ids, types and times contain no
/// characters that JSON must escape.
pub(super) fn write_accepted(event: &AcceptedEvent, room: &mut usize, out: &mut Vec<u8>) {
    let infallible = "writing to a vector does not fail";
    write!(
        out,
        r#"{{"id":"{}","type":"{}","created_at":"{}","delivery_count":{},"deliveries":["#,
        event.id, event.event_type, event.created_at, event.delivery_count
    )
    .expect(infallible);
    let most = MAX_DELIVERIES_ACKNOWLEDGED.min(*room);
    let listed = event.deliveries.iter().take(most);
    *room -= listed.len();
    for (index, delivery) in listed.enumerate() {
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
    use crate::resources::{self, EventDelivery, MAX_DELIVERIES_OF_BATCH};
    use posthaste_core::delivery::Status;
    use posthaste_core::id::{DeliveryId, EndpointId, EventId};
    use posthaste_core::time::Timestamp;
    use posthaste_store::AcceptedDelivery;

    fn event(deliveries: u128) -> AcceptedEvent {
        let delivery = |number| AcceptedDelivery {
            id: DeliveryId(2 * number),
            endpoint: EndpointId(2 * number + 1),
        };
        AcceptedEvent {
            id: EventId(1),
            event_type: "invoice.paid".parse().expect("a type"),
            created_at: Timestamp(1_794_744_000_000),
            delivery_count: deliveries as usize,
            deliveries: (1..=deliveries).map(delivery).collect(),
        }
    }

    #[test]
    fn an_accepted_event_is_written_like_its_resource() {
        for (count, listed) in [(0, 0), (2, 2), (100, 100), (101, 100), (5_000, 100)] {
            let event = event(count);
            let deliveries = event.deliveries.iter().map(|delivery| EventDelivery {
                id: delivery.id.to_string(),
                endpoint_id: delivery.endpoint.to_string(),
                status: Status::Pending,
            });
            let resource = resources::AcceptedEvent {
                id: event.id.to_string(),
                r#type: event.event_type.to_string(),
                created_at: event.created_at.to_string(),
                delivery_count: count as u64,
                deliveries: deliveries.take(listed).collect(),
            };
            let mut written = Vec::new();
            let mut room = MAX_DELIVERIES_OF_BATCH;
            write_accepted(&event, &mut room, &mut written);
            let expected = serde_json::to_vec(&resource).expect("plain data");
            assert_eq!(written, expected, "{count} deliveries");
        }
    }

    #[test]
    fn the_deliveries_of_a_batch_are_bounded() {
        let (mut room, mut written) = (150, Vec::new());
        for left in [50, 0, 0] {
            write_accepted(&event(100), &mut room, &mut written);
            assert_eq!(room, left);
        }
        let written = String::from_utf8(written).expect("JSON");
        assert_eq!(written.matches("endpoint_id").count(), 150);
        assert_eq!(written.matches(r#""delivery_count":100"#).count(), 3);
    }
}
