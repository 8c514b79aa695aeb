//! `posthaste listen`: a local receiver that verifies and prints requests, and fails as configured.

use std::net::SocketAddr;

use clap::Args;
use posthaste_api::rate;
use posthaste_charts::terminal::{BAD, GOOD, QUIET, STRONG, printable, styled};
use posthaste_core::sign::{VerifyingKey, VerifyingKeys};
use posthaste_core::time::Span;
use posthaste_engine::signing_keys;
use posthaste_system::clock::Clock;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::args::address;
use super::failure::Failure;
use super::output;
use super::remote::ApiCommandError;
use crate::listener::{
    Answer, Behaviour, Check, FailureCondition, Heard, ReceiverServer, Settings, Tally,
};

const EXAMPLES: &str = "\
Examples:
  posthaste listen --secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
  posthaste listen --fail 30%
  posthaste listen --first 2 --status 500
  posthaste listen --status 429 --retry-after 30s
  posthaste listen --rate 5/s --delay 200ms
  posthaste listen --listen 127.0.0.1:0 --hang --json

For the server to send here it must be started with
  posthaste serve --allow-http --allow-network 127.0.0.0/8";

/// Next to the server's own port, and a port that webhooks may be sent to.
const DEFAULT_LISTEN: &str = "127.0.0.1:8421";

/// Maximum delay of a response.
const MAX_DELAY: Span = Span::from_hours(1);

/// `listen`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ListenArgs {
    /// Where to listen; port 0 picks one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "POSTHASTE_RECEIVER_LISTEN",
        default_value = DEFAULT_LISTEN,
        value_parser = address
    )]
    pub listen: SocketAddr,
    /// What to verify `webhook-signature` by: the endpoint's secret (whsec_…, or one it brought along), or a
    /// whpk_… public key; may be repeated
    #[arg(long, value_name = "SECRET", env = "POSTHASTE_SECRET", hide_env_values = true, value_parser = key,
          value_delimiter = ',')]
    pub secret: Vec<VerifyingKey>,
    /// Fail so often, by chance, such as 30%
    #[arg(long, value_name = "RATE%", group = "failing", value_parser = percent)]
    pub fail: Option<f64>,
    /// Fail the first so many attempts of each delivery
    #[arg(long, value_name = "COUNT", group = "failing")]
    pub first: Option<u32>,
    /// Take so many requests a second, and answer 429 to the rest
    #[arg(long, value_name = "RATE", group = "failing", value_parser = per_second)]
    pub rate: Option<u32>,
    /// What to answer when failing [default: 503]; always, if nothing else says when
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=599))]
    pub status: Option<u16>,
    /// Ask to be left alone for so long when failing
    #[arg(long, value_name = "DURATION", conflicts_with = "hang", value_parser = span)]
    pub retry_after: Option<Span>,
    /// Never answer when failing; always, if nothing else says when
    #[arg(long, conflicts_with = "status")]
    pub hang: bool,
    /// Hold every answer back for so long
    #[arg(long, value_name = "DURATION", default_value = "0s", hide_default_value = true, value_parser = span)]
    pub delay: Span,
    /// Refuse connections for so long after the start
    #[arg(long, value_name = "DURATION", default_value = "0s", hide_default_value = true, value_parser = span)]
    pub down: Span,
    /// What the dice follow from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Print a line of JSON for each request
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
            "must be the secret as `posthaste endpoints secret` shows it, or a whpk_… public key: {error}"
        )
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

fn span(text: &str) -> Result<Span, String> {
    let span: Span = text
        .parse()
        .map_err(|error: posthaste_core::time::SpanError| error.to_string())?;
    match span <= MAX_DELAY {
        true => Ok(span),
        false => Err(format!("must be at most {MAX_DELAY}, not {span}")),
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
        let usual = if self.rate.is_some() { 429 } else { 503 };
        let failure = match self.hang {
            true => Answer::Hang,
            false => Answer::status(self.status.unwrap_or(usual)).delayed(self.delay),
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
pub fn run(args: ListenArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(listen(args))
}

async fn listen(args: ListenArgs) -> Result<(), Failure> {
    let behaviour = args.behaviour();
    let keys = match args.secret.is_empty() {
        true => None,
        false => Some(
            VerifyingKeys::new(args.secret)
                .map_err(|error| ApiCommandError::Input(error.to_string()))?,
        ),
    };
    let settings = Settings {
        address: args.listen,
        behaviour,
        keys,
        opens_after: args.down,
        seed: args.seed,
        clock: Clock::system(),
    };
    let (listener, mut heard) = ReceiverServer::start(settings).map_err(|error| {
        ApiCommandError::OutcomeFailed(format!(
            "cannot listen on {}: {error}; choose another address with --listen",
            args.listen
        ))
    })?;
    // Registered first, so that a signal right after the address is printed still leads to a summary.
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Unprepared)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Unprepared)?;
    let ready = match args.json {
        true => format!("{}\n", json!({ "listening": listener.url() })),
        false => format!("listening on {}\n", styled(STRONG, &listener.url())),
    };
    say(args.json, &ready)?;
    loop {
        let heard = tokio::select! {
            heard = heard.recv() => heard,
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
        };
        let Some(heard) = heard else { break };
        let line = match args.json {
            true => format!("{}\n", as_json(&heard)),
            false => line(&heard),
        };
        say(args.json, &line)?;
    }
    say(args.json, &summary(listener.tally(), args.json))
}

fn say(json: bool, text: &str) -> Result<(), Failure> {
    match json {
        true => output::print_raw(text),
        false => output::print(text),
    }
}

/// Formats one request as a line.
fn line(heard: &Heard) -> String {
    // The time of day, to the millisecond.
    let at = heard.at.to_string();
    let time = at.get(11..23).unwrap_or(&at);
    let event_type = printable(heard.event_type().unwrap_or("-"));
    let delivery = short(heard.delivery().unwrap_or("-"));
    let attempt = heard
        .attempt()
        .map_or("-".to_owned(), |attempt| format!("#{attempt}"));
    let check = match heard.check {
        Check::Unchecked => styled(QUIET, "not checked"),
        Check::Verified => styled(GOOD, "✓ verified"),
        Check::Unsigned(header) => styled(BAD, &format!("✗ no {header}")),
        Check::Refused(error) => styled(BAD, &format!("✗ {error}")),
    };
    let style = if heard.answer.is_success() { GOOD } else { BAD };
    let answer = styled(style, &words(heard.answer));
    let size = heard.body.len();
    format!("{time}  {event_type}  {delivery}  {attempt}  {check}  {size} B  → {answer}\n")
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

fn words(answer: Answer) -> String {
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
        Answer::Hang => "no answer".to_owned(),
        Answer::HangUp => "hung up".to_owned(),
    }
}

fn as_json(heard: &Heard) -> serde_json::Value {
    let (verified, reason) = match heard.check {
        Check::Unchecked => (None, None),
        Check::Verified => (Some(true), None),
        Check::Unsigned(header) => (Some(false), Some(format!("{header} is missing"))),
        Check::Refused(error) => (Some(false), Some(error.to_string())),
    };
    let status = match heard.answer {
        Answer::Reply { status, .. } => Some(status),
        Answer::Hang | Answer::HangUp => None,
    };
    json!({
        "at": heard.at.to_string(),
        "method": heard.method.as_str(),
        "path": heard.path,
        "event_type": heard.event_type(),
        "event_id": heard.event(),
        "delivery_id": heard.delivery(),
        "attempt": heard.attempt(),
        "verified": verified,
        "reason": reason,
        "size_bytes": heard.body.len(),
        "status_code": status,
    })
}

fn summary(tally: Tally, as_json: bool) -> String {
    let Tally {
        requests,
        succeeded,
        verified,
        refused,
    } = tally;
    let failed = tally.failed();
    if as_json {
        let summary = json!({ "summary": {
            "requests": requests, "succeeded": succeeded, "failed": failed,
            "verified": verified, "refused": refused,
        }});
        return format!("{summary}\n");
    }
    let checked = match verified + refused {
        0 => String::new(),
        _ => format!("; {verified} verified, {refused} not"),
    };
    format!("\n{requests} requests: {succeeded} taken, {failed} failed{checked}\n")
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
    fn the_server_may_call_where_it_listens_by_itself() {
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
    fn it_fails_as_told() {
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
    fn it_cannot_fail_in_two_ways() {
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
    fn every_secret_that_an_endpoint_can_have_is_taken() {
        for secret in [
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "ItsASecretToEverybody",
        ] {
            assert!(!refused(&format!("--secret {secret}")), "{secret}");
        }
    }

    #[test]
    fn ids_are_told_apart_by_their_ends() {
        assert_eq!(short("dlv_01jd2k3m4n5p6q7r8s9tabcdef"), "dlv_…abcdef");
        assert_eq!(short("dlv_1"), "dlv_1");
        assert_eq!(short("-"), "-");
    }
}
