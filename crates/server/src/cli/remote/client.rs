//! The API, asked over one connection.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use posthaste_egress::Roots;
use posthaste_egress::operator::{self, Connection, Origin};
use serde_json::Value;

use super::args::ConnectArgs;
use super::trouble::Problem;
use super::{Trouble, input};

/// How long the server may take to be reached, and again to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often something that is followed is asked for before that is given up.
const MAX_LOOKS: u32 = 5;
/// How long to wait for a server that is gone.
const PAUSE: Duration = Duration::from_secs(1);

/// A request to the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// How.
    pub method: Method,
    /// Where, with the query.
    pub target: String,
    /// What is said: JSON.
    pub body: Option<String>,
}

impl Call {
    /// A question without a body.
    pub fn get(target: impl Into<String>) -> Call {
        Call {
            method: Method::GET,
            target: target.into(),
            body: None,
        }
    }
}

/// What the API answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// As it came.
    pub text: String,
    /// The same, read; `Null` if it said nothing.
    pub value: Value,
}

/// Asks the API.
pub struct Client {
    origin: Origin,
    roots: Roots,
    bearer: HeaderValue,
    connection: Option<Connection>,
}

impl Client {
    /// A client that asks as it was told to.
    pub fn new(connect: &ConnectArgs) -> Result<Client, Trouble> {
        let key = connect.key.as_deref().map(str::trim).unwrap_or_default();
        if key.is_empty() {
            return Err(Trouble::NoKey);
        }
        // What is wrong with a key is said without the key.
        let mut bearer = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| {
            Trouble::Input("the key is not one: it holds characters that no key has".to_owned())
        })?;
        bearer.set_sensitive(true);
        let mut roots = Roots::mozilla();
        if let Some(path) = &connect.ca {
            let bundle = input::read(path)?;
            let with = roots.with_bundle(&bundle);
            roots = with.map_err(|error| Trouble::Input(format!("{path}: {error}")))?;
        }
        Ok(Client {
            origin: connect.server.clone(),
            roots,
            bearer,
            connection: None,
        })
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&mut self, call: &Call) -> Result<Answer, Trouble> {
        let request = self.request(call);
        let answered = match self.connected().await {
            Ok(connection) => connection.send(request, PATIENCE).await,
            Err(why) => Err(why),
        };
        let response = answered.map_err(|why| {
            self.connection = None;
            Trouble::Unreached {
                origin: self.origin.clone(),
                why,
            }
        })?;
        let (status, body) = (response.status(), response.body());
        if !status.is_success() {
            return Err(match Problem::read(status, response.headers(), body) {
                Some(problem) => Trouble::Refused(Box::new(problem)),
                None => self.stranger(status),
            });
        }
        let text = std::str::from_utf8(body).map_err(|_| self.stranger(status))?;
        let value = match text.trim() {
            "" => Value::Null,
            json => serde_json::from_str(json).map_err(|_| self.stranger(status))?,
        };
        Ok(Answer {
            text: text.trim_end().to_owned(),
            value,
        })
    }

    /// Asks for something that is being followed. A server that is busy or starting anew is asked
    /// again, as often as is sensible.
    pub async fn look(&mut self, call: &Call) -> Result<Answer, Trouble> {
        for _ in 1..MAX_LOOKS {
            match self.ask(call).await {
                Err(Trouble::Refused(problem)) if problem.wait().is_some() => {
                    let wait = problem.wait().unwrap_or_default();
                    tokio::time::sleep(wait.min(PATIENCE)).await;
                }
                Err(Trouble::Unreached { .. }) => tokio::time::sleep(PAUSE).await,
                settled => return settled,
            }
        }
        self.ask(call).await
    }

    fn stranger(&self, status: http::StatusCode) -> Trouble {
        Trouble::Stranger {
            origin: self.origin.clone(),
            status,
        }
    }

    fn request(&self, call: &Call) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", self.origin.base(), call.target))
            .header(AUTHORIZATION, self.bearer.clone())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("posthaste/", env!("CARGO_PKG_VERSION")));
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = call.body.clone().unwrap_or_default();
        request
            .body(Full::from(body))
            .expect("every part of a target is escaped")
    }

    async fn connected(&mut self) -> Result<&mut Connection, operator::Unreached> {
        let kept = self.connection.take().filter(|kept| !kept.is_closed());
        let connection = match kept {
            Some(connection) => connection,
            None => operator::connect(&self.origin, &self.roots, PATIENCE).await?,
        };
        Ok(self.connection.insert(connection))
    }
}
