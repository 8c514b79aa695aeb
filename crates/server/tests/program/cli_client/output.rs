//! Output of the client as tables, as JSON, and without colours outside a terminal.

use posthaste_testbed::Answer;

use super::fixture::*;

const PAGE: &str = r#"{"data":[
 {"id":"dlv_2","status":"retrying","created_at":"2026-11-15T11:58:00.000Z","attempt_count":3,"event_type":"invoice.paid","last_error":{"kind":"http"},
  "next_attempt_at":"2026-11-15T12:00:00.123Z","held_back_by":"rate_limit","endpoint_id":"ep_1"},
 {"id":"dlv_1","status":"succeeded","created_at":"2026-11-15T11:57:30.500Z","attempt_count":12,"event_type":"a","last_error":null,
  "next_attempt_at":null,"endpoint_id":"ep_2"}],"next_cursor":"abc"}"#;

#[test]
fn a_list_is_a_table_with_the_next_cursor() {
    let server = ScriptedServer::answering(&[(200, PAGE)]);
    let output = server.client("deliveries list").output().unwrap();
    let remark = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(
        stdout(output),
        "ID     STATUS     ACCEPTED              ATTEMPTS  TYPE          ERROR  REASON  NEXT ATTEMPT          HELD BACK BY  ENDPOINT\n\
         dlv_2  retrying   2026-11-15 11:58:00Z         3  invoice.paid  http   -       2026-11-15 12:00:00Z  rate_limit    ep_1\n\
         dlv_1  succeeded  2026-11-15 11:57:30Z        12  a             -      -       -                     -             ep_2\n"
    );
    assert_eq!(
        remark,
        "more results: continue with --cursor abc, or use --all\n"
    );
}

#[test]
fn json_output_is_the_response_unchanged() {
    let said = r#"{"id":"ep_1","n":12345678901234567890123,"x":1.0e5}"#;
    let server = ScriptedServer::answering(&[(200, said)]);
    assert_eq!(
        server.output_of("endpoints show ep_1 --json"),
        format!("{said}\n")
    );
    let server = ScriptedServer::answering(&[(200, PAGE)]);
    let output = server.client("deliveries list --json").output().unwrap();
    assert!(output.stderr.is_empty());
    assert_eq!(stdout(output), format!("{PAGE}\n"));
}

#[test]
fn a_deletion_prints_one_line() {
    let server = ScriptedServer::scripted(vec![Answer::status(204)]);
    let delete = "endpoints delete ep_1 --yes";
    assert_eq!(server.output_of(delete), "deleted ep_1\n");
    assert_eq!(server.output_of(&format!("{delete} --json")), "");
    assert_eq!(server.output_of("endpoints pause ep_1"), "done ep_1\n");
}

#[test]
fn a_new_key_is_shown_with_a_warning() {
    let server =
        ScriptedServer::answering(&[(201, r#"{"id":"key_1","name":"ci","key":"ph_secret"}"#)]);
    let output = server.client("keys create ci").output().unwrap();
    let remark = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(stdout(output), "id    key_1\nname  ci\nkey   ph_secret\n");
    assert_eq!(remark, "save the key: it is not shown again\n");
}

#[test]
fn colours_are_used_on_terminals_or_on_request() {
    let page = r#"{"data":[{"id":"dlv_1","status":"failed"}],"next_cursor":null}"#;
    let shown = |variables: &[(&str, &str)]| {
        let server = ScriptedServer::answering(&[(200, page)]);
        let mut command = server.client("deliveries list");
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        stdout(command.envs(variables.iter().copied()).output().unwrap())
    };
    assert!(!shown(&[]).contains('\u{1b}'), "a pipe");
    assert!(shown(&[("CLICOLOR_FORCE", "1")]).contains("\u{1b}[31mfailed"));
    assert!(!shown(&[("NO_COLOR", "1")]).contains('\u{1b}'));
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = stdout(program(&format!("completions {shell}")).output().unwrap());
        for word in [
            "rotate-secret",
            "deliveries",
            "missed-since",
            "listen",
            "simulate",
        ] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn the_help_of_every_command_has_an_example() {
    let resources = [
        ("tenants", "list show create update delete"),
        (
            "endpoints",
            "list show create update delete enable disable pause resume test health secret rotate-secret",
        ),
        ("events", "list show send batch"),
        ("deliveries", "list dead show retry cancel"),
        ("replays", "create list show cancel"),
        ("keys", "create list revoke"),
    ];
    let mut lines = vec!["send".to_owned(), "listen".to_owned(), "stats".to_owned()];
    for (resource, actions) in resources {
        lines.extend(
            actions
                .split(' ')
                .map(|action| format!("{resource} {action}")),
        );
    }
    for line in lines {
        let help = stdout(program(&format!("{line} --help")).output().unwrap());
        assert!(help.contains("Examples:\n  "), "{line}");
        assert!(help.contains("--json"), "{line}");
        // The first line describes the command, not an argument.
        assert!(
            !help.starts_with("Whose") && !help.starts_with('`'),
            "{line}"
        );
    }
}

#[test]
fn help_does_not_show_the_key() {
    let mut command = program("send --help");
    let help = stdout(command.env("POSTHASTE_KEY", "ph_hidden").output().unwrap());
    assert!(help.contains("POSTHASTE_KEY") && !help.contains("ph_hidden"));
}
