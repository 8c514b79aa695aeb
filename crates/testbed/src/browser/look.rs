//! How a page is looked at: how wide, in which colours, with or without script; what it looks like; and who could not use it.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

use super::page::{Page, text};
use super::{AXE_VARIABLE, named_by};

/// How somebody looks at a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The width of the window.
    pub width: u32,
    /// And its height.
    pub height: u32,
    /// Whether dark colours are preferred.
    pub dark: bool,
    /// Whether scripts run.
    pub script: bool,
}

impl Look {
    /// A window on a desk.
    pub const WIDE: Look = Look {
        width: 1_280,
        height: 800,
        dark: false,
        script: true,
    };

    /// The same at night.
    pub const DARK: Look = Look {
        dark: true,
        ..Look::WIDE
    };

    /// A small telephone.
    pub const NARROW: Look = Look {
        width: 380,
        height: 800,
        ..Look::WIDE
    };

    /// Half a screen.
    pub const HALF: Look = Look {
        width: 960,
        ..Look::WIDE
    };

    /// A browser that runs no script.
    pub const WITHOUT_SCRIPT: Look = Look {
        script: false,
        ..Look::WIDE
    };
}

impl Default for Look {
    fn default() -> Look {
        Look::WIDE
    }
}

/// What a person with another body than the author's could not use.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule, such as `color-contrast`.
    pub rule: String,
    /// What it asks for.
    pub help: String,
    /// Where it is broken, and how.
    pub nodes: Vec<String>,
}

impl Page {
    /// Looks at it like this from now on. Nothing moves, so that what is seen is what stays.
    pub async fn emulate(&self, look: Look) {
        let size = json!({
            "width": look.width, "height": look.height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if look.dark { "dark" } else { "light" };
        let media = json!({"features": [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.call("Emulation.setEmulatedMedia", media).await;
        let script = json!({"value": !look.script});
        self.call("Emulation.setScriptExecutionDisabled", script)
            .await;
    }

    /// What it looks like, as a PNG.
    pub async fn screenshot(&self, look: Look) -> Vec<u8> {
        self.emulate(look).await;
        // Two frames: the first one is laid out anew, the second is painted.
        let painted = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        if look.script {
            self.ask(painted).await;
        }
        let shot = json!({"format": "png", "optimizeForSpeed": false});
        let shot = self.call("Page.captureScreenshot", shot).await;
        let bytes = BASE64_STANDARD.decode(text(&shot["data"]));
        bytes.expect("the browser writes base64")
    }

    /// Runs all rules of axe-core on the page, and returns the violations.
    pub async fn axe(&self) -> Vec<Violation> {
        self.run_axe(json!({})).await
    }

    /// Runs the rule of axe-core about colours alone: for a page of which only the colours have changed.
    pub async fn axe_colours(&self) -> Vec<Violation> {
        self.run_axe(json!({"runOnly": ["color-contrast"]})).await
    }

    /// Runs axe-core in a world of its own, so the page neither sees it nor forbids it.
    async fn run_axe(&self, mut options: Value) -> Vec<Violation> {
        let world = json!({"frameId": self.frame, "worldName": "axe"});
        let world = self.call("Page.createIsolatedWorld", world).await;
        let world = world["executionContextId"].as_i64();
        // A page keeps its world until another page is opened.
        let loaded = self.evaluate("typeof axe !== 'undefined'", world).await;
        if loaded.expect("a script can be run") == false {
            let file = named_by(AXE_VARIABLE);
            let source = std::fs::read_to_string(&file);
            let source = source.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            self.evaluate(&format!("{source};true"), world)
                .await
                .expect("axe-core can be read");
        }
        options["resultTypes"] = json!(["violations"]);
        options["preload"] = json!(false);
        let run = format!(
            "axe.run(document, {options}).then(found => \
             found.violations.map(({{id, help, nodes}}) => ({{id, help, nodes: nodes.map(node => \
             node.target.join(' ') + ': ' + node.html + ' ' + node.failureSummary)}})))"
        );
        let found = self.evaluate(&run, world).await.expect("axe-core runs");
        let found = found.as_array().expect("a list of violations").iter();
        found
            .map(|violation| Violation {
                rule: text(&violation["id"]),
                help: text(&violation["help"]),
                nodes: violation["nodes"]
                    .as_array()
                    .map(|nodes| nodes.iter().map(text).collect())
                    .unwrap_or_default(),
            })
            .collect()
    }
}

/// The size of a PNG.
pub fn png_size(png: &[u8]) -> (u32, u32) {
    let head = png.get(..24).expect("the head of a PNG");
    assert_eq!(&head[..8], b"\x89PNG\r\n\x1a\n", "it is no PNG");
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
    (number(16), number(20))
}
