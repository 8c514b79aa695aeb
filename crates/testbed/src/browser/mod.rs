//! A real browser for tests: Chromium, controlled through a pipe.
//!
//! It guarantees:
//!
//! - **Real input.** Clicks and keys are events of the browser at visible positions. Text is read as displayed.
//! - **No fixed waits.** A wait ends when its condition holds. [`PATIENCE`](crate::PATIENCE) only limits a failing
//!   test.
//! - **Every problem is reported.** An error or warning of the developer tools is a complaint of the page, and so is
//!   every request to another origin.
//! - **No outside traffic.** The browser resolves no host names but those of this machine.
//! - **Full cleanup.** All its processes and files end with the test, also if the test fails or is killed.

mod locator;
mod page;
mod page_appearance;
mod page_log;
mod pipe;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use locator::Locator;
pub use page::Page;
pub use page_appearance::{PageAppearance, Violation, png_size};
pub use page_log::Document;

use pipe::Pipe;

/// Environment variable with the path of the browser.
pub const BROWSER_VARIABLE: &str = "POSTHASTE_TEST_BROWSER";
/// Environment variable with the path of the axe-core script.
pub const AXE_VARIABLE: &str = "POSTHASTE_TEST_AXE";

/// A browser. It ends when it and all its pages are dropped.
pub struct Browser {
    pipe: Arc<Pipe>,
}

impl Browser {
    /// Starts the browser that the environment names. If it names none, the test fails and explains what to do.
    pub fn start() -> Browser {
        let program = named_by(BROWSER_VARIABLE);
        Browser {
            pipe: Arc::new(Pipe::start(&program)),
        }
    }

    /// Opens a page with its own, empty cookie jar.
    pub async fn page(&self) -> Page {
        Page::new(self.pipe.clone()).await
    }

    /// Process id of the browser.
    pub fn pid(&self) -> u32 {
        self.pipe.pid()
    }

    /// Folder for the browser's files.
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
