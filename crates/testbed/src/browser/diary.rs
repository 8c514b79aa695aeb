//! What happens at a page, written down as the browser tells it.
//!
//! Whatever a person with the developer tools open would frown at is a complaint: errors and warnings of the console, exceptions
//! nobody caught, refusals by the content security policy, requests that failed, dialogs, and every request that leaves for
//! another origin.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use url::Url;

use crate::PATIENCE;

/// One page's diary.
pub(super) struct Diary {
    /// The page itself, as opposed to frames in it.
    frame: String,
    notes: Mutex<Notes>,
    loads: watch::Sender<usize>,
}

#[derive(Default)]
struct Notes {
    /// The origins that the test opened itself.
    origins: HashSet<String>,
    complaints: Vec<String>,
    /// Where each request under way goes.
    requests: HashMap<String, String>,
    /// What the page's own document was answered with.
    document: Option<Document>,
    /// Where script of a frame can be run.
    contexts: HashMap<String, i64>,
}

/// How the page's own document was answered.
#[derive(Clone, Debug)]
pub struct Document {
    /// The status.
    pub status: u16,
    /// The headers, by their names in lower case.
    pub headers: HashMap<String, String>,
}

impl Diary {
    pub(super) fn of(frame: &str) -> Diary {
        Diary {
            frame: frame.to_owned(),
            notes: Mutex::default(),
            loads: watch::Sender::new(0),
        }
    }

    /// Requests to this origin are the test's own wish.
    pub(super) fn allow(&self, url: &Url) {
        let origin = url.origin().ascii_serialization();
        self.notes.lock().unwrap().origins.insert(origin);
    }

    /// How often the page has loaded.
    pub(super) fn loads(&self) -> usize {
        *self.loads.borrow()
    }

    /// Waits until it has loaded more often.
    pub(super) async fn loaded_after(&self, loads: usize) {
        let mut seen = self.loads.subscribe();
        let waiting = seen.wait_for(|now| *now > loads);
        let waited = timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "the page does not load");
    }

    /// How the document was answered that was asked for last.
    pub(super) fn document(&self) -> Option<Document> {
        self.notes.lock().unwrap().document.clone()
    }

    /// Where script of this frame can be run.
    pub(super) fn context(&self, frame: &str) -> Option<i64> {
        self.notes.lock().unwrap().contexts.get(frame).copied()
    }

    /// What there was to complain about since this was asked last.
    pub(super) fn complaints(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap().complaints)
    }

    /// Writes down something that happened.
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
            // Advice about speed would follow from what tests ask for, too.
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
                if let Some(stranger) = notes.leaves(&url) {
                    notes.complaints.push(stranger);
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
                // What a page gives up by itself when it is left has not failed.
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
    /// What to complain about if a request leaves for somewhere else.
    fn leaves(&self, url: &str) -> Option<String> {
        let stays = match Url::parse(url) {
            Ok(url) => match url.scheme() {
                // Nothing of this leaves the browser.
                "about" | "blob" | "data" => true,
                _ => self.origins.contains(&url.origin().ascii_serialization()),
            },
            Err(_) => false,
        };
        (!stays).then(|| format!("request to somebody else: {url}"))
    }
}
