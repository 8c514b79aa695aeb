//! Email settings in the configuration.

use posthaste_core::time::Span;

use super::ConfigSources;

#[test]
fn every_mail_error_is_reported_without_the_password() {
    let sources = ConfigSources::new()
        .file(
            "[mail]\nserver = 'http://u:hunter2@mx.example'\ntls = 'maybe'\nfrom = 'posthaste'\n\
             to = ['ops@example.com',\n'a@b, c@d', 5]\nevery = '2d'\n",
        )
        .variable("POSTHASTE_MAIL_PASSWORD", "hunter2\n")
        .flags(["--set", "mail.server=smtp://u:hunter2@"]);
    let expected = [
        (
            "FILE line 2, mail.server: ",
            "smtp://user@smtp.example.com:587",
        ),
        ("FILE line 3, mail.tls: ", "\"required\""),
        ("FILE line 4, mail.from: ", "posthaste@example.com"),
        ("FILE line 6, mail.to[1]: ", "must be one email address"),
        ("FILE line 6, mail.to[2]: ", "must be one email address"),
        ("FILE line 7, mail.every: ", "1d"),
        ("POSTHASTE_MAIL_PASSWORD: ", "on one line"),
        ("--set mail.server: ", "smtp://user@smtp.example.com:587"),
    ];
    let errors = sources.errors();
    for ((origin, remedy), line) in expected.iter().zip(&errors) {
        assert!(line.starts_with(origin), "{line}\nshould begin {origin}");
        assert!(line.contains(remedy), "{line}\nshould say {remedy}");
    }
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    assert!(!format!("{errors:?}").contains("hunter2"), "{errors:#?}");
}

#[test]
fn contradicting_mail_settings_are_reported_at_the_start() {
    let config =
        ConfigSources::new().file("[mail]\nserver = 'smtps://u@mx.example'\ntls = 'none'\n");
    let config = config.load().expect("settings that are valid one by one");
    let error = config
        .check_mail()
        .expect_err("configuration errors")
        .to_string();
    for key in ["mail.from: ", "mail.password: ", "mail.tls: "] {
        assert!(error.contains(key), "{error}");
    }
    let alone = ConfigSources::new().file("[mail]\nto = ['ops@example.com']\n");
    let error = alone.load().expect("valid").check_mail();
    let error = error.expect_err("a configuration error").to_string();
    assert!(error.contains("mail.server: is required"), "{error}");
    assert_eq!(posthaste::config::Config::default().check_mail(), Ok(()));
}

#[test]
fn mail_settings_reach_the_mailer() {
    let config = ConfigSources::new()
        .file(
            "public_url = 'https://hooks.example.com'\n[mail]\nserver = 'smtp://u:hunter2@mx.example'\n\
             tls = 'none'\nfrom = 'posthaste@example.com'\nto = ['ops@BÜCHER.example']\nevery = '1h'\n",
        )
        .variable("POSTHASTE_MAIL_PASSWORD", "swordfish")
        .load()
        .expect("valid");
    assert_eq!(config.check_mail(), Ok(()));
    assert_eq!(config.mail.to, ["ops@xn--bcher-kva.example"]);
    assert_eq!(config.mail.every, Span::from_hours(1));
    let post = config.mailer().expect("certificates").expect("a server");
    let shown = format!("{config:?} {post:?} {:?}", config.warnings());
    assert!(shown.contains("is sent unencrypted"), "{shown}");
    assert!(
        !shown.contains("hunter2") && !shown.contains("swordfish"),
        "{shown}"
    );
    let default = posthaste::config::Config::default();
    assert!(default.mailer().expect("certificates").is_none());
}
