//! Locates an element on a page, by its text, its label or a selector.

use serde_json::json;

/// Locates an element, as a script that finds it.
#[derive(Clone, Debug)]
pub struct Locator {
    script: String,
    named: String,
}

/// Script condition: the text, value or `aria-label` of the element contains the words.
const HAS_TEXT: &str = "[found.innerText, found.value, found.getAttribute('aria-label')].some(said => \
     typeof said === 'string' && said.replace(/\\s+/g, ' ').includes(words))";
/// Script condition: a label of the control contains the words.
const IS_LABELLED: &str =
    "[...found.labels].some(label => label.innerText.replace(/\\s+/g, ' ').includes(words))";

impl Locator {
    /// The first visible element that matches this selector and contains these words in its text, value or label.
    pub fn with_text(selector: &str, words: &str) -> Locator {
        Locator {
            script: first("document", selector, HAS_TEXT, words),
            named: format!("{selector} that says {words:?}"),
        }
    }

    /// Like [`Locator::with_text`], but inside another element.
    pub fn within(outer: &Locator, selector: &str, words: &str) -> Locator {
        Locator {
            script: first(&outer.script, selector, HAS_TEXT, words),
            named: format!("{selector} that says {words:?}, within {}", outer.named),
        }
    }

    /// The control with this label.
    pub fn labelled(label: &str) -> Locator {
        Locator {
            script: first("document", "input, select, textarea", IS_LABELLED, label),
            named: format!("the control labelled {label:?}"),
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

impl From<&str> for Locator {
    /// The first visible element that matches this selector.
    fn from(selector: &str) -> Locator {
        Locator {
            script: first("document", selector, "true", ""),
            named: selector.to_owned(),
        }
    }
}

impl From<&Locator> for Locator {
    fn from(locator: &Locator) -> Locator {
        locator.clone()
    }
}
