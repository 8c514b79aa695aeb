//! Where on a page: as a person would say it, or by a selector.

use serde_json::json;

/// A place on a page, as a script that finds its element.
#[derive(Clone, Debug)]
pub struct Spot {
    script: String,
    named: String,
}

/// Whether an element says something, alone or among other words, or is labelled so.
const SAYS: &str = "[found.innerText, found.value, found.getAttribute('aria-label')].some(said => \
     typeof said === 'string' && said.replace(/\\s+/g, ' ').includes(words))";
/// Whether the label of a control says something.
const IS_LABELLED: &str =
    "[...found.labels].some(label => label.innerText.replace(/\\s+/g, ' ').includes(words))";

impl Spot {
    /// The first visible element that matches this selector and says these words, alone or among others, or is labelled so.
    pub fn saying(selector: &str, words: &str) -> Spot {
        Spot {
            script: first("document", selector, SAYS, words),
            named: format!("{selector} that says {words:?}"),
        }
    }

    /// The same within another place.
    pub fn within(outer: &Spot, selector: &str, words: &str) -> Spot {
        Spot {
            script: first(&outer.script, selector, SAYS, words),
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

/// A script that finds the first element of which something holds. What is hidden is not found.
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
