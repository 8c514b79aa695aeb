//! Finds the page of an id, so that support staff can look up any id that a customer reports.

use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_api::resources::TenantOfId;

use crate::page::PageResult;
use crate::page_request::PageRequest;
use crate::routes::{PageHandler, Route, page_route};
use crate::urls::url_encoded;

pub(super) const PAGES: &[Route<PageHandler>] = &[
    page_route!(Server, "/find", find_in_server),
    page_route!(Tenant, "/find", find_in_tenant),
];

async fn find_in_server(request: PageRequest) -> Result<PageResult, Problem> {
    let id = &request.query("id").to_ascii_lowercase();
    if id.starts_with("rpl_") {
        let detail = "Open the replay's tenant first, then select Replays.";
        return Err(Problem::new(Code::NotFound, detail));
    }
    let path = path_of(id)?;
    let found: TenantOfId = request
        .get(&format!("/v1/find?id={}", url_encoded(id)))
        .await?;
    Ok(PageResult::Redirect(
        request.link_for_tenant(&found.tenant_id, &path),
    ))
}

async fn find_in_tenant(request: PageRequest) -> Result<PageResult, Problem> {
    let id = &request.query("id").to_ascii_lowercase();
    let path = path_of(id)?;
    Ok(PageResult::Redirect(request.tenant_link(&path)))
}

/// Returns the path of an id's page.
fn path_of(id: &str) -> Result<String, Problem> {
    let section = match id.split_once('_') {
        Some(("dlv", _)) => "deliveries",
        Some(("evt", _)) => "events",
        Some(("ep", _)) => "endpoints",
        Some(("rpl", _)) => "replays",
        Some(_) | None => {
            let detail = "Not an id: ids start with dlv_, evt_, ep_ or rpl_.";
            return Err(Problem::new(Code::NotFound, detail));
        }
    };
    Ok(format!("/{section}/{}", url_encoded(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_follows_from_the_prefix_of_the_id() {
        let path = path_of("dlv_01jd2kq8z3w5x7y9a1b2c3d4e5").expect("a valid id");
        assert_eq!(path, "/deliveries/dlv_01jd2kq8z3w5x7y9a1b2c3d4e5");
        assert_eq!(
            path_of("ep_../../x").expect("a valid id"),
            "/endpoints/ep_..%2F..%2Fx"
        );
        assert!(path_of("01jd2k").is_err());
        assert!(path_of("key_1").is_err());
    }
}
