//! URL of an endpoint without secrets, for notifications.
//!
//! Endpoint URLs may contain a password or a token. Operational events and emails go to people who must not know them,
//! so every URL passes [`without_secrets`] first.

use url::Url;

/// Returns a URL without user, password, query and fragment, because notifications and emails are read by people who
/// must not know a token. `None` if the text is not a URL.
pub(super) fn without_secrets(text: &str) -> Option<String> {
    let mut url = Url::parse(text).ok()?;
    // Both fail only if there is nothing to remove.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    Some(url.into())
}

/// Returns the host of a URL, in its ASCII form.
pub(super) fn host_of(text: &str) -> String {
    let url = Url::parse(text).ok();
    let host = url.as_ref().and_then(Url::host_str);
    host.unwrap_or("an unknown host").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed() {
        for (url, public) in [
            (
                "https://user:hunter2@a.example/x",
                Some("https://a.example/x"),
            ),
            ("https://hunter2@a.example/x", Some("https://a.example/x")),
            (
                "https://a.example/x?token=hunter2#hunter2",
                Some("https://a.example/x"),
            ),
            ("https://a.example:8443", Some("https://a.example:8443/")),
            ("not a url hunter2", None),
        ] {
            assert_eq!(without_secrets(url).as_deref(), public);
        }
    }
}
