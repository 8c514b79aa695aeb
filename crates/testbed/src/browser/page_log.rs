//! Log of everything that happens at a page, from the events of the browser.
//!
//! [`PageLog`] collects complaints: errors and warnings of the console, uncaught exceptions, violations of the content
//! security policy, failed requests, dialogs, and every request to an origin that the test did not open.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use url::Url;

use crate::PATIENCE;

/// The log of one page.
pub(super) struct PageLog {
    /// Id of the page's main frame. Frames inside the page have other ids.
    frame: String,
    notes: Mutex<Notes>,
    loads: watch::Sender<usize>,
}

#[derive(Default)]
struct Notes {
    /// Origins that the test opened.
    origins: HashSet<String>,
    complaints: Vec<String>,
    /// URL of each request in progress, by request id.
    requests: HashMap<String, String>,
    /// Response to the request for the page's own document.
    document: Option<Document>,
    /// Script execution context of each frame.
    contexts: HashMap<String, i64>,
}

/// Response to the request for the page's own document.
#[derive(Clone, Debug)]
pub struct Document {
    /// The status code.
    pub status: u16,
    /// The headers, with lower-case names.
    pub headers: HashMap<String, String>,
}

impl PageLog {
    pub(super) fn of(frame: &str) -> PageLog {
        PageLog {
            frame: frame.to_owned(),
            notes: Mutex::default(),
            loads: watch::Sender::new(0),
        }
    }

    /// Allows requests to the origin of this URL.
    pub(super) fn allow(&self, url: &Url) {
        let origin = url.origin().ascii_serialization();
        self.notes.lock().unwrap().origins.insert(origin);
    }

    /// Number of times the page has loaded.
    pub(super) fn loads(&self) -> usize {
        *self.loads.borrow()
    }

    /// Waits until the page has loaded more than `loads` times.
    pub(super) async fn loaded_after(&self, loads: usize) {
        let mut seen = self.loads.subscribe();
        let waiting = seen.wait_for(|now| *now > loads);
        let waited = timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "the page does not load");
    }

    /// The response to the latest request for the document.
    pub(super) fn document(&self) -> Option<Document> {
        self.notes.lock().unwrap().document.clone()
    }

    /// Returns the script execution context of a frame.
    pub(super) fn context(&self, frame: &str) -> Option<i64> {
        self.notes.lock().unwrap().contexts.get(frame).copied()
    }

    /// Returns the complaints since the last call.
    pub(super) fn complaints(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap().complaints)
    }

    /// Records one event of the browser.
    pub(super) fn note(&self, event: &str, of: &Value) {
        let mut notes = self.notes.lock().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match event {
            "Page.lifecycleEvent" if of["name"] == "load" && of["frameId"] == *self.frame => {
                self.loads.send_modify(|loads| *loads += 1);
            }
            "Page.javascriptDialogOpening" => {
                let complaint = format!("dialog: {}", text(&of["message"]));
                notes.complaints.push(complaint);
            }
            "Runtime.executionContextCreated" => {
                let context = &of["context"];
                if let (true, Some(id)) = (
                    context["auxData"]["isDefault"] == true,
                    context["id"].as_i64(),
                ) {
                    let frame = text(&context["auxData"]["frameId"]);
                    notes.contexts.insert(frame, id);
                }
            }
            "Runtime.executionContextDestroyed" => {
                let gone = of["executionContextId"].as_i64();
                notes.contexts.retain(|_, id| Some(*id) != gone);
            }
            "Runtime.executionContextsCleared" => notes.contexts.clear(),
            "Runtime.consoleAPICalled" => {
                let kind = text(&of["type"]);
                if ["error", "warning", "assert"].contains(&kind.as_str()) {
                    let words = of["args"].as_array().into_iter().flatten().map(|argument| {
                        let value = argument.get("value").or(argument.get("description"));
                        value.map(Value::to_string).unwrap_or_default()
                    });
                    let words: Vec<String> = words.collect();
                    notes
                        .complaints
                        .push(format!("console {kind}: {}", words.join(" ")));
                }
            }
            "Runtime.exceptionThrown" => {
                let details = &of["exceptionDetails"];
                let what = text(&details["exception"]["description"]);
                notes
                    .complaints
                    .push(format!("exception: {} {what}", text(&details["text"])));
            }
            "Log.entryAdded" => {
                let entry = &of["entry"];
                if entry["level"] == "error" || entry["level"] == "warning" {
                    notes.complaints.push(format!(
                        "log: {} ({})",
                        text(&entry["text"]),
                        text(&entry["url"])
                    ));
                }
            }
            // Performance advice would also come from settings that the tests make.
            "Audits.issueAdded" if of["issue"]["code"] != "PerformanceIssue" => {
                let issue = &of["issue"];
                notes.complaints.push(format!(
                    "issue: {} {}",
                    text(&issue["code"]),
                    issue["details"]
                ));
            }
            "Network.requestWillBeSent" => {
                let url = text(&of["request"]["url"]);
                if let Some(complaint) = notes.leaves(&url) {
                    notes.complaints.push(complaint);
                }
                notes.requests.insert(text(&of["requestId"]), url);
            }
            "Network.responseReceived" => {
                let response = &of["response"];
                let own = of["frameId"] == *self.frame;
                let status = response["status"].as_u64().unwrap_or_default();
                if own && of["type"] == "Document" {
                    let headers = response["headers"].as_object().into_iter().flatten();
                    let headers = headers.map(|(name, value)| (name.to_lowercase(), text(value)));
                    notes.document = Some(Document {
                        status: u16::try_from(status).expect("a status"),
                        headers: headers.collect(),
                    });
                }
            }
            "Network.loadingFinished" => {
                notes.requests.remove(&text(&of["requestId"]));
            }
            "Network.loadingFailed" => {
                let url = notes.requests.remove(&text(&of["requestId"]));
                let refused = of.get("blockedReason").is_some();
                // A request that the page cancels when it is left has not failed.
                if refused || of["canceled"] != true {
                    notes.complaints.push(format!(
                        "request failed: {} {} {}",
                        url.unwrap_or_default(),
                        text(&of["errorText"]),
                        text(&of["blockedReason"])
                    ));
                }
            }
            _ => {}
        }
    }
}

impl Notes {
    /// Returns a complaint if a request goes to an origin that is not allowed.
    fn leaves(&self, url: &str) -> Option<String> {
        let stays = match Url::parse(url) {
            Ok(url) => match url.scheme() {
                // These schemes cause no request outside the browser.
                "about" | "blob" | "data" => true,
                _ => self.origins.contains(&url.origin().ascii_serialization()),
            },
            Err(_) => false,
        };
        (!stays).then(|| format!("request to another origin: {url}"))
    }
}
