//! The look of a page: window size, colour scheme and scripting ([`PageAppearance`]), screenshots, and accessibility
//! checks.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

use super::page::{Page, text};
use super::{AXE_VARIABLE, named_by};

/// The window size, colour scheme and scripting of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAppearance {
    /// Width of the window, in pixels.
    pub width: u32,
    /// Height of the window, in pixels.
    pub height: u32,
    /// True if the user prefers a dark colour scheme.
    pub dark: bool,
    /// True if scripts run.
    pub script: bool,
}

impl PageAppearance {
    /// A desktop window.
    pub const WIDE: PageAppearance = PageAppearance {
        width: 1_280,
        height: 800,
        dark: false,
        script: true,
    };

    /// A desktop window with the dark colour scheme.
    pub const DARK: PageAppearance = PageAppearance {
        dark: true,
        ..PageAppearance::WIDE
    };

    /// The width of a small phone.
    pub const NARROW: PageAppearance = PageAppearance {
        width: 380,
        height: 800,
        ..PageAppearance::WIDE
    };

    /// Half the width of a screen.
    pub const HALF: PageAppearance = PageAppearance {
        width: 960,
        ..PageAppearance::WIDE
    };

    /// A browser that runs no script.
    pub const WITHOUT_SCRIPT: PageAppearance = PageAppearance {
        script: false,
        ..PageAppearance::WIDE
    };
}

impl Default for PageAppearance {
    fn default() -> PageAppearance {
        PageAppearance::WIDE
    }
}

/// An accessibility problem that axe-core found.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule, such as `color-contrast`.
    pub rule: String,
    /// Description of what the rule requires.
    pub help: String,
    /// The elements that break the rule, and why.
    pub nodes: Vec<String>,
}

impl Page {
    /// Uses this look from now on. Animations are off, so that a screenshot shows the final state.
    pub async fn emulate(&self, look: PageAppearance) {
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

    /// Returns a screenshot as a PNG.
    pub async fn screenshot(&self, look: PageAppearance) -> Vec<u8> {
        self.emulate(look).await;
        // Two frames: the first one computes the new layout, the second one is painted.
        let painted = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        if look.script {
            self.ask(painted).await;
        }
        let shot = json!({"format": "png", "optimizeForSpeed": false});
        let shot = self.call("Page.captureScreenshot", shot).await;
        let bytes = BASE64_STANDARD.decode(text(&shot["data"]));
        bytes.expect("base64 from the browser")
    }

    /// Runs all rules of axe-core on the page, and returns the violations.
    pub async fn axe(&self) -> Vec<Violation> {
        self.run_axe(json!({})).await
    }

    /// Runs only the colour contrast rule of axe-core, for a page of which only the colours have changed.
    pub async fn axe_colours(&self) -> Vec<Violation> {
        self.run_axe(json!({"runOnly": ["color-contrast"]})).await
    }

    /// Runs axe-core in an isolated world, so that the page neither sees it nor blocks it with its policy.
    async fn run_axe(&self, mut options: Value) -> Vec<Violation> {
        let world = json!({"frameId": self.frame, "worldName": "axe"});
        let world = self.call("Page.createIsolatedWorld", world).await;
        let world = world["executionContextId"].as_i64();
        // A page keeps its isolated world until another page is opened.
        let loaded = self
            .eval_in_context("typeof axe !== 'undefined'", world)
            .await;
        if loaded.expect("a script can be run") == false {
            let file = named_by(AXE_VARIABLE);
            let source = std::fs::read_to_string(&file);
            let source = source.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            self.eval_in_context(&format!("{source};true"), world)
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
        let found = self
            .eval_in_context(&run, world)
            .await
            .expect("axe-core runs");
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

/// Returns the width and height of a PNG, in pixels.
pub fn png_size(png: &[u8]) -> (u32, u32) {
    let head = png.get(..24).expect("the head of a PNG");
    assert_eq!(&head[..8], b"\x89PNG\r\n\x1a\n", "not a PNG");
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
    (number(16), number(20))
}
