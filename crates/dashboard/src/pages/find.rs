//! Finds the page of an id, so that support staff can look up any id that a customer reports.

use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use serde::Deserialize;

use super::{At, PageHandler, Reach, at};
use crate::page::PageResult;
use crate::visit::{PageRequest, escaped};

pub(super) const PAGES: &[At<PageHandler>] = &[
    at(Reach::Everything, "/find", |visit| {
        Box::pin(anywhere(visit))
    }),
    at(Reach::Tenant, "/find", |visit| Box::pin(here(visit))),
];

#[derive(Deserialize)]
struct IdOwner {
    tenant_id: String,
}

async fn anywhere(visit: PageRequest) -> Result<PageResult, Problem> {
    let id = &visit.query("id").to_ascii_lowercase();
    if id.starts_with("rpl_") {
        let detail = "A replay is found on the page of its tenant, under Replays.";
        return Err(Problem::new(Code::NotFound, detail));
    }
    let path = path_of(id)?;
    let whose: IdOwner = visit.read(&format!("/v1/find?id={}", escaped(id))).await?;
    Ok(PageResult::Redirect(visit.at(&whose.tenant_id, &path)))
}

async fn here(visit: PageRequest) -> Result<PageResult, Problem> {
    let id = &visit.query("id").to_ascii_lowercase();
    let path = path_of(id)?;
    Ok(PageResult::Redirect(visit.here(&path)))
}

/// Returns the path of an id's page.
fn path_of(id: &str) -> Result<String, Problem> {
    let place = match id.split_once('_') {
        Some(("dlv", _)) => "deliveries",
        Some(("evt", _)) => "events",
        Some(("ep", _)) => "endpoints",
        Some(("rpl", _)) => "replays",
        Some(_) | None => {
            let detail = "That is no id: one begins with dlv_, evt_, ep_ or rpl_.";
            return Err(Problem::new(Code::NotFound, detail));
        }
    };
    Ok(format!("/{place}/{}", escaped(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_where_its_page_is() {
        let path = path_of("dlv_01jd2kq8z3w5x7y9a1b2c3d4e5").expect("an id");
        assert_eq!(path, "/deliveries/dlv_01jd2kq8z3w5x7y9a1b2c3d4e5");
        assert_eq!(
            path_of("ep_../../x").expect("an id"),
            "/endpoints/ep_..%2F..%2Fx"
        );
        assert!(path_of("01jd2k").is_err());
        assert!(path_of("key_1").is_err());
    }
}
