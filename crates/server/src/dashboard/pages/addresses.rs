//! Where deliveries go: the endpoints that a list speaks of, each looked up once.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Deserialize;

use crate::api::code::Code;
use crate::api::problem::Problem;
use crate::dashboard::parts::Listed;
use crate::dashboard::visit::Visit;

/// How many endpoints can be chosen from. Those of a tenant with more are found by their id.
pub(super) const MAX_CHOICES: usize = 100;

/// How an endpoint stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    /// It takes part.
    Enabled,
    /// Somebody holds it.
    Paused,
    /// It takes part no more.
    Disabled,
    /// It is deleted, or was never there.
    #[serde(other)]
    Unknown,
}

/// An endpoint, as far as others speak of it.
#[derive(Clone)]
pub(super) struct Address {
    /// Where it is, unless it is gone.
    pub(super) url: Option<String>,
    /// How it stands.
    pub(super) standing: Standing,
    /// What it is sent beside our own headers.
    pub(super) headers: BTreeMap<String, String>,
}

/// One that is gone.
static GONE: Address = Address {
    url: None,
    standing: Standing::Unknown,
    headers: BTreeMap::new(),
};

#[derive(Deserialize)]
struct Endpoint {
    id: String,
    url: String,
    status: Standing,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Endpoints by their id.
pub(super) struct Addresses {
    known: BTreeMap<String, Address>,
    /// Whether there are more than could be chosen from.
    pub(super) has_more: bool,
}

impl Addresses {
    /// No endpoint yet.
    pub(super) fn none() -> Addresses {
        Addresses {
            known: BTreeMap::new(),
            has_more: false,
        }
    }

    /// The newest endpoints of the tenant: those one can choose from.
    pub(super) async fn newest(visit: &Visit) -> Result<Addresses, Problem> {
        let path = format!("/endpoints?limit={MAX_CHOICES}");
        let listed: Listed<Endpoint> = visit.get(&path).await?;
        let mut addresses = Addresses::none();
        addresses.has_more = listed.next_cursor.is_some();
        for endpoint in listed.data {
            addresses.keep(endpoint);
        }
        Ok(addresses)
    }

    fn keep(&mut self, endpoint: Endpoint) {
        let address = Address {
            url: Some(endpoint.url),
            standing: endpoint.status,
            headers: endpoint.headers,
        };
        self.known.insert(endpoint.id, address);
    }

    /// Looks up those of these that are not known yet. One that is gone is known to be.
    pub(super) async fn look_up(&mut self, visit: &Visit, ids: &[&str]) -> Result<(), Problem> {
        for id in ids {
            if self.known.contains_key(*id) {
                continue;
            }
            match visit.get::<Endpoint>(&format!("/endpoints/{id}")).await {
                Ok(endpoint) => self.keep(endpoint),
                Err(problem) if problem.code == Code::NotFound => {
                    self.known.insert((*id).to_owned(), GONE.clone());
                }
                Err(problem) => return Err(problem),
            }
        }
        Ok(())
    }

    /// An endpoint.
    pub(super) fn of(&self, id: &str) -> &Address {
        self.known.get(id).unwrap_or(&GONE)
    }

    /// Those that one can choose from: ids and what to call them.
    pub(super) fn choices(&self) -> impl Iterator<Item = (&str, &str)> {
        let known = self.known.iter();
        known.filter_map(|(id, address)| Some((id.as_str(), address.url.as_deref()?)))
    }
}

/// An endpoint as a link to its page.
pub(super) fn link(visit: &Visit, id: &str, address: &Address) -> Markup {
    match &address.url {
        Some(url) => html! { a href=(visit.here(&format!("/endpoints/{id}"))) { (url) } },
        None => html! { span { "deleted " code { (id) } } },
    }
}
