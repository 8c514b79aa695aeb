//! Where on a page: as a person would say it, or by a selector.

use serde_json::json;

/// A place on a page, as a script that finds its element.
#[derive(Clone, Debug)]
pub struct Spot {
    script: String,
    named: String,
}

impl Spot {
    /// The first visible element that matches this selector and says these words, alone or among others, or is labelled so.
    pub fn saying(selector: &str, words: &str) -> Spot {
        let script = format!(
            "[...document.querySelectorAll({})].find(found => {VISIBLE} && \
             [found.innerText, found.value, found.getAttribute('aria-label')].some(said => \
             typeof said === 'string' && said.replace(/\\s+/g, ' ').includes({})))",
            json!(selector),
            json!(words),
        );
        Spot {
            script,
            named: format!("{selector} that says {words:?}"),
        }
    }

    /// The control with this label.
    pub fn labelled(label: &str) -> Spot {
        let script = format!(
            "[...document.querySelectorAll('input, select, textarea')].find(found => {VISIBLE} && \
             [...found.labels].some(label => label.innerText.replace(/\\s+/g, ' ').includes({})))",
            json!(label),
        );
        Spot {
            script,
            named: format!("what is labelled {label:?}"),
        }
    }

    pub(super) fn script(&self) -> &str {
        &self.script
    }

    pub(super) fn named(&self) -> &str {
        &self.named
    }
}

/// What is hidden is not found.
const VISIBLE: &str = "found.checkVisibility()";

impl From<&str> for Spot {
    /// The first visible element that matches this selector.
    fn from(selector: &str) -> Spot {
        let script = format!(
            "[...document.querySelectorAll({})].find(found => {VISIBLE})",
            json!(selector)
        );
        Spot {
            script,
            named: selector.to_owned(),
        }
    }
}

impl From<&Spot> for Spot {
    fn from(spot: &Spot) -> Spot {
        spot.clone()
    }
}
