//! A page in a browser: opened, read, clicked and typed into as a person does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::sleep;
use url::Url;

use super::diary::{Diary, Document};
use super::pipe::Pipe;
use super::spot::Spot;
use crate::PATIENCE;

/// How often a page is asked whether it is as wanted by now.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A page, with cookies of its own. It is closed when it is dropped.
pub struct Page {
    pub(super) pipe: Arc<Pipe>,
    pub(super) session: String,
    pub(super) frame: String,
    pub(super) diary: Arc<Diary>,
    /// What its cookies belong to.
    context: String,
    /// Others share its cookies, and one of them closes it.
    owns_context: bool,
    target: String,
}

impl Page {
    pub(super) async fn new(pipe: Arc<Pipe>) -> Page {
        let context = pipe
            .call(None, "Target.createBrowserContext", json!({}))
            .await;
        let context = text(&context["browserContextId"]);
        // Browsers with a window let a page copy when a button was pressed; without one there is nobody to see that.
        let copying = json!({
            "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "browserContextId": context,
        });
        pipe.call(None, "Browser.grantPermissions", copying).await;
        Page::inside(pipe, context, true).await
    }

    /// Another page of the same visitor, with the same cookies.
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
        let diary = Arc::new(Diary::of(&frame));
        pipe.keep(&session, diary.clone());
        let page = Page {
            pipe,
            session,
            frame,
            diary,
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
        // Each page is the one that somebody looks at.
        page.call("Emulation.setFocusEmulationEnabled", on).await;
        page.emulate(super::Look::default()).await;
        page
    }

    pub(super) async fn call(&self, method: &str, parameters: Value) -> Value {
        let session = Some(self.session.as_str());
        self.pipe.call(session, method, parameters).await
    }

    /// Opens a URL, waits until it has loaded, and says how it was answered.
    pub async fn open(&self, url: &str) -> Document {
        let parsed: Url = url.parse().expect("a URL");
        self.diary.allow(&parsed);
        let loads = self.diary.loads();
        let went = self.call("Page.navigate", json!({"url": url})).await;
        assert!(
            went.get("errorText").is_none(),
            "{url}: {}",
            went["errorText"]
        );
        self.diary.loaded_after(loads).await;
        self.diary.document().expect("a document was asked for")
    }

    /// Requests to this origin are no complaint: the test means them.
    pub fn allow(&self, url: &str) {
        self.diary.allow(&url.parse().expect("a URL"));
    }

    /// Loads it again.
    pub async fn reload(&self) -> Document {
        let loads = self.diary.loads();
        self.call("Page.reload", json!({})).await;
        self.diary.loaded_after(loads).await;
        self.diary.document().expect("a document was asked for")
    }

    /// Clicks on something that leads to another page, waits until that has loaded, and says how it was answered.
    pub async fn follow(&self, spot: impl Into<Spot>) -> Document {
        let loads = self.diary.loads();
        self.click(spot).await;
        self.diary.loaded_after(loads).await;
        self.diary.document().expect("a document was asked for")
    }

    /// Presses a key that leads to another page, and waits until that has loaded.
    pub async fn follow_key(&self, key: &str) -> Document {
        let loads = self.diary.loads();
        self.press(key).await;
        self.diary.loaded_after(loads).await;
        self.diary.document().expect("a document was asked for")
    }

    /// What a script gives, or why it does not.
    pub async fn try_ask(&self, script: &str) -> Result<Value, String> {
        self.evaluate(script, None).await
    }

    /// What a script gives.
    pub async fn ask(&self, script: &str) -> Value {
        let answer = self.try_ask(script).await;
        answer.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    pub(super) async fn evaluate(
        &self,
        script: &str,
        context: Option<i64>,
    ) -> Result<Value, String> {
        // As if somebody had just touched the page: it is a person who asks.
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

    /// What a script gives in the first frame of the page, or `None` while there is none that could be asked.
    pub async fn ask_frame(&self, script: &str) -> Option<Value> {
        let tree = self.call("Page.getFrameTree", json!({})).await;
        let frame = &tree["frameTree"]["childFrames"][0]["frame"];
        let context = self.diary.context(frame["id"].as_str()?)?;
        self.evaluate(script, Some(context)).await.ok()
    }

    /// Waits until a script gives something true.
    pub async fn until(&self, script: &str) -> Value {
        let wanted = async || self.try_ask(script).await.ok();
        self.until_some(script, wanted).await
    }

    /// Waits until a script gives something true in the first frame.
    pub async fn until_in_frame(&self, script: &str) -> Value {
        let wanted = async || self.ask_frame(script).await;
        self.until_some(script, wanted).await
    }

    /// Asks again and again: a page that is just being replaced has no answer.
    async fn until_some(&self, script: &str, wanted: impl AsyncFn() -> Option<Value>) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match wanted().await {
                None | Some(Value::Null | Value::Bool(false)) => {}
                Some(value) => return value,
            }
            if Instant::now() >= deadline {
                let shown = "document.body && document.body.innerText";
                let shown = self.try_ask(shown).await.unwrap_or_default();
                panic!(
                    "never so: {script}\nThe page at {} says:\n{}\nComplaints: {:?}",
                    self.url().await,
                    shown.as_str().unwrap_or_default(),
                    self.diary.complaints()
                );
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until this is there and can be seen.
    pub async fn wait_for(&self, spot: impl Into<Spot>) {
        let spot = spot.into();
        let script = format!("!!({}) /* {} */", spot.script(), spot.named());
        self.until(&script).await;
    }

    /// Whether this is there and can be seen.
    pub async fn has(&self, spot: impl Into<Spot>) -> bool {
        let script = format!("!!({})", spot.into().script());
        self.ask(&script).await == true
    }

    /// Waits for this, and reads it as a person would.
    pub async fn text(&self, spot: impl Into<Spot>) -> String {
        let spot = spot.into();
        self.wait_for(&spot).await;
        text(&self.ask(&format!("({}).innerText", spot.script())).await)
    }

    /// Waits for this, and reads one of its attributes.
    pub async fn attribute(&self, spot: impl Into<Spot>, name: &str) -> Option<String> {
        let spot = spot.into();
        self.wait_for(&spot).await;
        let script = format!("({}).getAttribute({})", spot.script(), json!(name));
        self.ask(&script).await.as_str().map(str::to_owned)
    }

    /// Where it is.
    pub async fn url(&self) -> String {
        text(&self.try_ask("location.href").await.unwrap_or_default())
    }

    /// Clicks on this, as soon as a person could: it is there, stands still, and nothing lies over it.
    pub async fn click(&self, spot: impl Into<Spot>) {
        let spot = spot.into();
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
            spot.script(),
            spot.named()
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

    /// Types this into a field, instead of what stood there.
    pub async fn fill(&self, spot: impl Into<Spot>, words: &str) {
        let spot = spot.into();
        self.wait_for(&spot).await;
        let select = format!(
            "(() => {{ const field = {}; field.focus(); field.select(); }})()",
            spot.script()
        );
        self.ask(&select).await;
        if words.is_empty() {
            self.press("Delete").await;
        } else {
            self.call("Input.insertText", json!({"text": words})).await;
        }
    }

    /// Chooses the option of a list that has this value.
    pub async fn choose(&self, spot: impl Into<Spot>, value: &str) {
        let spot = spot.into();
        self.wait_for(&spot).await;
        let choose = format!(
            "(() => {{ const list = {}; list.value = {}; \
             for (const name of ['input', 'change']) list.dispatchEvent(new Event(name, {{bubbles: true}})); \
             return list.value; }})()",
            spot.script(),
            json!(value)
        );
        assert_eq!(
            self.ask(&choose).await,
            value,
            "{} has no such choice",
            spot.named()
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

    /// The cookies that are sent to where it is, as the browser keeps them.
    pub async fn cookies(&self) -> Vec<Value> {
        let cookies = self.call("Network.getCookies", json!({})).await;
        let cookies = cookies["cookies"].as_array();
        cookies.expect("a list of cookies").clone()
    }

    /// What there was to complain about since this was asked last.
    pub fn complaints(&self) -> Vec<String> {
        self.diary.complaints()
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
