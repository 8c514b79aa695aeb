//! Arguments of API commands, generated from [`RESOURCES`].
//!
//! An [`Invocation`] is an action with its arguments. Values are validated while the arguments are parsed, so that
//! wrong usage is reported before any request is sent.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use http::Method;
use posthaste_core::time::Timestamp;
use posthaste_system::clock::Clock;
use serde_json::Value;

use super::action::{Action, Field, Location, OptionKind, Resource, Shape};
use super::connection_args::{ConnectArgs, TenantArgs};
use super::resources::{EVENTS_NAME, RESOURCES};
use super::send::{BatchArgs, SendArgs};
use crate::cli::input::STANDARD;

/// An API command.
#[derive(Debug)]
pub enum ApiCommand {
    /// An action of [`RESOURCES`].
    Act(Box<Invocation>),
    /// `events send`.
    Send(Box<SendArgs>),
    /// `events batch`.
    Batch(Box<BatchArgs>),
}

/// An action of [`RESOURCES`] with its arguments.
#[derive(Debug)]
pub struct Invocation {
    /// The action.
    pub action: &'static Action,
    /// Connection options.
    pub connect: ConnectArgs,
    /// The tenant.
    pub tenant: Option<String>,
    /// Value of the id in the path.
    pub id: Option<String>,
    /// Options that were given, in the order of the action's fields.
    pub options: Vec<(&'static Field, Value)>,
    /// File that contains the body.
    pub body: Option<String>,
    /// Page of a list.
    pub page: PageArgs,
    /// True if the object is followed until it is finished.
    pub watch: bool,
    /// True if a deletion was confirmed with `--yes`.
    pub is_confirmed: bool,
}

/// Page of a list.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Page")]
pub struct PageArgs {
    /// Maximum number of items
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=250))]
    pub limit: Option<u16>,
    /// Cursor from the previous page
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// Print all pages
    #[arg(long)]
    pub all: bool,
}

const BODY: &str = "body";
const WATCH: &str = "watch";
const YES: &str = "yes";
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
                let action = match resource.actions {
                    [only] => Some(only),
                    several => several.iter().find(|action| action.name == name),
                };
                let invocation = invocation(action.ok_or_else(missing)?, matches)?;
                Ok(ApiCommand::Act(Box::new(invocation)))
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
        // The only action of a resource can be left out: `alerts` is `alerts list`.
        [only] => action(resource, only, command)
            .subcommand(action(resource, only, Command::new(only.name)).about(only.about)),
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
                command = command.subcommand(send.about("Send an event")).subcommand(
                    batch.about("Send a batch of events; either all are accepted or none"),
                );
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
        // What is deleted is always named.
        let is_from_environment =
            action.path.starts_with("/v1/tenants/{id}") && action.method != Method::DELETE;
        command = command.arg(match is_from_environment {
            true => id.help("Tenant id").env("POSTHASTE_TENANT"),
            false => id.help("Id"),
        });
    }
    let has_body = action.fields.iter().any(|field| match field.location {
        Location::Body(_) | Location::Positional(..) => true,
        Location::Query(_) => false,
    });
    let argument =
        |field| argument(field).conflicts_with_all(conflicting_options(field, action.fields));
    command = command.args(action.fields.iter().map(argument));
    if has_body {
        let body = Arg::new(BODY).long(BODY).value_name("FILE");
        command =
            command.arg(body.help(
                "Request body as a JSON file; - reads standard input. Flags override the file",
            ));
    }
    command = match action.shape {
        Shape::List(_) => PageArgs::augment_args(command),
        Shape::Replay => {
            let watch = Arg::new(WATCH).long(WATCH).action(ArgAction::SetTrue);
            command.arg(watch.help("Show progress until it is finished"))
        }
        Shape::Object(_)
        | Shape::Stats
        | Shape::Usage
        | Shape::Plans
        | Shape::SchedulePreview
        | Shape::NoContent(_) => command,
    };
    if action.method == Method::DELETE {
        let yes = Arg::new(YES).long(YES).action(ArgAction::SetTrue);
        command = command.arg(yes.help("Delete without asking"));
    }
    command.after_help(examples(action.examples))
}

/// Formats examples for the help.
pub fn examples(lines: &[&str]) -> String {
    let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
    format!("Examples:{lines}")
}

/// Returns the options that conflict with an option that removes a setting: those that set it or a part of it.
fn conflicting_options(field: &'static Field, all: &'static [Field]) -> Vec<&'static str> {
    let body_path = |field: &Field| match field.location {
        Location::Body(path) | Location::Positional(path, _) => Some(path),
        Location::Query(_) => None,
    };
    let Some(removed) = body_path(field).filter(|_| matches!(field.kind, OptionKind::Clear)) else {
        return Vec::new();
    };
    let sets = |other: &&Field| {
        let within = body_path(other).and_then(|path| path.strip_prefix(removed));
        within.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let others = all.iter().filter(|other| other.name != field.name);
    others.filter(sets).map(|other| other.name).collect()
}

fn argument(field: &'static Field) -> Arg {
    let arg = Arg::new(field.name)
        .help(field.help)
        .value_name(field.kind.value_name());
    let arg = match field.location {
        Location::Query(_) | Location::Body(_) => arg.long(field.name),
        Location::Positional(_, value_name) => arg.value_name(value_name),
    };
    let arg = match field.kind.repeats() {
        true => arg.action(ArgAction::Append),
        false => arg,
    };
    match field.kind {
        OptionKind::OneOf(words) => arg.value_parser(PossibleValuesParser::new(words)),
        OptionKind::List => arg.value_delimiter(','),
        OptionKind::Integer | OptionKind::IntegerOrDefault | OptionKind::Number => arg
            .allow_hyphen_values(true)
            .value_parser(validator(field.kind)),
        OptionKind::Duration
        | OptionKind::DurationOrDefault
        | OptionKind::TimeInPast
        | OptionKind::TimeAhead
        | OptionKind::Headers
        | OptionKind::Policy => arg.value_parser(validator(field.kind)),
        OptionKind::Bool => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(PossibleValuesParser::new(["true", "false"])),
        // Files are read later, once: a second read of standard input would be empty.
        OptionKind::Text
        | OptionKind::Json
        | OptionKind::JsonText
        | OptionKind::TextFile
        | OptionKind::SecretFile => arg,
        OptionKind::Clear | OptionKind::Constant(_) => arg.action(ArgAction::SetTrue),
    }
}

/// Validates a value while parsing arguments. Valid values are parsed again with the others.
fn validator(kind: OptionKind) -> impl Fn(&str) -> Result<String, String> + Clone {
    move |text| kind.read(text, Timestamp(0)).map(|_| text.to_owned())
}

/// Refuses a second option that reads standard input. It would read nothing and send an empty value.
fn refuse_second_reader(action: &'static Action, matches: &ArgMatches) -> Result<(), clap::Error> {
    let from_files = |field: &&Field| field.kind.is_file();
    let names = action.fields.iter().filter(from_files);
    let names = names.map(|field| field.name).chain([BODY]);
    let reads = |name: &&str| {
        let text = matches.try_get_one::<String>(name).ok().flatten();
        text.is_some_and(|text| text.strip_prefix('@').unwrap_or(text) == STANDARD)
    };
    let readers: Vec<String> = names
        .filter(reads)
        .map(|name| format!("--{name}"))
        .collect();
    if readers.len() < 2 {
        return Ok(());
    }
    let message = format!(
        "{}: standard input can be read only once; use files for the others",
        readers.join(" and ")
    );
    Err(clap::Error::raw(
        clap::error::ErrorKind::ArgumentConflict,
        message,
    ))
}

fn invocation(action: &'static Action, matches: &ArgMatches) -> Result<Invocation, clap::Error> {
    let now = Clock::system().wall();
    let mut options = Vec::new();
    refuse_second_reader(action, matches)?;
    for field in action.fields {
        if let Some(value) = field.kind.flag_value() {
            if matches.get_flag(field.name) {
                options.push((field, value));
            }
            continue;
        }
        let Some(texts) = matches.get_many::<String>(field.name) else {
            continue;
        };
        let values: Result<Vec<Value>, String> =
            texts.map(|text| field.kind.read(text, now)).collect();
        let values = values.map_err(|error| {
            let message = format!("--{}: {error}", field.name);
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, message)
        })?;
        options.push((field, field.kind.joined(values)));
    }
    let text = |id: &str| {
        let value = matches.try_get_one::<String>(id);
        value.ok().flatten().cloned()
    };
    let page = match action.shape {
        Shape::List(_) => PageArgs::from_arg_matches(matches)?,
        Shape::Object(_)
        | Shape::Replay
        | Shape::Stats
        | Shape::Usage
        | Shape::Plans
        | Shape::SchedulePreview
        | Shape::NoContent(_) => PageArgs::default(),
    };
    let watch = matches.try_get_one::<bool>(WATCH);
    let is_confirmed = matches.try_get_one::<bool>(YES);
    Ok(Invocation {
        action,
        connect: ConnectArgs::from_arg_matches(matches)?,
        tenant: text("tenant"),
        id: if action.path.contains("{id}") {
            text(ID)
        } else {
            None
        },
        options,
        body: text(BODY),
        page,
        watch: watch.ok().flatten().copied().unwrap_or(false),
        is_confirmed: is_confirmed.ok().flatten().copied().unwrap_or(false),
    })
}
