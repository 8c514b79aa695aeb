//! The navigation around every page, and which entries each user sees.

use crate::fixture::TestServer;

#[tokio::test]
async fn a_tenant_key_sees_only_its_own_tenant() {
    let server = TestServer::start().await;
    let key = server.tenant("other").await;
    let all = server.page("/dashboard").await;
    assert_eq!(all.status, 200);
    assert_eq!(all.link("Tenants"), "/dashboard/tenants");
    let sent = server.page_as(&key, "/dashboard").await;
    assert_eq!(sent.redirect(), "/dashboard/t/other");
    let own = server.page_as(&key, "/dashboard/t/other").await;
    assert_eq!(own.status, 200);
    let strange = server.page_as(&key, "/dashboard/t/acme").await;
    assert_eq!(strange.status, 404);
    strange.says("No such tenant");
}

#[tokio::test]
async fn an_unknown_path_is_a_404_page() {
    let server = TestServer::with_manual_clock().await;
    server.pass_ms(1_000);
    let lost = server.page("/dashboard/nowhere").await;
    assert_eq!(lost.status, 404);
    lost.says("Page not found");
    let lost = server.submit("/dashboard/nowhere", &[]).await;
    assert_eq!(lost.status, 404);
}
