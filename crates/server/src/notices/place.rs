//! Where an endpoint is, as people may be told.

use url::Url;

/// An address without user, password, query and fragment: notices and letters are read by more than those who may know
/// a token. Nothing if it is no address.
pub(super) fn place(text: &str) -> Option<String> {
    let mut url = Url::parse(text).ok()?;
    // Both only fail where there is nothing to remove.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    Some(url.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_secrets() {
        for (url, shown) in [
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
            assert_eq!(place(url).as_deref(), shown);
        }
    }
}
