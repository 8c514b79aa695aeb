//! HTTP requests without a browser, as a program or an attacker sends them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::Full;
use posthaste_egress::Roots;
use posthaste_egress::operator::{self, Connection, Origin};
use posthaste_testbed::PATIENCE;

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl HttpResponse {
    /// Returns a header, or an empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().expect("text"))
    }

    /// Returns the links of a page to this server.
    pub(crate) fn links(&self) -> Vec<String> {
        let parts = self.body.split("href=\"").skip(1);
        let links = parts.filter_map(|part| part.split('"').next());
        let links = links.filter(|link| link.starts_with('/') && !link.starts_with("//"));
        let links = links.map(|link| link.replace("&amp;", "&"));
        links
            .map(|link| link.split('#').next().unwrap_or_default().to_owned())
            .collect()
    }

    /// Returns the value of a hidden field.
    pub(crate) fn hidden(&self, name: &str) -> String {
        let field = format!("name=\"{name}\" value=\"");
        let (_, rest) = self.body.split_once(&field).expect("a hidden field");
        rest.split('"').next().expect("an end").to_owned()
    }
}

/// Sends requests to one address.
pub(crate) struct Caller {
    origin: Origin,
    connection: Option<Connection>,
    /// Headers of every request.
    pub(crate) headers: Vec<(String, String)>,
}

impl Caller {
    pub(crate) fn of(address: &str) -> Caller {
        Caller {
            origin: format!("http://{address}").parse().expect("an address"),
            connection: None,
            headers: Vec::new(),
        }
    }

    /// Adds a header to every request.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Caller {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) async fn get(&mut self, path: &str) -> HttpResponse {
        self.send("GET", path, &[], "").await
    }

    /// Submits a form.
    pub(crate) async fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        form: &str,
    ) -> HttpResponse {
        let kind = ("content-type", "application/x-www-form-urlencoded");
        let headers: Vec<(&str, &str)> = headers.iter().copied().chain([kind]).collect();
        self.send("POST", path, &headers, form).await
    }

    async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpResponse {
        // The server may have closed an idle connection, so the second try uses a new one.
        for _ in 0..2 {
            if self.connection.is_none() {
                let connected = operator::connect(&self.origin, &Roots::none(), PATIENCE).await;
                self.connection = Some(connected.expect("the server listens"));
            }
            let mut request = Request::builder().method(method).uri(path);
            let own = self.headers.iter();
            let own = own.map(|(name, value)| (name.as_str(), value.as_str()));
            for (name, value) in own.chain(headers.iter().copied()) {
                request = request.header(name, value);
            }
            let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
            let request = request.body(body).expect("a request");
            let connection = self.connection.as_mut().expect("it was just opened");
            match connection.send(request, PATIENCE).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    return HttpResponse {
                        status: head.status.as_u16(),
                        headers: head.headers,
                        body: String::from_utf8_lossy(&body).into_owned(),
                    };
                }
                Err(_) => self.connection = None,
            }
        }
        panic!("{method} {path} is not answered");
    }

    /// Follows all links from this page that start with `below`. Returns each page with its response.
    pub(crate) async fn walk(
        &mut self,
        start: &str,
        below: &str,
    ) -> BTreeMap<String, HttpResponse> {
        let mut found = BTreeMap::new();
        let mut waiting = VecDeque::from([start.to_owned()]);
        while let Some(link) = waiting.pop_front() {
            if found.contains_key(&link) {
                continue;
            }
            let answer = self.get(&link).await;
            let mut links = answer.links();
            if (300..400).contains(&answer.status) {
                links.push(answer.header("location").to_owned());
            }
            waiting.extend(links.into_iter().filter(|link| link.starts_with(below)));
            found.insert(link, answer);
            assert!(
                found.len() < MOST_PAGES,
                "the walk does not end: {:?}",
                found.keys()
            );
        }
        found
    }
}

/// More pages than any fixture of these tests has.
const MOST_PAGES: usize = 500;
