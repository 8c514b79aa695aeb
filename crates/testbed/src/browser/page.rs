//! A page in a browser, which a test opens, reads, clicks and types into.
//!
//! [`Page`] waits for what a test asks for: an element to click on, a script that returns true, a URL that has loaded.
//! Its log collects complaints, and tests assert that there are none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;
use url::Url;

use super::locator::Locator;
use super::page_log::{Document, PageLog};
use super::pipe::Pipe;
use crate::PATIENCE;

/// Interval between checks while a test waits for a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A page. It is closed when it is dropped.
pub struct Page {
    pub(super) pipe: Arc<Pipe>,
    pub(super) session: String,
    pub(super) frame: String,
    pub(super) log: Arc<PageLog>,
    /// Browser context that holds the cookies.
    context: String,
    /// True if dropping this page closes the context. Pages from [`Page::another`] share it and do not.
    owns_context: bool,
    target: String,
}

impl Page {
    pub(super) async fn new(pipe: Arc<Pipe>) -> Page {
        let context = pipe
            .call(None, "Target.createBrowserContext", json!({}))
            .await;
        let context = text(&context["browserContextId"]);
        // A browser with a window lets a page copy after a click. A headless one needs the permission.
        let copying = json!({
            "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "browserContextId": context,
        });
        pipe.call(None, "Browser.grantPermissions", copying).await;
        Page::inside(pipe, context, true).await
    }

    /// Opens another page that shares the cookies.
    pub async fn another(&self) -> Page {
        Page::inside(self.pipe.clone(), self.context.clone(), false).await
    }

    async fn inside(pipe: Arc<Pipe>, context: String, owns_context: bool) -> Page {
        let target = json!({"url": "about:blank", "browserContextId": context});
        let target = pipe.call(None, "Target.createTarget", target).await;
        let target = text(&target["targetId"]);
        let attach = json!({"targetId": target, "flatten": true});
        let session = pipe.call(None, "Target.attachToTarget", attach).await;
        let session = text(&session["sessionId"]);
        let tree = pipe
            .call(Some(&session), "Page.getFrameTree", json!({}))
            .await;
        let frame = text(&tree["frameTree"]["frame"]["id"]);
        let log = Arc::new(PageLog::of(&frame));
        pipe.keep(&session, log.clone());
        let page = Page {
            pipe,
            session,
            frame,
            log,
            context,
            owns_context,
            target,
        };
        for domain in ["Page", "Runtime", "Network", "Log", "Audits"] {
            page.call(&format!("{domain}.enable"), json!({})).await;
        }
        let on = json!({"enabled": true});
        page.call("Page.setLifecycleEventsEnabled", on.clone())
            .await;
        // Every page behaves as if it had the focus.
        page.call("Emulation.setFocusEmulationEnabled", on).await;
        page.emulate(super::PageAppearance::default()).await;
        page
    }

    pub(super) async fn call(&self, method: &str, parameters: Value) -> Value {
        let session = Some(self.session.as_str());
        self.pipe.call(session, method, parameters).await
    }

    /// Opens a URL, waits until it has loaded, and returns the response.
    pub async fn open(&self, url: &str) -> Document {
        let parsed: Url = url.parse().expect("a URL");
        self.log.allow(&parsed);
        let loads = self.log.loads();
        let went = self.call("Page.navigate", json!({"url": url})).await;
        assert!(
            went.get("errorText").is_none(),
            "{url}: {}",
            went["errorText"]
        );
        self.log.loaded_after(loads).await;
        self.log.document().expect("a requested document")
    }

    /// Allows requests to the origin of this URL without a complaint.
    pub fn allow(&self, url: &str) {
        self.log.allow(&url.parse().expect("a URL"));
    }

    /// Reloads the page and returns the response.
    pub async fn reload(&self) -> Document {
        let loads = self.log.loads();
        self.call("Page.reload", json!({})).await;
        self.log.loaded_after(loads).await;
        self.log.document().expect("a requested document")
    }

    /// Clicks on an element that leads to another page, waits until that has loaded, and returns the response.
    pub async fn follow(&self, locator: impl Into<Locator>) -> Document {
        let loads = self.log.loads();
        self.click(locator).await;
        self.log.loaded_after(loads).await;
        self.log.document().expect("a requested document")
    }

    /// Presses a key that leads to another page, waits until that has loaded, and returns the response.
    pub async fn press_and_load(&self, key: &str) -> Document {
        let loads = self.log.loads();
        self.press(key).await;
        self.log.loaded_after(loads).await;
        self.log.document().expect("a requested document")
    }

    /// Returns the value of a script, or its error.
    pub async fn try_eval(&self, script: &str) -> Result<Value, String> {
        self.eval_in_context(script, None).await
    }

    /// Returns the value of a script. Panics if it fails.
    pub async fn ask(&self, script: &str) -> Value {
        let answer = self.try_eval(script).await;
        answer.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    pub(super) async fn eval_in_context(
        &self,
        script: &str,
        context: Option<i64>,
    ) -> Result<Value, String> {
        // Counts as user activation, which some browser functions require.
        let mut order = json!({
            "expression": script, "awaitPromise": true, "returnByValue": true, "userGesture": true,
        });
        if let Some(context) = context {
            order["contextId"] = json!(context);
        }
        let session = Some(self.session.as_str());
        let mut answer = self
            .pipe
            .try_call(session, "Runtime.evaluate", order)
            .await?;
        match answer.get("exceptionDetails") {
            None => Ok(answer["result"]["value"].take()),
            Some(details) => Err(format!(
                "{} {}",
                text(&details["text"]),
                text(&details["exception"]["description"])
            )),
        }
    }

    /// Returns the value of a script in the first frame of the page. `None` if the frame cannot run it yet.
    pub async fn eval_in_frame(&self, script: &str) -> Option<Value> {
        let tree = self.call("Page.getFrameTree", json!({})).await;
        let frame = &tree["frameTree"]["childFrames"][0]["frame"];
        let context = self.log.context(frame["id"].as_str()?)?;
        self.eval_in_context(script, Some(context)).await.ok()
    }

    /// Waits until a script returns neither null nor false, and returns the value.
    pub async fn until(&self, script: &str) -> Value {
        let wanted = async || self.try_eval(script).await.ok();
        self.until_some(script, wanted).await
    }

    /// Waits until a script returns neither null nor false in the first frame, and returns the value.
    pub async fn until_in_frame(&self, script: &str) -> Value {
        let wanted = async || self.eval_in_frame(script).await;
        self.until_some(script, wanted).await
    }

    /// Retries because a page that is being replaced has no answer.
    async fn until_some(&self, script: &str, wanted: impl AsyncFn() -> Option<Value>) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match wanted().await {
                None | Some(Value::Null | Value::Bool(false)) => {}
                Some(value) => return value,
            }
            if Instant::now() >= deadline {
                let shown = "document.body && document.body.innerText";
                let shown = self.try_eval(shown).await.unwrap_or_default();
                panic!(
                    "never so: {script}\nThe page at {} says:\n{}\nComplaints: {:?}",
                    self.url().await,
                    shown.as_str().unwrap_or_default(),
                    self.log.complaints()
                );
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until this element is visible.
    pub async fn wait_for(&self, locator: impl Into<Locator>) {
        let locator = locator.into();
        let script = format!("!!({}) /* {} */", locator.script(), locator.named());
        self.until(&script).await;
    }

    /// Returns true if this element is visible.
    pub async fn has(&self, locator: impl Into<Locator>) -> bool {
        let script = format!("!!({})", locator.into().script());
        self.ask(&script).await == true
    }

    /// Waits for this element and returns its displayed text.
    pub async fn text(&self, locator: impl Into<Locator>) -> String {
        let locator = locator.into();
        self.wait_for(&locator).await;
        text(&self.ask(&format!("({}).innerText", locator.script())).await)
    }

    /// Waits for this element and returns one of its attributes.
    pub async fn attribute(&self, locator: impl Into<Locator>, name: &str) -> Option<String> {
        let locator = locator.into();
        self.wait_for(&locator).await;
        let script = format!("({}).getAttribute({})", locator.script(), json!(name));
        self.ask(&script).await.as_str().map(str::to_owned)
    }

    /// URL of the page.
    pub async fn url(&self) -> String {
        text(&self.try_eval("location.href").await.unwrap_or_default())
    }

    /// Clicks on this element as soon as a user could: it is visible, enabled and not covered.
    pub async fn click(&self, locator: impl Into<Locator>) {
        let locator = locator.into();
        let script = format!(
            "(() => {{
                const found = {};
                if (!found || found.disabled) return null;
                found.scrollIntoView({{block: 'center', inline: 'center', behavior: 'instant'}});
                const box = found.getClientRects()[0];
                if (!box || !box.width || !box.height) return null;
                const x = box.x + box.width / 2, y = box.y + box.height / 2;
                const hit = document.elementFromPoint(x, y);
                return hit && (found.contains(hit) || hit.contains(found)) ? [x, y] : null;
            }})() /* {} */",
            locator.script(),
            locator.named()
        );
        let place = self.until(&script).await;
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let mouse = json!({
                "type": kind, "x": place[0], "y": place[1], "button": button, "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", mouse).await;
        }
    }

    /// Replaces the text of a field.
    pub async fn fill(&self, locator: impl Into<Locator>, words: &str) {
        let locator = locator.into();
        self.wait_for(&locator).await;
        let select = format!(
            "(() => {{ const field = {}; field.focus(); field.select(); }})()",
            locator.script()
        );
        self.ask(&select).await;
        if words.is_empty() {
            self.press("Delete").await;
        } else {
            self.call("Input.insertText", json!({"text": words})).await;
        }
    }

    /// Chooses the option of a select list that has this value.
    pub async fn choose(&self, locator: impl Into<Locator>, value: &str) {
        let locator = locator.into();
        self.wait_for(&locator).await;
        let choose = format!(
            "(() => {{ const list = {}; list.value = {}; \
             for (const name of ['input', 'change']) list.dispatchEvent(new Event(name, {{bubbles: true}})); \
             return list.value; }})()",
            locator.script(),
            json!(value)
        );
        assert_eq!(
            self.ask(&choose).await,
            value,
            "{} has no such choice",
            locator.named()
        );
    }

    /// Presses a key, such as `Tab`, `Enter` or `a`.
    pub async fn press(&self, key: &str) {
        let (code, number, writes) = match key {
            "Tab" => ("Tab", 9, None),
            "Enter" => ("Enter", 13, Some("\r")),
            "Escape" => ("Escape", 27, None),
            "Delete" => ("Delete", 46, None),
            " " => ("Space", 32, Some(" ")),
            letter => (letter, 0, Some(letter)),
        };
        let mut event = json!({
            "type": if writes.is_some() { "keyDown" } else { "rawKeyDown" },
            "key": key, "code": code, "windowsVirtualKeyCode": number,
        });
        if let Some(writes) = writes {
            event["text"] = json!(writes);
        }
        self.call("Input.dispatchKeyEvent", event.clone()).await;
        event["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", event).await;
    }

    /// Cookies that the browser would send to the current URL.
    pub async fn cookies(&self) -> Vec<Value> {
        let cookies = self.call("Network.getCookies", json!({})).await;
        let cookies = cookies["cookies"].as_array();
        cookies.expect("a list of cookies").clone()
    }

    /// Returns the complaints since the last call.
    pub fn complaints(&self) -> Vec<String> {
        self.log.complaints()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.pipe.forget(&self.session);
        if self.owns_context {
            let context = json!({"browserContextId": self.context});
            self.pipe.order("Target.disposeBrowserContext", context);
        } else {
            let target = json!({"targetId": self.target});
            self.pipe.order("Target.closeTarget", target);
        }
    }
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
