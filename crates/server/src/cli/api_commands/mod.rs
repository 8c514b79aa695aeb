//! API commands.
//!
//! [`resources`] lists all commands as data. [`args`] generates the arguments from it, [`build`] the request, the
//! [API client](crate::client) sends it, and [`view`] formats the answer. All commands take this path; only those with
//! payloads ([`send`]) or a long duration ([`follow`]) add code.

pub mod action;
pub mod args;
pub mod build;
pub mod connection_args;
pub mod follow;
pub mod id_kind;
pub mod path;
mod payload;
pub mod request;
pub mod resources;
pub mod send;
pub mod view;

pub use args::ApiCommand;
pub use request::RequestArgs;
pub use send::SendArgs;

use http::Method;
use serde_json::Value;

use super::error::CommandError;
use super::output;
use crate::client::ApiResponse;
use action::Shape;
use args::Invocation;

/// Sends the request of a command and prints the answer.
pub fn run(command: ApiCommand) -> Result<(), CommandError> {
    block_on(async {
        match command {
            ApiCommand::Act(invocation) => act(*invocation).await,
            ApiCommand::Send(args) => send::send(&args).await,
            ApiCommand::Batch(args) => send::batch(&args).await,
        }
    })
}

/// Sends an event.
pub fn run_send(args: &SendArgs) -> Result<(), CommandError> {
    block_on(send::send(args))
}

/// Sends a one-off request.
pub fn run_request(args: &RequestArgs) -> Result<(), CommandError> {
    block_on(request::send(args))
}

/// Runs a future on a single-threaded runtime, which is enough for one request at a time.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime starts")
        .block_on(work)
}

async fn act(mut invocation: Invocation) -> Result<(), CommandError> {
    let id = invocation.id.as_deref().unwrap_or_default();
    if let Some(suggestion) = id_kind::suggestion(invocation.action.path, id) {
        return Err(CommandError::Input(suggestion));
    }
    if invocation.action.method == Method::DELETE && !invocation.is_confirmed {
        crate::cli::confirm::confirm(&format!("{} ({id})", invocation.action.about))?;
    }
    let mut client = invocation.connect.client()?;
    loop {
        let answer = client.send(&build::request(&invocation)?).await?;
        let answer = match invocation.watch {
            true => follow::replay(&mut client, invocation.tenant.as_deref(), answer).await?,
            false => answer,
        };
        if invocation.connect.json {
            output::print_json(&answer.text)?;
        } else {
            print_answer(&invocation, &answer)?;
        }
        let next = answer.value.get("next_cursor").and_then(Value::as_str);
        match next {
            Some(cursor) if invocation.page.all => invocation.page.cursor = Some(cursor.to_owned()),
            Some(cursor) if !invocation.connect.json => {
                output::print_hint(&format!(
                    "more results: continue with --cursor {cursor}, or use --all"
                ));
                return Ok(());
            }
            Some(_) | None => return Ok(()),
        }
    }
}

fn print_answer(invocation: &Invocation, answer: &ApiResponse) -> Result<(), CommandError> {
    let done = |word: &str| format!("{word} {}\n", invocation.id.as_deref().unwrap_or_default());
    match invocation.action.shape {
        Shape::List(columns) => {
            let items = answer.value.get("data").and_then(Value::as_array);
            output::print(&view::list(columns, items.map_or(&[], Vec::as_slice)))
        }
        Shape::NoContent(word) => output::print(&done(word)),
        Shape::Object(_) | Shape::Replay if answer.value.is_null() => output::print(&done("done")),
        Shape::Object(hint) => {
            output::print(&view::object(&answer.value))?;
            if let Some(hint) = hint {
                output::print_hint(hint);
            }
            Ok(())
        }
        Shape::Replay => output::print(&view::object(&answer.value)),
        Shape::Stats => output::print(&view::stats(&answer.value)),
        Shape::Usage => output::print(&view::usage(&answer.value)),
        Shape::Plans => output::print(&view::plans(&answer.value)),
        Shape::SchedulePreview => output::print(&view::schedule_preview(&answer.value)),
    }
}
