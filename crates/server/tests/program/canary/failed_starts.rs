//! Starts that fail because of an invalid secret.

use std::fs;

use super::canaries::Canaries;
use super::fixture::posthaste;
use super::search::{NOTHING, Search};

/// Invalid settings, for the environment and the file. `{}` stands for the secret.
const WRONG: &[(&str, &str)] = &[
    ("admin_key", "{} with a blank"),
    ("admin_key", "{}ü"),
    ("master_key", "{}"),
    ("master_key", "1234 {} 5678"),
    ("master_key", "{}{}{}{}"),
    ("master_key_file", "/no/such/folder\0{}"),
    ("egress_proxy", "{}"),
    ("egress_proxy", "ftp://me:{}@proxy.example:1"),
    ("egress_proxy", "http://me:{}@proxy.example:1/path"),
    ("egress_proxy", "http://me:{}%zz@proxy.example:1"),
    ("egress_proxy", "http://me:{}@"),
    ("log.level", "{}"),
    ("log.format", "{}"),
    ("store", "{}://{}"),
    ("listen", "{}"),
    ("retry_policy", "{}"),
    ("retry_policy", "{\"preset\": {}"),
    ("limits.connections", "{}"),
    ("allow_network", "{}"),
    ("allow_http", "{}"),
    ("grace", "{}"),
];

#[test]
fn a_wrong_setting_is_reported_without_its_value() {
    let canaries = Canaries::new();
    let secret = canaries.plant("misplaced secret");
    let mut search = Search::default();
    let folder = tempfile::tempdir().expect("a directory");
    for (key, form) in WRONG {
        let value = form.replace("{}", secret);
        let mut variants = vec![];
        if !value.contains('\0') {
            let mut variable = posthaste();
            let name = key.replace('.', "_").to_uppercase();
            variable
                .arg("serve")
                .env(format!("POSTHASTE_{name}"), &value);
            variants.push(("variable", variable));
            let mut flag = posthaste();
            flag.args(["serve", "--set", &format!("{key}={value}")]);
            variants.push(("flag", flag));
        }
        let file = folder.path().join("wrong.toml");
        // A JSON string is also a valid TOML string.
        let text = serde_json::Value::String(value.clone()).to_string();
        let text = match key.split_once('.') {
            Some((section, key)) => format!("[{section}]\n{key} = {text}\n"),
            None => format!("{key} = {text}\n"),
        };
        fs::write(&file, text).expect("a file");
        let mut in_file = posthaste();
        in_file.args(["serve", "--config"]).arg(&file);
        variants.push(("file", in_file));
        for (way, mut command) in variants {
            let output = command
                .current_dir(folder.path())
                .output()
                .expect("the program starts");
            assert_eq!(output.status.code(), Some(2), "{key} by {way} was taken");
            let said = [output.stdout, output.stderr].concat();
            search.look(&canaries, &format!("{key} by {way}"), &said, NOTHING);
        }
    }
    // Invalid TOML, with the error at the secret.
    for text in [
        format!("admin_key = {secret}"),
        format!("admin_key = \"{secret}"),
        format!("admin_key = \"{secret}\" {secret}"),
        format!("admin_key = \"a\"\nadmin_key = \"{secret}\""),
        format!("[{secret}\nadmin_key = 1"),
    ] {
        let file = folder.path().join("broken.toml");
        fs::write(&file, &text).expect("a file");
        let mut command = posthaste();
        command.args(["serve", "--config"]).arg(&file);
        let output = command
            .current_dir(folder.path())
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(2), "{text}");
        let said = [output.stdout, output.stderr].concat();
        search.look(&canaries, &text, &said, NOTHING);
    }
    // An invalid key file.
    let file = folder.path().join("keys");
    fs::write(&file, format!("{secret} {secret}\n")).expect("a file");
    let mut command = posthaste();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--master-key-file"])
        .arg(&file);
    let output = command
        .current_dir(folder.path())
        .output()
        .expect("the program starts");
    assert_ne!(output.status.code(), Some(0));
    let said = [output.stdout, output.stderr].concat();
    search.look(&canaries, "a key file", &said, NOTHING);
    search.assert_clean();
}
