//! API commands.
//!
//! [`catalogue`] lists all commands as data. [`args`] generates the arguments from it, [`build`] the request,
//! [`client`] sends it, and [`view`] formats the answer. All commands take this path; only those with payloads
//! ([`send`]) or a long duration ([`watch`]) add code.

pub mod action;
pub mod args;
pub mod build;
pub mod catalogue;
pub mod client;
pub mod input;
pub mod send;
pub mod show;
pub mod trouble;
pub mod view;
pub mod watch;

pub use trouble::ApiCommandError;

use serde_json::Value;

use super::failure::Failure;
use super::output;
use action::Shape;
use args::{ApiCommand, Asked};
use client::{Answer, Client};
use send::SendArgs;

/// Sends the request of a command and prints the answer.
pub fn run(remote: ApiCommand) -> Result<(), Failure> {
    patiently(async {
        match remote {
            ApiCommand::Act(asked) => act(*asked).await,
            ApiCommand::Send(args) => send::send(&args).await,
            ApiCommand::Batch(args) => send::batch(&args).await,
        }
    })
}

/// Sends an event.
pub fn run_send(args: &SendArgs) -> Result<(), Failure> {
    patiently(send::send(args))
}

/// Runs a future on a single-threaded runtime, which is enough for one request at a time.
fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime on this thread")
        .block_on(work)
}

async fn act(mut asked: Asked) -> Result<(), Failure> {
    let mut client = Client::new(&asked.connect)?;
    loop {
        let answer = client.ask(&build::call(&asked)?).await?;
        let answer = match asked.watch {
            true => watch::replay(&mut client, asked.tenant.as_deref(), answer).await?,
            false => answer,
        };
        if asked.connect.json {
            show::json(&answer.text)?;
        } else {
            tell(&asked, &answer)?;
        }
        let next = answer.value.get("next_cursor").and_then(Value::as_str);
        match next {
            Some(cursor) if asked.page.all => asked.page.cursor = Some(cursor.to_owned()),
            Some(cursor) if !asked.connect.json => {
                output::remark(&format!(
                    "there are more: go on with --cursor {cursor}, or see --all"
                ));
                return Ok(());
            }
            Some(_) | None => return Ok(()),
        }
    }
}

fn tell(asked: &Asked, answer: &Answer) -> Result<(), Failure> {
    let done = |word: &str| format!("{word} {}\n", asked.id.as_deref().unwrap_or_default());
    match asked.action.shape {
        Shape::Page(columns) => {
            let things = answer.value.get("data").and_then(Value::as_array);
            output::print(&view::page(columns, things.map_or(&[], Vec::as_slice)))
        }
        Shape::Gone(word) => output::print(&done(word)),
        Shape::Thing(_) | Shape::Replay if answer.value.is_null() => output::print(&done("done")),
        Shape::Thing(remark) => {
            output::print(&view::thing(&answer.value))?;
            if let Some(remark) = remark {
                output::remark(remark);
            }
            Ok(())
        }
        Shape::Replay => output::print(&view::thing(&answer.value)),
        Shape::Stats => output::print(&view::stats(&answer.value)),
        Shape::Usage => output::print(&view::usage(&answer.value)),
        Shape::Plans => output::print(&view::plans(&answer.value)),
    }
}
