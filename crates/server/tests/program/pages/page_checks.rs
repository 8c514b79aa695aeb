//! Checks for all pages: one heading, a title, accessibility, width, keyboard focus, no browser errors.

use posthaste_testbed::browser::{Page, PageAppearance, Violation};
use serde_json::Value;

/// Maximum number of retries for a page that changes during the check.
const TRIES: usize = 10;

/// Runs all checks on the open page. `named` is its name in a failure message.
pub(crate) async fn check_page(page: &Page, named: &str) {
    let faults = faults(page).await;
    assert!(faults.is_empty(), "{named}: {faults:#?}");
}

/// Returns everything that is wrong with the open page.
pub(crate) async fn faults(page: &Page) -> Vec<String> {
    let mut faults = Vec::new();
    let heads = "[...document.querySelectorAll('h1')].map(h1 => h1.innerText.trim())";
    let heads = page.ask(heads).await;
    let says_one = heads
        .as_array()
        .is_some_and(|heads| heads.len() == 1 && heads[0] != "");
    if !says_one {
        faults.push(format!("not exactly one heading: {heads}"));
    }
    if page.ask("document.title").await == "" {
        faults.push("the page has no title".to_owned());
    }
    let mut add = |look: &str, violations: Vec<Violation>| {
        let violations = violations.into_iter();
        faults.extend(violations.map(|violation| format!("{look}: {violation:#?}")));
    };
    page.emulate(PageAppearance::WIDE).await;
    add("light", page.axe().await);
    page.emulate(PageAppearance::DARK).await;
    add("dark", page.axe_colours().await);
    page.emulate(PageAppearance::NARROW).await;
    add("narrow", page.axe().await);
    for look in [
        PageAppearance::WIDE,
        PageAppearance::HALF,
        PageAppearance::NARROW,
    ] {
        page.emulate(look).await;
        let wide = page.ask("document.documentElement.scrollWidth").await;
        if wide.as_u64() > Some(u64::from(look.width)) {
            let over = overflowing_elements(page).await;
            faults.push(format!(
                "the page is {wide} pixels wide at {}: {over:#}",
                look.width
            ));
        }
    }
    page.emulate(PageAppearance::WIDE).await;
    faults.extend(reach(page).await);
    faults.extend(page.complaints());
    faults
}

/// Checks that the page has no complaints.
pub(crate) fn assert_no_errors(page: &Page, named: &str) {
    let complaints = page.complaints();
    assert!(complaints.is_empty(), "{named}: {complaints:#?}");
}

/// Returns the elements that extend beyond the window.
async fn overflowing_elements(page: &Page) -> Value {
    page.ask(
        "[...document.body.querySelectorAll('*')].filter(one => one.getBoundingClientRect().right > innerWidth + 1)
         .slice(0, 8).map(one => one.outerHTML.slice(0, 120))",
    )
    .await
}

/// Checks that every control can be reached by keyboard, with a visible focus. Returns the first problem.
async fn reach(page: &Page) -> Option<String> {
    // The visible style of an element. An outline that is always there does not show the focus.
    let prepare = "
        (() => {
            const looks = (one) => {
                const style = getComputedStyle(one);
                return [style.outlineStyle, style.outlineWidth, style.outlineColor, style.boxShadow,
                        style.borderColor, style.backgroundColor, style.textDecorationLine].join('|');
            };
            document.activeElement?.blur();
            scrollTo(0, 0);
            const all = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex=\"0\"]';
            const usable = [...document.querySelectorAll(all)].filter((one) => !one.disabled && one.tabIndex >= 0 &&
                one.checkVisibility({visibilityProperty: true}) && !(one.type === 'radio' && !one.checked &&
                document.querySelector(`input[name=\"${one.name}\"]:checked`)));
            window.usableByTest = usable.map((one) => [one, looks(one)]);
            window.focusByTest = () => {
                const now = document.activeElement;
                const found = usable.indexOf(now);
                const shown = found < 0 || looks(now) !== window.usableByTest[found][1];
                return [found, shown, now ? now.outerHTML.slice(0, 160) : ''];
            };
            return usable.length;
        })()";
    for _ in 0..TRIES {
        let count = page.ask(prepare).await.as_u64().expect("a count");
        let fault = walk(page, usize::try_from(count).expect("a small number")).await;
        // A section that was replaced meanwhile has taken its elements with it.
        let replaced = "window.usableByTest.some(([one]) => !one.isConnected)";
        if fault.is_none() || page.ask(replaced).await == false {
            return fault;
        }
    }
    Some("the page changes too often to be checked".to_owned())
}

/// Presses Tab until every control was reached. Returns one that was not.
async fn walk(page: &Page, count: usize) -> Option<String> {
    let mut reached = vec![false; count];
    // Scrollable parts of a page take the focus, too.
    for _ in 0..count * 2 + 10 {
        if reached.iter().all(|reached| *reached) {
            return None;
        }
        page.press("Tab").await;
        let focus = page.ask("window.focusByTest()").await;
        if focus[1] != true {
            return Some(format!("the focus is not visible on {}", focus[2]));
        }
        if let Some(found) = focus[0].as_u64() {
            reached[usize::try_from(found).expect("a small number")] = true;
        }
    }
    let missed = reached.iter().position(|reached| !reached)?;
    let missed = format!("window.usableByTest[{missed}][0].outerHTML.slice(0, 160)");
    Some(format!("Tab does not reach {}", page.ask(&missed).await))
}
