//! A real browser: Chromium, told what to do through a pipe.
//!
//! It promises:
//!
//! - **As a person.** Clicks and keys are the browser's own events at places that can be seen; what is read is what is shown.
//! - **Waiting ends when it happens.** Nothing is awaited by guessing how long it takes; [`PATIENCE`](crate::PATIENCE) only
//!   bounds a failure.
//! - **Nothing goes unseen.** Whatever the developer tools would show in red or yellow is a complaint of the page, and so is every
//!   request to somebody else.
//! - **Nothing leaves.** The browser finds no names but this machine's.
//! - **Nothing is left behind.** It ends with its test, with all its processes and files, also if the test fails or is killed.

mod diary;
mod look;
mod page;
mod pipe;
mod spot;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use diary::Document;
pub use look::{Look, Violation, png_size};
pub use page::Page;
pub use spot::Spot;

use pipe::Pipe;

/// Names the browser that tests start.
pub const BROWSER_VARIABLE: &str = "POSTHASTE_TEST_BROWSER";
/// Names the file of axe-core.
pub const AXE_VARIABLE: &str = "POSTHASTE_TEST_AXE";

/// A browser, for as long as it or a page of it is there.
pub struct Browser {
    pipe: Arc<Pipe>,
}

impl Browser {
    /// Starts the one that the environment names. Without one the test fails, and says what to do.
    pub fn start() -> Browser {
        let program = named_by(BROWSER_VARIABLE);
        Browser {
            pipe: Arc::new(Pipe::start(&program)),
        }
    }

    /// A page of a new visitor, who has no cookies.
    pub async fn page(&self) -> Page {
        Page::new(self.pipe.clone()).await
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pipe.pid()
    }

    /// Where it keeps what it keeps.
    pub fn home(&self) -> &Path {
        self.pipe.home()
    }
}

fn named_by(variable: &str) -> PathBuf {
    let named = std::env::var_os(variable).unwrap_or_default();
    assert!(
        !named.is_empty(),
        "{variable} names nothing: run scripts/test, or scripts/browser run cargo nextest run …"
    );
    named.into()
}
