//! HTTP requests without a browser, as a program or an attacker sends them.

use std::collections::{BTreeMap, VecDeque};

use posthaste_testbed::{Api, ApiResponse};

/// More pages than any fixture of these tests has.
const MAX_PAGES: usize = 500;

/// Submits a form with additional headers.
pub(crate) async fn submit(
    client: &mut Api,
    path: &str,
    headers: &[(&str, &str)],
    form: &str,
) -> ApiResponse {
    let mut headers = headers.to_vec();
    headers.push(("content-type", "application/x-www-form-urlencoded"));
    client.send("POST", path, &headers, form.to_owned()).await
}

/// Returns the first part of a cookie that a response sets: its name and value.
pub(crate) fn cookie(reply: &ApiResponse) -> String {
    let set = reply.header("set-cookie");
    set.split(';').next().unwrap_or_default().to_owned()
}

/// Returns the value of a hidden field.
pub(crate) fn hidden_field(page: &ApiResponse, name: &str) -> String {
    let field = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.text.split_once(&field).expect("a hidden field");
    let (value, _) = rest.split_once('"').expect("the end of the value");
    value.to_owned()
}

/// Returns the links of a page to this server.
pub(crate) fn links(page: &ApiResponse) -> Vec<String> {
    let parts = page.text.split("href=\"").skip(1);
    let links = parts.filter_map(|part| part.split('"').next());
    let links = links.filter(|link| link.starts_with('/') && !link.starts_with("//"));
    let links = links.map(|link| link.replace("&amp;", "&"));
    links
        .map(|link| link.split('#').next().unwrap_or_default().to_owned())
        .collect()
}

/// Follows all links from this page that start with `below`. Returns each page with its response.
pub(crate) async fn crawl(
    client: &mut Api,
    start: &str,
    below: &str,
) -> BTreeMap<String, ApiResponse> {
    let mut found = BTreeMap::new();
    let mut waiting = VecDeque::from([start.to_owned()]);
    while let Some(link) = waiting.pop_front() {
        if found.contains_key(&link) {
            continue;
        }
        let page = client.get(&link).await;
        let mut links = links(&page);
        if (300..400).contains(&page.status) {
            links.push(page.header("location").to_owned());
        }
        waiting.extend(links.into_iter().filter(|link| link.starts_with(below)));
        found.insert(link, page);
        assert!(
            found.len() < MAX_PAGES,
            "more than {MAX_PAGES} pages are linked: {:?}",
            found.keys()
        );
    }
    found
}
