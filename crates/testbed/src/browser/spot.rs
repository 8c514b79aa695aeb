//! Locates an element on a page, by its text, its label or a selector.

use serde_json::json;

/// Locates an element, as a script that finds it.
#[derive(Clone, Debug)]
pub struct Spot {
    script: String,
    named: String,
}

/// Script condition: the text, value or `aria-label` of the element contains the words.
const HAS_TEXT: &str = "[found.innerText, found.value, found.getAttribute('aria-label')].some(said => \
     typeof said === 'string' && said.replace(/\\s+/g, ' ').includes(words))";
/// Script condition: a label of the control contains the words.
const IS_LABELLED: &str =
    "[...found.labels].some(label => label.innerText.replace(/\\s+/g, ' ').includes(words))";

impl Spot {
    /// The first visible element that matches this selector and contains these words in its text, value or label.
    pub fn saying(selector: &str, words: &str) -> Spot {
        Spot {
            script: first("document", selector, HAS_TEXT, words),
            named: format!("{selector} that says {words:?}"),
        }
    }

    /// Like [`Spot::saying`], but inside another element.
    pub fn within(outer: &Spot, selector: &str, words: &str) -> Spot {
        Spot {
            script: first(&outer.script, selector, HAS_TEXT, words),
            named: format!("{selector} that says {words:?}, within {}", outer.named),
        }
    }

    /// The control with this label.
    pub fn labelled(label: &str) -> Spot {
        Spot {
            script: first("document", "input, select, textarea", IS_LABELLED, label),
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

/// Returns a script that finds the first visible element that meets a condition.
fn first(root: &str, selector: &str, holds: &str, words: &str) -> String {
    format!(
        "((root, words) => root && [...root.querySelectorAll({})].find(found => \
         found.checkVisibility({{visibilityProperty: true}}) && {holds}))({root}, {})",
        json!(selector),
        json!(words),
    )
}

impl From<&str> for Spot {
    /// The first visible element that matches this selector.
    fn from(selector: &str) -> Spot {
        Spot {
            script: first("document", selector, "true", ""),
            named: selector.to_owned(),
        }
    }
}

impl From<&Spot> for Spot {
    fn from(spot: &Spot) -> Spot {
        spot.clone()
    }
}
