//! `posthaste listen`: a local receiver that verifies and prints requests, and fails as configured.
//!
//! The receiver itself is [`webhook_receiver`](crate::webhook_receiver). This module reads its [`ListenArgs`], and
//! prints each request as text or as a line of JSON. It never prints a secret: the credentials in a request are hidden.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base64::prelude::{BASE64_STANDARD, Engine};
use clap::Args;
use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderName, HeaderValue};
use posthaste_api::rate;
use posthaste_charts::terminal::{BAD, GOOD, QUIET, STRONG, printable, styled};
use posthaste_core::sign::{VerifyingKey, VerifyingKeys};
use posthaste_core::time::Span;
use posthaste_egress::trusted_client::BaseUrl;
use posthaste_engine::signing_keys;
use posthaste_system::clock::Clock;
use serde_json::json;

use super::error::CommandError;
use super::output;
use super::runtime::StopSignals;
use super::value_parsers::{address, span_up_to};
use crate::webhook_receiver::{
    Answer, Behaviour, FailureCondition, ForwardTarget, ReceivedRequest, ReceiverServer,
    ReceiverSettings, RequestTotals, SignatureCheck,
};

const EXAMPLES: &str = "\
Examples:
  posthaste listen --secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
  posthaste listen --forward http://127.0.0.1:3000/webhooks
  posthaste listen --fail 30%
  posthaste listen --first 2 --status 500
  posthaste listen --status 429 --retry-after 30s
  posthaste listen --rate 5/s --delay 200ms
  posthaste listen --listen 127.0.0.1:0 --hang --json

The server sends to local addresses only if it was started with
  posthaste serve --allow-http --allow-network 127.0.0.0/8";

/// Next to the server's own port, and a port that webhooks may be sent to.
const DEFAULT_LISTEN: &str = "127.0.0.1:8421";

/// Maximum number of bytes of a body that are printed for people. `--json` prints all of it.
const MAX_SHOWN_BODY_BYTES: usize = 4 * 1_024;

/// Maximum delay of a response.
const MAX_DELAY: Span = Span::from_hours(1);

/// `listen`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ListenArgs {
    /// Listen address; port 0 picks a free port
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "POSTHASTE_RECEIVER_LISTEN",
        default_value = DEFAULT_LISTEN,
        value_parser = address
    )]
    pub listen: SocketAddr,
    /// Verify `webhook-signature` with the endpoint's secret (whsec_…, or an imported one) or a
    /// whpk_… public key; may be repeated
    #[arg(long, value_name = "SECRET", env = "POSTHASTE_SECRET", hide_env_values = true, value_parser = key,
          value_delimiter = ',')]
    pub secret: Vec<VerifyingKey>,
    /// Forward requests to this URL, and respond with its responses; requests that fail by
    /// another option are not forwarded
    #[arg(long, value_name = "URL", value_parser = forward_url)]
    pub forward: Option<BaseUrl>,
    /// Share of requests to fail at random, such as 30%
    #[arg(long, value_name = "RATE%", group = "failing", value_parser = percent)]
    pub fail: Option<f64>,
    /// Fail the first N attempts of each delivery
    #[arg(long, value_name = "COUNT", group = "failing")]
    pub first: Option<u32>,
    /// Accept this many requests per second, and respond with 429 to the rest
    #[arg(long, value_name = "RATE", group = "failing", value_parser = per_second)]
    pub rate: Option<u32>,
    /// Status of failures [default: 503]; without another option that limits failures, all requests fail
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=599))]
    pub status: Option<u16>,
    /// Send Retry-After with this duration when failing
    #[arg(long, value_name = "DURATION", conflicts_with = "hang", value_parser = span_up_to(MAX_DELAY))]
    pub retry_after: Option<Span>,
    /// Do not respond when failing; without another option that limits failures, no request gets a response
    #[arg(long, conflicts_with = "status")]
    pub hang: bool,
    /// Delay of every response
    #[arg(long, value_name = "DURATION", default_value = "0s", hide_default_value = true, value_parser = span_up_to(MAX_DELAY))]
    pub delay: Span,
    /// Refuse connections for this duration after the start
    #[arg(long, value_name = "DURATION", default_value = "0s", hide_default_value = true, value_parser = span_up_to(MAX_DELAY))]
    pub down: Span,
    /// Random seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Print one line of JSON per request
    #[arg(long)]
    pub json: bool,
}

fn key(text: &str) -> Result<VerifyingKey, String> {
    let text = text.trim();
    let key = match text.starts_with("whpk_") {
        true => text.parse().map(VerifyingKey::Public),
        false => signing_keys::read(text).map(|key| key.verifying_key()),
    };
    key.map_err(|error| {
        format!(
            "must be the secret shown by `posthaste endpoints secret`, or a whpk_… public key: {error}"
        )
    })
}

fn forward_url(text: &str) -> Result<BaseUrl, String> {
    let url = text.parse();
    url.map_err(|_| {
        "must be a URL without a query, such as http://127.0.0.1:3000/webhooks".to_owned()
    })
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>();
    match number {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        Ok(_) | Err(_) => Err("must be from 0% to 100%".to_owned()),
    }
}

fn per_second(text: &str) -> Result<u32, String> {
    let rate = rate::capacity(text)?;
    match rate >= 1.0 {
        true => Ok(rate.round() as u32),
        false => Err("must be at least 1/s".to_owned()),
    }
}

impl ListenArgs {
    /// Returns the receiver's behaviour.
    pub fn behaviour(&self) -> Behaviour {
        let fails = match (self.fail, self.first, self.rate) {
            (Some(percent), _, _) => Behaviour::flaky(percent).fails,
            (None, Some(count), _) => FailureCondition::FirstAttempts(count),
            (None, None, Some(per_second)) => FailureCondition::Above { per_second },
            (None, None, None)
                if self.hang || self.status.is_some() || self.retry_after.is_some() =>
            {
                FailureCondition::Always
            }
            (None, None, None) => FailureCondition::Never,
        };
        let default = if self.rate.is_some() { 429 } else { 503 };
        let failure = match self.hang {
            true => Answer::Hang,
            false => Answer::status(self.status.unwrap_or(default)).delayed(self.delay),
        };
        let failure = match (self.retry_after, self.rate) {
            (Some(span), _) => failure.retry_after(span),
            (None, Some(_)) => failure.retry_after(Span::from_secs(1)),
            (None, None) => failure,
        };
        Behaviour {
            fails,
            failure,
            success: Answer::status(200).delayed(self.delay),
        }
    }
}

/// Runs the receiver until it is stopped.
pub fn run(args: ListenArgs) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the runtime starts");
    runtime.block_on(listen(args))
}

async fn listen(args: ListenArgs) -> Result<(), CommandError> {
    let behaviour = args.behaviour();
    let keys = match args.secret.is_empty() {
        true => None,
        false => Some(
            VerifyingKeys::new(args.secret)
                .map_err(|error| CommandError::Input(error.to_string()))?,
        ),
    };
    let settings = ReceiverSettings {
        address: args.listen,
        behaviour,
        keys,
        opens_after: args.down,
        forward: args.forward.map(ForwardTarget::new),
        seed: args.seed,
        clock: Clock::system(),
    };
    let (listener, mut requests) = ReceiverServer::start(settings).map_err(|error| {
        CommandError::OutcomeFailed(format!(
            "cannot listen on {}: {error}; choose another address with --listen",
            args.listen
        ))
    })?;
    // Registered first, so that a signal right after the address is printed still leads to a summary.
    let mut signals = StopSignals::register()?;
    let ready = match args.json {
        true => format!("{}\n", json!({ "listening": listener.url() })),
        false => format!("listening on {}\n", styled(STRONG, &listener.url())),
    };
    print(args.json, &ready)?;
    loop {
        let request = tokio::select! {
            request = requests.recv() => request,
            () = signals.recv() => None,
        };
        let Some(request) = request else { break };
        let line = match args.json {
            true => format!("{}\n", as_json(&request)),
            false => line(&request) + &details(&request),
        };
        print(args.json, &line)?;
    }
    print(args.json, &summary(listener.totals(), args.json))
}

fn print(json: bool, text: &str) -> Result<(), CommandError> {
    match json {
        true => output::print_raw(text),
        false => output::print(text),
    }
}

/// Formats one request as a line.
fn line(request: &ReceivedRequest) -> String {
    // The time of day, to the millisecond.
    let at = request.at.to_string();
    let time = at.get(11..23).unwrap_or(&at);
    let event_type = printable(request.event_type().unwrap_or("-"));
    let delivery = short(request.delivery().unwrap_or("-"));
    let attempt = request
        .attempt()
        .map_or("-".to_owned(), |attempt| format!("#{attempt}"));
    let check = match request.check {
        SignatureCheck::Unchecked => styled(QUIET, "not checked"),
        SignatureCheck::Verified => styled(GOOD, "✓ verified"),
        SignatureCheck::Unsigned(header) => styled(BAD, &format!("✗ no {header}")),
        SignatureCheck::Refused(error) => styled(BAD, &format!("✗ {error}")),
    };
    let style = if request.answer.is_success() {
        GOOD
    } else {
        BAD
    };
    let mut answer = styled(style, &describe(request.answer));
    if let Some(error) = &request.forward_error {
        answer.push_str(&format!(" (not forwarded: {})", printable(error)));
    }
    let size = request.body.len();
    format!("{time}  {event_type}  {delivery}  {attempt}  {check}  {size} B  → {answer}\n")
}

/// Formats headers and body of a request, indented below its line.
fn details(request: &ReceivedRequest) -> String {
    let headers = request.headers.iter();
    let headers = headers.map(|(name, value)| format!("{name}: {}", header_text(name, value)));
    let body = match std::str::from_utf8(&request.body) {
        Ok(text) => {
            let end = text.floor_char_boundary(MAX_SHOWN_BODY_BYTES);
            let mut lines: Vec<String> = text[..end].lines().map(str::to_owned).collect();
            if end < text.len() {
                lines.push(format!("… {} more bytes", text.len() - end));
            }
            lines
        }
        Err(_) => vec![format!("({} bytes, not UTF-8)", request.body.len())],
    };
    headers
        .chain(body)
        .map(|line| format!("    {}\n", printable(&line)))
        .collect()
}

/// Returns the value of a header, with replacement characters for bytes that are not UTF-8. Credentials are hidden.
fn header_text(name: &HeaderName, value: &HeaderValue) -> String {
    match [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name) {
        true => "(hidden)".to_owned(),
        false => String::from_utf8_lossy(value.as_bytes()).into_owned(),
    }
}

/// Returns the headers as an object. Values of a repeated header are joined by a comma.
fn headers_json(headers: &HeaderMap) -> serde_json::Value {
    let joined = |name: &HeaderName| {
        let values = headers.get_all(name).iter();
        let values: Vec<String> = values.map(|value| header_text(name, value)).collect();
        values.join(", ")
    };
    let headers = headers.keys().map(|name| (name.as_str(), joined(name)));
    json!(headers.collect::<BTreeMap<_, _>>())
}

/// Shortens an id to its end. Ids of the same hour begin alike, so the end distinguishes them.
fn short(id: &str) -> String {
    const END: usize = 6;
    let id = printable(id);
    let count = id.chars().count();
    match id.split_once('_') {
        Some((prefix, rest)) if rest.chars().count() > END => {
            let end: String = id.chars().skip(count - END).collect();
            format!("{prefix}_…{end}")
        }
        Some(_) | None => id,
    }
}

fn describe(answer: Answer) -> String {
    match answer {
        Answer::Reply {
            status,
            delay,
            retry_after,
        } => {
            let delay = match delay {
                Span::ZERO => String::new(),
                delay => format!(" after {delay}"),
            };
            let again = retry_after.map_or(String::new(), |span| format!(", retry after {span}"));
            format!("{status}{delay}{again}")
        }
        Answer::Hang => "no response".to_owned(),
    }
}

fn as_json(request: &ReceivedRequest) -> serde_json::Value {
    let (verified, reason) = match request.check {
        SignatureCheck::Unchecked => (None, None),
        SignatureCheck::Verified => (Some(true), None),
        SignatureCheck::Unsigned(header) => (Some(false), Some(format!("{header} is missing"))),
        SignatureCheck::Refused(error) => (Some(false), Some(error.to_string())),
    };
    let status = match request.answer {
        Answer::Reply { status, .. } => Some(status),
        Answer::Hang => None,
    };
    // A body that is not text is printed in base64.
    let body_base64 = match std::str::from_utf8(&request.body) {
        Ok(_) => None,
        Err(_) => Some(BASE64_STANDARD.encode(&request.body)),
    };
    json!({
        "at": request.at.to_string(),
        "method": request.method.as_str(),
        "path": request.path,
        "event_type": request.event_type(),
        "event_id": request.event(),
        "delivery_id": request.delivery(),
        "attempt": request.attempt(),
        "verified": verified,
        "reason": reason,
        "size_bytes": request.body.len(),
        "status_code": status,
        "forward_error": request.forward_error,
        "headers": headers_json(&request.headers),
        "body": std::str::from_utf8(&request.body).ok(),
        "body_base64": body_base64,
    })
}

fn summary(totals: RequestTotals, as_json: bool) -> String {
    let RequestTotals {
        requests,
        succeeded,
        verified,
        refused,
    } = totals;
    let failed = totals.failed();
    if as_json {
        let summary = json!({ "summary": {
            "requests": requests, "succeeded": succeeded, "failed": failed,
            "verified": verified, "refused": refused,
        }});
        return format!("{summary}\n");
    }
    let checked = match verified + refused {
        0 => String::new(),
        _ => format!("; {verified} verified, {refused} not verified"),
    };
    format!("\n{requests} requests: {succeeded} accepted, {failed} failed{checked}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use posthaste_core::address::{Destination, EgressRules};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ListenArgs,
    }

    fn behaviour(line: &str) -> Behaviour {
        let words = std::iter::once("listen").chain(line.split_whitespace());
        Line::try_parse_from(words)
            .map(|line| line.args.behaviour())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_default_address_is_an_allowed_destination() {
        let rules = EgressRules {
            allow_networks: vec!["127.0.0.0/8".parse().expect("a network")],
            allow_http: true,
            ..EgressRules::default()
        };
        let url = format!("http://{DEFAULT_LISTEN}/hooks");
        let destination = Destination::parse(&url, &rules);
        assert!(destination.is_ok(), "{url}: {destination:?}");
    }

    fn refused(line: &str) -> bool {
        let words = std::iter::once("listen").chain(line.split_whitespace());
        Line::try_parse_from(words).is_err()
    }

    #[test]
    fn the_arguments_set_the_behaviour() {
        assert_eq!(behaviour("").fails, FailureCondition::Never);
        assert_eq!(
            behaviour("--fail 30%").fails,
            FailureCondition::Chance {
                in_ten_thousand: 3_000
            }
        );
        assert_eq!(
            behaviour("--fail 0.5").fails,
            FailureCondition::Chance {
                in_ten_thousand: 50
            }
        );
        let first = behaviour("--first 2 --status 500");
        assert_eq!(
            (first.fails, first.failure),
            (FailureCondition::FirstAttempts(2), Answer::status(500))
        );
        let always = behaviour("--retry-after 30s");
        assert_eq!(
            always.failure,
            Answer::status(503).retry_after(Span::from_secs(30))
        );
        assert_eq!(always.fails, FailureCondition::Always);
        let hang = behaviour("--hang --first 1");
        assert_eq!(
            (hang.fails, hang.failure),
            (FailureCondition::FirstAttempts(1), Answer::Hang)
        );
        let limited = behaviour("--rate 5/s --delay 2s");
        assert_eq!(limited.fails, FailureCondition::Above { per_second: 5 });
        assert_eq!(
            limited.failure,
            Answer::status(429)
                .delayed(Span::from_secs(2))
                .retry_after(Span::from_secs(1))
        );
        assert_eq!(
            limited.success,
            Answer::status(200).delayed(Span::from_secs(2))
        );
    }

    #[test]
    fn contradicting_arguments_are_refused() {
        for line in [
            "--fail 30% --first 2",
            "--fail 101%",
            "--hang --status 500",
            "--hang --retry-after 1s",
            "--status 700",
            "--delay 2h",
            "--rate 0.5/s",
            "--secret nonsense",
        ] {
            assert!(refused(line), "{line}");
        }
    }

    #[test]
    fn every_kind_of_secret_is_accepted() {
        for secret in [
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "ItsASecretToEverybody",
        ] {
            assert!(!refused(&format!("--secret {secret}")), "{secret}");
        }
    }

    #[test]
    fn ids_are_shortened_to_their_end() {
        assert_eq!(short("dlv_01jd2k3m4n5p6q7r8s9tabcdef"), "dlv_…abcdef");
        assert_eq!(short("dlv_1"), "dlv_1");
        assert_eq!(short("-"), "-");
    }
}
