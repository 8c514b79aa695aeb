//! Arguments of API commands, generated from the catalogue.

use std::fmt;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use posthaste_core::time::Timestamp;
use posthaste_egress::operator::Origin;
use posthaste_system::clock::Clock;
use serde_json::Value;

use super::action::{Action, Field, Kind, Place, Resource, Shape};
use super::catalogue::{EVENTS_NAME, RESOURCES};
use super::send::{BatchArgs, SendArgs};
use crate::cli::output::STANDARD;

/// Where the server is, and how to speak to it. Its debug form does not show the key.
#[derive(Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectArgs {
    /// Where the server is
    #[arg(long, global = true, env = "POSTHASTE_SERVER", value_name = "URL",
          default_value = "http://127.0.0.1:8420", value_parser = origin)]
    pub server: Origin,
    /// A key to the server: an admin key, or a tenant's
    #[arg(
        long,
        global = true,
        env = "POSTHASTE_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub key: Option<String>,
    /// Certificate authorities to trust besides the public ones, as a PEM file
    #[arg(long, global = true, env = "POSTHASTE_CA", value_name = "FILE")]
    pub ca: Option<String>,
    /// Answer in JSON, as the API did
    #[arg(long, global = true)]
    pub json: bool,
}

impl fmt::Debug for ConnectArgs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ConnectArgs")
            .field("server", &self.server)
            .field("has_key", &self.key.is_some())
            .field("ca", &self.ca)
            .field("json", &self.json)
            .finish_non_exhaustive()
    }
}

/// Whose things are meant.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct TenantArgs {
    /// Whose things are meant
    #[arg(long, global = true, env = "POSTHASTE_TENANT", value_name = "TENANT")]
    pub tenant: Option<String>,
}

fn origin(text: &str) -> Result<Origin, String> {
    text.parse()
        .map_err(|error: posthaste_egress::operator::OriginError| error.to_string())
}

/// An API command.
#[derive(Debug)]
pub enum ApiCommand {
    /// An action of the catalogue.
    Act(Box<Asked>),
    /// `events send`.
    Send(Box<SendArgs>),
    /// `events batch`.
    Batch(Box<BatchArgs>),
}

/// An action of the catalogue with its arguments.
#[derive(Debug)]
pub struct Asked {
    /// The action.
    pub action: &'static Action,
    /// Connection options.
    pub connect: ConnectArgs,
    /// The tenant.
    pub tenant: Option<String>,
    /// Value of the id in the path.
    pub id: Option<String>,
    /// Options that were given, in the order of the action's fields.
    pub said: Vec<(&'static Field, Value)>,
    /// File that contains the body.
    pub body: Option<String>,
    /// Page of a list.
    pub page: PageArgs,
    /// True if the object is followed until it is finished.
    pub watch: bool,
}

/// Which part of a list.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Page")]
pub struct PageArgs {
    /// At most so many
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=250))]
    pub limit: Option<u16>,
    /// Go on where a page ended
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// Every page, one after the other
    #[arg(long)]
    pub all: bool,
}

const BODY: &str = "body";
const WATCH: &str = "watch";
const ID: &str = "id";

impl Subcommand for ApiCommand {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(RESOURCES.iter().map(resource))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        ApiCommand::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        RESOURCES.iter().any(|resource| resource.name == name)
    }
}

impl FromArgMatches for ApiCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ApiCommand, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let resource = RESOURCES.iter().find(|resource| resource.name == name);
        let resource = resource.ok_or_else(missing)?;
        let (name, matches) = matches.subcommand().unwrap_or(("", matches));
        match name {
            "send" => {
                SendArgs::from_arg_matches(matches).map(|args| ApiCommand::Send(Box::new(args)))
            }
            "batch" => {
                BatchArgs::from_arg_matches(matches).map(|args| ApiCommand::Batch(Box::new(args)))
            }
            _ => {
                let action = resource.actions.iter().find(|action| action.name == name);
                let asked = asked(action.ok_or_else(missing)?, matches)?;
                Ok(ApiCommand::Act(Box::new(asked)))
            }
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ApiCommand::from_arg_matches(matches)?;
        Ok(())
    }
}

fn resource(resource: &'static Resource) -> Command {
    let command = Command::new(resource.name);
    let command = match resource.actions {
        [alone] if alone.name.is_empty() => action(resource, alone, command),
        several => {
            let mut command = command
                .arg_required_else_help(true)
                .subcommand_required(true)
                .subcommands(
                    several
                        .iter()
                        .map(|row| action(resource, row, Command::new(row.name)).about(row.about)),
                );
            if resource.name == EVENTS_NAME {
                let send = SendArgs::augment_args(Command::new("send"));
                let batch = BatchArgs::augment_args(Command::new("batch"));
                command = command
                    .subcommand(send.about("Hand over an event"))
                    .subcommand(batch.about("Hand over many events, all or nothing"));
            }
            command
        }
    };
    // Connection options may be given before and after the action.
    let mut command = ConnectArgs::augment_args(command);
    if resource
        .actions
        .iter()
        .any(|row| row.path.contains("{tenant}"))
    {
        command = TenantArgs::augment_args(command);
    }
    // `augment_args` also overwrites the description, so it is set again.
    command.about(resource.about)
}

fn action(resource: &'static Resource, action: &'static Action, command: Command) -> Command {
    let mut command = command;
    if action.path.contains("{id}") {
        let id = Arg::new(ID).value_name(resource.noun).required(true);
        command = command.arg(id.help("Its id"));
    }
    let bodied = action.fields.iter().any(|field| match field.place {
        Place::Body(_) | Place::Bare(..) => true,
        Place::Query(_) => false,
    });
    let argument =
        |field| argument(field).conflicts_with_all(conflicting_options(field, action.fields));
    command = command.args(action.fields.iter().map(argument));
    if bodied {
        let body = Arg::new(BODY).long(BODY).value_name("FILE");
        command = command.arg(body.help(
            "The request as JSON in a file; - reads standard input. What else is said goes on top",
        ));
    }
    command = match action.shape {
        Shape::Page(_) => PageArgs::augment_args(command),
        Shape::Replay => {
            let watch = Arg::new(WATCH).long(WATCH).action(ArgAction::SetTrue);
            command.arg(watch.help("Follow it to its end"))
        }
        Shape::Thing(_) | Shape::Stats | Shape::Usage | Shape::Plans | Shape::Gone(_) => command,
    };
    command.after_help(examples(action.examples))
}

/// Formats examples for the help.
pub fn examples(lines: &[&str]) -> String {
    let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
    format!("Examples:{lines}")
}

/// Returns the options that conflict with an option that removes a setting: those that set it or a part of it.
fn conflicting_options(field: &'static Field, all: &'static [Field]) -> Vec<&'static str> {
    let place = |field: &Field| match field.place {
        Place::Body(place) | Place::Bare(place, _) => Some(place),
        Place::Query(_) => None,
    };
    let Some(removed) = place(field).filter(|_| matches!(field.kind, Kind::Without)) else {
        return Vec::new();
    };
    let sets = |other: &&Field| {
        let within = place(other).and_then(|place| place.strip_prefix(removed));
        within.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let others = all.iter().filter(|other| other.name != field.name);
    others.filter(sets).map(|other| other.name).collect()
}

fn argument(field: &'static Field) -> Arg {
    let arg = Arg::new(field.name)
        .help(field.help)
        .value_name(field.kind.value_name());
    let arg = match field.place {
        Place::Query(_) | Place::Body(_) => arg.long(field.name),
        Place::Bare(_, shown) => arg.value_name(shown),
    };
    let arg = match field.kind.repeats() {
        true => arg.action(ArgAction::Append),
        false => arg,
    };
    match field.kind {
        Kind::Word(words) => arg.value_parser(PossibleValuesParser::new(words)),
        Kind::List => arg.value_delimiter(','),
        Kind::Whole | Kind::WholeOrDefault | Kind::Number => arg
            .allow_hyphen_values(true)
            .value_parser(reader(field.kind)),
        Kind::Duration | Kind::DurationOrDefault | Kind::Past | Kind::Headers | Kind::Policy => {
            arg.value_parser(reader(field.kind))
        }
        Kind::Truth => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(PossibleValuesParser::new(["true", "false"])),
        // Files are read later, once: a second read of standard input would be empty.
        Kind::Text | Kind::Json | Kind::TextFile | Kind::SecretFile => arg,
        Kind::Without | Kind::Said(_) => arg.action(ArgAction::SetTrue),
    }
}

/// Validates a value while parsing arguments. Valid values are parsed again with the others.
fn reader(kind: Kind) -> impl Fn(&str) -> Result<String, String> + Clone {
    move |text| kind.read(text, Timestamp(0)).map(|_| text.to_owned())
}

/// Refuses a second option that reads standard input. It would read nothing and send an empty value.
fn refuse_second_reader(action: &'static Action, matches: &ArgMatches) -> Result<(), clap::Error> {
    let from_files = |field: &&Field| field.kind.is_file();
    let names = action.fields.iter().filter(from_files);
    let names = names.map(|field| field.name).chain([BODY]);
    let reads = |name: &&str| {
        let text = matches.try_get_one::<String>(name).ok().flatten();
        text.is_some_and(|text| text == STANDARD)
    };
    let readers: Vec<String> = names
        .filter(reads)
        .map(|name| format!("--{name}"))
        .collect();
    if readers.len() < 2 {
        return Ok(());
    }
    let why = format!(
        "{}: standard input can be read once only; put the others into files",
        readers.join(" and ")
    );
    Err(clap::Error::raw(
        clap::error::ErrorKind::ArgumentConflict,
        why,
    ))
}

fn asked(action: &'static Action, matches: &ArgMatches) -> Result<Asked, clap::Error> {
    let now = Clock::system().wall();
    let mut said = Vec::new();
    refuse_second_reader(action, matches)?;
    for field in action.fields {
        let without_words = match field.kind {
            Kind::Without => Some(Value::Null),
            Kind::Said(word) => Some(word.into()),
            Kind::Text
            | Kind::Word(_)
            | Kind::Whole
            | Kind::Number
            | Kind::Duration
            | Kind::WholeOrDefault
            | Kind::DurationOrDefault
            | Kind::Past
            | Kind::List
            | Kind::Headers
            | Kind::Policy
            | Kind::Truth
            | Kind::Json
            | Kind::TextFile
            | Kind::SecretFile => None,
        };
        if let Some(value) = without_words {
            if matches.get_flag(field.name) {
                said.push((field, value));
            }
            continue;
        }
        let Some(texts) = matches.get_many::<String>(field.name) else {
            continue;
        };
        let values: Result<Vec<Value>, String> =
            texts.map(|text| field.kind.read(text, now)).collect();
        let values = values.map_err(|why| {
            let why = format!("--{}: {why}", field.name);
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, why)
        })?;
        said.push((field, field.kind.joined(values)));
    }
    let text = |id: &str| {
        let found = matches.try_get_one::<String>(id);
        found.ok().flatten().cloned()
    };
    let page = match action.shape {
        Shape::Page(_) => PageArgs::from_arg_matches(matches)?,
        Shape::Thing(_)
        | Shape::Replay
        | Shape::Stats
        | Shape::Usage
        | Shape::Plans
        | Shape::Gone(_) => PageArgs::default(),
    };
    let watch = matches.try_get_one::<bool>(WATCH);
    Ok(Asked {
        action,
        connect: ConnectArgs::from_arg_matches(matches)?,
        tenant: text("tenant"),
        id: if action.path.contains("{id}") {
            text(ID)
        } else {
            None
        },
        said,
        body: text(BODY),
        page,
        watch: watch.ok().flatten().copied().unwrap_or(false),
    })
}
