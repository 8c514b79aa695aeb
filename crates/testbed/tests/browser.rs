//! Tests of the browser fixture. A fixture that is wrong makes every test wrong that uses it.

#![allow(
    clippy::disallowed_methods,
    reason = "the testbed is called as nodes and databases are"
)]

use std::time::Instant;

use posthaste_testbed::browser::{Browser, Locator, Page, PageAppearance, png_size};
use posthaste_testbed::{Answer, Arrival, PATIENCE, Receiver};

/// A web server with these pages: path, content type and body.
async fn site(pages: &'static [(&'static str, &'static str, &'static str)]) -> Receiver {
    Receiver::start(move |arrival: &Arrival| {
        let found = pages.iter().find(|(path, _, _)| *path == arrival.path);
        let Some((_, kind, body)) = found else {
            return Answer::status(404);
        };
        let mut answer = Answer::status(200);
        answer.headers.push(("content-type", (*kind).to_owned()));
        answer.body = (*body).into();
        answer
    })
    .await
}

const HTML: &str = "text/html; charset=utf-8";

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_read_clicked_and_typed_into() {
    let site = site(&[
        (
            "/form",
            HTML,
            "<!doctype html><html lang=en><title>Form</title><h1>Form</h1>
             <p hidden id=secret>hidden words</p>
             <form action=/done><label>Your <b>name</b> <input name=name value=before></label>
             <select name=kind aria-label=Kind><option>a<option>b</select>
             <button type=button id=no disabled>Save</button> <button>Save</button></form>
             <p id=later></p>
             <script>setTimeout(() => later.innerHTML = '<b>it came</b>', 50)</script>",
        ),
        (
            "/done",
            HTML,
            "<!doctype html><html lang=en><title>Done</title><h1>Done</h1><p>Thank you.",
        ),
    ])
    .await;
    let browser = Browser::start();
    let page = browser.page().await;
    let document = page.open(&site.url_of("form")).await;
    assert_eq!(document.status, 200);
    assert_eq!(document.headers["content-type"], HTML);
    assert_eq!(page.text("h1").await, "Form");
    assert_eq!(page.text("#later b").await, "it came");
    assert!(!page.has("#secret").await, "hidden elements have no text");
    assert!(page.has(Locator::with_text("button", "Save")).await);

    page.fill(Locator::labelled("Your name"), "Ann & Co").await;
    page.choose("select", "b").await;
    // The disabled button comes first and cannot be clicked.
    let done = page.follow("button:not(:disabled)").await;
    assert_eq!(done.status, 200);
    assert_eq!(
        page.url().await,
        format!("{}?name=Ann+%26+Co&kind=b", site.url_of("done"))
    );

    page.open(&site.url_of("form")).await;
    page.fill("input", "").await;
    page.press("x").await;
    page.press_and_load("Enter").await;
    assert!(page.url().await.contains("?name=x&kind=a"));
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// Opens a page and returns its complaints.
async fn complaints_of(page: &Page, url: &str, about: &str) -> String {
    page.open(url).await;
    // A complaint may arrive after the page has loaded.
    let deadline = Instant::now() + PATIENCE;
    let mut complaints = String::new();
    while !complaints.contains(about) {
        assert!(Instant::now() < deadline, "no {about:?} in {complaints:?}");
        page.ask("new Promise(done => setTimeout(done, 5))").await;
        complaints.push_str(&page.complaints().join("\n"));
    }
    complaints
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_of_a_page_is_a_complaint() {
    let site = site(&[
        ("/good", HTML, "<!doctype html><html lang=en><title>Good</title><h1>Good</h1><img alt='' src=data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=>"),
        ("/error", HTML, "<!doctype html><script>console.error('red', 7)</script>"),
        ("/warning", HTML, "<!doctype html><script>console.warn('yellow')</script>"),
        ("/thrown", HTML, "<!doctype html><script>throw new Error('uncaught')</script>"),
        ("/rejected", HTML, "<!doctype html><script>Promise.reject(new Error('unheard'))</script>"),
        ("/policy", HTML, "<!doctype html><meta http-equiv=content-security-policy content=\"script-src 'none'\"><script>1</script>"),
        ("/missing", HTML, "<!doctype html><script src=/nowhere.js></script>"),
        ("/away", HTML, "<!doctype html><img alt='' src=http://example.com/pixel>"),
        ("/neighbour", HTML, "<!doctype html><img alt='' src=http://localhost:9/pixel>"),
        ("/dialog", HTML, "<!doctype html><script>alert('boo')</script>"),
    ])
    .await;
    let browser = Browser::start();
    let page = browser.page().await;
    page.open(&site.url_of("good")).await;
    assert_eq!(page.complaints(), Vec::<String>::new());
    for (path, about) in [
        ("error", "console error: \"red\" 7"),
        ("warning", "console warning: \"yellow\""),
        ("thrown", "uncaught"),
        ("rejected", "unheard"),
        ("policy", "Content Security Policy"),
        ("missing", "404"),
        (
            "away",
            "request to another origin: http://example.com/pixel",
        ),
        ("away", "request failed: http://example.com/pixel"),
        (
            "neighbour",
            "request to another origin: http://localhost:9/pixel",
        ),
        ("dialog", "dialog: boo"),
    ] {
        complaints_of(&page, &site.url_of(path), about).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_shown_in_every_look() {
    let site = site(&[
        (
            "/page",
            HTML,
            "<!doctype html><html lang=en><meta name=viewport content='width=device-width'><title>Page</title>
             <link rel=stylesheet href=/style.css><main><h1>Page</h1><p id=script>none</p>
             <script>document.getElementById('script').textContent = 'ran'</script></main>",
        ),
        (
            "/style.css",
            "text/css",
            "body { background: #fff; color: #000 }
             @media (prefers-color-scheme: dark) { body { background: #000; color: #222 } }",
        ),
    ])
    .await;
    let browser = Browser::start();
    let page = browser.page().await;
    let url = site.url_of("page");
    page.open(&url).await;
    assert_eq!(page.text("#script").await, "ran");
    assert_eq!(page.ask("innerWidth").await, 1_280);
    let rules = |violations: Vec<posthaste_testbed::browser::Violation>| {
        let rules = violations.into_iter().map(|violation| violation.rule);
        rules.collect::<Vec<_>>()
    };
    assert_eq!(rules(page.axe().await), Vec::<String>::new());
    let light = page.screenshot(PageAppearance::WIDE).await;
    assert_eq!(png_size(&light), (1_280, 800));

    let dark = page.screenshot(PageAppearance::DARK).await;
    assert_ne!(light, dark);
    // Grey on black is unreadable, so axe-core must report it.
    assert_eq!(rules(page.axe().await), ["color-contrast"]);

    let narrow = page.screenshot(PageAppearance::NARROW).await;
    assert_eq!(png_size(&narrow), (380, 800));
    assert_eq!(page.ask("innerWidth").await, 380);

    page.emulate(PageAppearance::WITHOUT_SCRIPT).await;
    page.open(&url).await;
    assert_eq!(page.text("#script").await, "none");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_can_be_scripted_and_pages_have_separate_cookies() {
    let site = site(&[
        ("/inner", HTML, "<!doctype html><title>Inner</title><h1>Inside</h1><script>document.cookie = 'who=me; path=/'</script>"),
    ])
    .await;
    // A different host, so that the frame belongs to another site.
    let outer = format!(
        "<!doctype html><title>Outer</title><iframe title=inner src='{}'></iframe>",
        site.url_of("inner")
    );
    let parent = Receiver::start(move |_| {
        let mut answer = Answer::status(200);
        answer.headers.push(("content-type", HTML.to_owned()));
        answer.body = outer.clone().into();
        answer
    })
    .await;
    let browser = Browser::start();
    let page = browser.page().await;
    let parent = format!("http://localhost:{}/outer", parent.address.port());
    page.allow(&site.url());
    page.open(&parent).await;
    let inside = "document.querySelector('h1')?.innerText";
    assert_eq!(page.until_in_frame(inside).await, "Inside");
    assert_eq!(page.complaints(), Vec::<String>::new());

    page.open(&site.url_of("inner")).await;
    assert_eq!(page.cookies().await.len(), 1);
    let same = page.another().await;
    same.open(&site.url_of("inner")).await;
    assert_eq!(same.cookies().await.len(), 1);
    drop(same);
    let other = browser.page().await;
    assert!(other.cookies().await.is_empty());
    assert_eq!(page.text("h1").await, "Inside", "it is still there");
}

/// Returns true if a process runs and is not a zombie.
fn runs(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

/// Returns the processes of a process group.
fn group(leader: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("a list of processes");
    let processes = processes.filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the name, which may contain any character: state, parent, group.
        let (_, rest) = stat.rsplit_once(')')?;
        let group = rest.split_whitespace().nth(2)?;
        (group == leader.to_string()).then_some(pid)
    });
    processes.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_or_file_is_left_behind() {
    let browser = Browser::start();
    let page = browser.page().await;
    page.ask("1").await;
    let processes = group(browser.pid());
    assert!(processes.len() > 2, "{processes:?}");
    let home = browser.home().to_owned();
    assert!(home.exists());
    drop(browser);
    assert_eq!(page.ask("1 + 1").await, 2, "the page contains the value");
    drop(page);
    let deadline = Instant::now() + PATIENCE;
    while processes.iter().any(|process| runs(*process)) {
        assert!(Instant::now() < deadline, "{processes:?} still run");
        std::thread::yield_now();
    }
    assert!(!home.exists(), "{}", home.display());
}
