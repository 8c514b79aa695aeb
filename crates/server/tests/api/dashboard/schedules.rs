//! The pages of schedules: list, one schedule with its runs, the form and its preview.

use serde_json::json;

use super::deliveries::HERE;
use crate::fixture::TestServer;

/// The fields of a form that creates a schedule.
const FILLED: [(&str, &str); 10] = [
    ("id", "nightly"),
    ("name", "Nightly report"),
    ("kind", "cron"),
    ("cron", "0 9 * * MON-FRI"),
    ("timezone", "Europe/Berlin"),
    ("target", "event"),
    ("event_type", "report.due"),
    ("payload", "{\"n\": 1}"),
    ("overlap", "skip"),
    ("missed", "skip"),
];

fn with<'a>(name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    let kept = FILLED.into_iter().filter(|(field, _)| *field != name);
    kept.chain([(name, value)]).collect()
}

#[tokio::test]
async fn a_schedule_is_created_changed_run_and_deleted_by_forms() {
    let server = TestServer::without_engine().await;
    let list = format!("{HERE}/schedules");
    server.page(&list).await.says("No schedules yet.");
    let sent = server
        .submit(&format!("{HERE}/new-schedule"), &FILLED)
        .await;
    let shown = format!("{list}/nightly");
    assert_eq!(sent.redirect(), format!("{shown}?done=schedule-created"));
    let api = "/v1/tenants/acme/schedules/nightly";
    let made = server.get(api).await.ok(200);
    assert_eq!(
        (&made["overlap"], &made["missed"]),
        (&json!("skip"), &json!("skip"))
    );
    assert_eq!(
        made["event"],
        json!({"type": "report.due", "payload": {"n": 1}})
    );
    let page = server.page(&shown).await;
    page.says("At 09:00, Monday through Friday (Europe/Berlin)")
        .says("active");
    page.says("2026-11-16 08:00:00")
        .says("2026-11-27 08:00:00")
        .says("No runs yet.");
    assert_eq!(page.html.matches("<circle class=\"next\"").count(), 10);

    let form = server.page(&format!("{shown}/edit")).await;
    assert_eq!(form.field("cron"), "0 9 * * MON-FRI");
    assert_eq!(form.field("name"), "Nightly report");
    let change = with("cron", "@hourly");
    let sent = server.submit(&format!("{shown}/edit"), &change).await;
    assert_eq!(sent.redirect(), format!("{shown}?done=schedule-saved"));
    server.page(&shown).await.says("Every hour (Europe/Berlin)");
    let acts = [
        ("pause", "schedule-paused", "paused"),
        ("resume", "schedule-resumed", "active"),
        ("run", "schedule-run", "created"),
    ];
    for (verb, message, words) in acts {
        let sent = server.submit(&format!("{shown}/{verb}"), &[]).await;
        assert_eq!(sent.redirect(), format!("{shown}?done={message}"));
        server.page(&shown).await.says(words);
    }
    let page = server.page(&shown).await;
    assert_eq!(page.html.matches("<circle class=\"good\"").count(), 1);
    let listed = server.page(&list).await;
    listed
        .says("Nightly report")
        .says("created")
        .says("Every hour (Europe/Berlin)");
    server
        .submit(&format!("{shown}/delete"), &[])
        .await
        .says("Delete the schedule?");
    let sent = server
        .submit(&format!("{shown}/delete"), &[("sure", "yes")])
        .await;
    assert_eq!(sent.redirect(), format!("{list}?done=schedule-deleted"));
    assert_eq!(server.page(&shown).await.status, 404);
}

#[tokio::test]
async fn mistakes_are_shown_beside_their_fields_and_nothing_is_lost() {
    let server = TestServer::without_engine().await;
    let action = format!("{HERE}/new-schedule");
    for (name, value, words) in [
        ("cron", "0 25 * * *", "hour, position 3"),
        ("timezone", "Berlin", "did you mean Europe/Berlin?"),
        ("event_type", "", "must be"),
        ("payload", "{", "is not valid JSON"),
        ("id", "a b", "must be 1 to 64"),
        ("max_runs", "many", "whole number"),
        ("ends_at", "2020-01-01 00:00", "is in the past"),
    ] {
        let page = server.submit(&action, &with(name, value)).await;
        assert_eq!(page.status, 422, "{name}");
        assert!(
            page.wrong(name).contains(words),
            "{name}: {}",
            page.wrong(name)
        );
        assert_eq!(page.field(name).trim_start(), value);
    }
    server.submit(&action, &FILLED).await.redirect();
    let page = server.submit(&action, &FILLED).await;
    assert!(page.wrong("id").contains("already in use"));
}

#[tokio::test]
async fn the_preview_shows_words_and_times_and_keeps_the_form() {
    let server = TestServer::without_engine().await;
    let action = format!("{HERE}/schedule-preview");
    let page = server.submit(&action, &with("cron", "30 2 * * *")).await;
    assert_eq!(page.status, 200);
    page.says("At 02:30 (Europe/Berlin)")
        .says("2026-11-16 01:30:00");
    assert_eq!(page.field("name"), "Nightly report");
    assert!(
        page.forms()
            .iter()
            .any(|form| form.ends_with("/new-schedule"))
    );
    let page = server.submit(&action, &with("cron", "0 0 30 2 *")).await;
    assert_eq!(page.status, 422);
    page.says("never runs");
    let every = [("kind", "every"), ("every", "90m"), ("changed", "nightly")];
    let page = server.submit(&action, &every).await;
    page.says("Every 1 hour and 30 minutes");
    assert!(
        page.forms()
            .iter()
            .any(|form| form.ends_with("/schedules/nightly/edit"))
    );
}
