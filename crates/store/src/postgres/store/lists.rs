//! [`Lists`] of a [`PostgresStore`].

use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};

use super::PostgresStore;
use crate::postgres::connection::PgConnection;
use crate::postgres::read::{dead_letters, lists};
use crate::read_duration::ReadDuration;
use crate::{
    Answer, AttemptEntry, DeadLetterGroup, DeadLetterGroupKey, DeliveryFilter, EventFilter, Lists,
    Page, PageRequest, StoredDelivery, StoredEvent,
};

impl Lists for PostgresStore {
    fn event(&self, tenant: TenantId, event: EventId) -> Answer<Option<StoredEvent>> {
        self.read(ReadDuration::Quick, async move |conn: &PgConnection| {
            lists::event(conn, &tenant, event).await
        })
    }

    fn events(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        page: PageRequest<EventId>,
    ) -> Answer<Page<StoredEvent, EventId>> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            lists::events(conn, &tenant, &filter, page).await
        })
    }

    fn delivery(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
    ) -> Answer<Option<(StoredDelivery, Vec<AttemptEntry>)>> {
        self.read_whole(ReadDuration::Quick, async move |conn: &PgConnection| {
            lists::delivery(conn, &tenant, delivery).await
        })
    }

    fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        page: PageRequest<DeliveryId>,
    ) -> Answer<Page<StoredDelivery, DeliveryId>> {
        self.read_whole(ReadDuration::Long, async move |conn: &PgConnection| {
            lists::deliveries(conn, &tenant, &filter, page).await
        })
    }

    fn dead_letter_groups(
        &self,
        tenant: TenantId,
        endpoint: Option<EndpointId>,
        page: PageRequest<DeadLetterGroupKey>,
    ) -> Answer<Page<DeadLetterGroup, DeadLetterGroupKey>> {
        self.read_whole(ReadDuration::Long, async move |conn: &PgConnection| {
            dead_letters::dead_letter_groups(conn, &tenant, endpoint, page).await
        })
    }
}
