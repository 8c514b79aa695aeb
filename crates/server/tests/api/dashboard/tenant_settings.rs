//! The page of a tenant's settings.

use serde_json::json;

use super::deliveries::HERE;
use crate::fixture::TestServer;

#[tokio::test]
async fn an_operator_changes_name_limits_and_defaults() {
    let server = TestServer::start().await;
    let settings = format!("{HERE}/settings");
    let form = server.page(&settings).await;
    form.says("Default: no limit (server).");
    assert_eq!(form.field("endpoints"), "");
    let fields = [
        ("name", "Acme <b>"),
        ("endpoints", "5"),
        ("retention", "7d"),
        ("policy", "swift"),
        ("timeout", "12s"),
        ("per_second", "2.5"),
        ("refusals", "20"),
        ("on_gone", "false"),
    ];
    let saved = server.submit(&settings, &fields).await;
    assert_eq!(saved.redirect(), format!("{settings}?done=settings-saved"));
    let tenant = server.get("/v1/tenants/acme").await.ok(200);
    assert_eq!(tenant["name"], "Acme <b>");
    assert_eq!(tenant["limits"]["endpoints"], 5);
    assert_eq!(tenant["limits"]["retention"], "7d");
    assert_eq!(tenant["default_retry_policy"], json!({"preset": "swift"}));
    assert_eq!(tenant["endpoint_defaults"]["timeout"], "12s");
    assert_eq!(tenant["protection"]["breaker"]["refusals"], 20);
    let form = server.page(&settings).await;
    for (name, value) in fields {
        assert_eq!(form.field(name), value, "{name}");
    }
    let new = server.page(&format!("{HERE}/endpoints/new")).await;
    assert_eq!(new.field("timeout"), "12s");
    new.says("Default: swift (tenant)");
    // An empty field returns to the default.
    let saved = server.submit(&settings, &[("name", "Acme")]).await;
    saved.redirect();
    let tenant = server.get("/v1/tenants/acme").await.ok(200);
    assert_eq!(tenant["limits"]["endpoints"], json!(null));
    assert_eq!(tenant["default_retry_policy"], json!(null));
    let wrong = [
        ("endpoints", "many"),
        ("retention", "soon"),
        ("timeout", "2h"),
        ("policy", "own"),
        ("retry_policy", "{"),
    ];
    let refused = server.submit(&settings, &wrong).await;
    assert_eq!(refused.status, 422);
    assert!(refused.wrong("retry_policy").contains("not valid JSON"));
    let refused = server.submit(&settings, &wrong[..3]).await;
    assert_eq!(refused.status, 422);
    for (name, typed) in &wrong[..3] {
        assert_eq!(refused.field(name), *typed);
        assert!(!refused.wrong(name).is_empty(), "{name}");
    }
}

#[tokio::test]
async fn a_tenant_key_cannot_change_plan_and_limits_or_delete() {
    let server = TestServer::start().await;
    let key = server.tenant("other").await;
    let settings = "/dashboard/t/other/settings";
    let form = server.page_as(&key, settings).await;
    form.says("The operator of the server sets plan and limits.")
        .assert_no_text("Delete tenant");
    let fields = [
        ("name", "Other"),
        ("endpoints", "1000000"),
        ("plan", "gold"),
    ];
    let saved = server.submit_as(&key, settings, &fields).await;
    saved.redirect();
    let tenant = server.get("/v1/tenants/other").await.ok(200);
    assert_eq!(tenant["name"], "Other");
    assert_eq!(tenant["limits"]["endpoints"], json!(null));
    let sure = [("sure", "yes"), ("id", "other")];
    let delete = format!("{settings}/delete");
    assert_eq!(server.submit_as(&key, &delete, &sure).await.status, 403);
    let strange = server
        .submit_as(&key, &format!("{HERE}/settings"), &fields)
        .await;
    assert_eq!(strange.status, 404);
}

#[tokio::test]
async fn a_tenant_is_deleted_after_its_id_is_typed() {
    let server = TestServer::start().await;
    let delete = format!("{HERE}/settings/delete");
    server
        .submit(&delete, &[])
        .await
        .says("Type acme to confirm");
    let wrong = [("sure", "yes"), ("id", "acne")];
    let refused = server.submit(&delete, &wrong).await;
    assert_eq!(refused.status, 422);
    assert!(!refused.wrong("id").is_empty());
    server.get("/v1/tenants/acme").await.ok(200);
    let sure = [("sure", "yes"), ("id", "acme")];
    let done = server.submit(&delete, &sure).await;
    assert_eq!(done.redirect(), "/dashboard/tenants?done=tenant-deleted");
    assert_eq!(server.get("/v1/tenants/acme").await.status, 404);
}
