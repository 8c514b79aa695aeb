//! Reads the settings of the dashboard and the portal.
//!
//! Every value has bounds, which are constants here. The logo is read at the start; it must be small and have the type
//! of an image.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use posthaste_core::time::Span;
use posthaste_core::validation::Fields;
use posthaste_dashboard::{Brand, DashboardSettings, Logo};
use serde_json::Value;

use super::fields::{parsed, read_bool, read_items, read_name, read_path, set};

/// Minimum lifetime of a dashboard session.
const SHORTEST_SESSION: Span = Span::from_mins(1);
/// Maximum lifetime of a dashboard session.
const LONGEST_SESSION: Span = Span::from_days(30);
/// Maximum length of the portal name.
const MAX_NAME_CHARS: usize = 60;
/// Maximum size of the logo.
const MAX_LOGO_BYTES: u64 = 256 << 10;
/// Maximum number of sites that may embed the portal in a frame.
const MAX_ANCESTORS: usize = 100;
/// Maximum length of a host name.
const MAX_HOST_CHARS: usize = 255;

/// Reads the URL under which browsers reach the server.
pub(super) fn read_public_url(fields: &mut Fields<'_, '_>) -> Option<String> {
    parsed(fields, "public_url", |text| {
        origin(text, Wildcard::Forbidden).ok_or(
            "must be a scheme and a host, such as \"https://hooks.example.com\", without a path",
        )
    })
}

pub(super) fn read_dashboard(settings: &mut DashboardSettings, mut fields: Fields<'_, '_>) {
    set(&mut settings.enabled, read_bool(&mut fields, "enabled"));
    let session = fields.span("session", SHORTEST_SESSION, LONGEST_SESSION);
    set(&mut settings.session, session);
    fields.finish();
}

pub(super) fn read_portal(settings: &mut DashboardSettings, mut fields: Fields<'_, '_>) {
    let brand: &mut Brand = &mut settings.portal;
    let name = parsed(&mut fields, "name", |text| read_name(text, MAX_NAME_CHARS));
    set(&mut brand.name, name);
    let logo = parsed(&mut fields, "logo", read_logo);
    brand.logo = logo.or(brand.logo.take());
    set(&mut brand.accent, parsed(&mut fields, "accent", str::parse));
    let dark = parsed(&mut fields, "accent_dark", str::parse);
    set(&mut brand.accent_dark, dark);
    let ancestors = read_items(&mut fields, "frame_ancestors", MAX_ANCESTORS, ancestor);
    set(&mut settings.frame_ancestors, ancestors);
    fields.finish();
}

/// Reads the logo file immediately, so that a missing file is reported at the start.
fn read_logo(text: &str) -> Result<Logo, String> {
    let path = read_path(text)?;
    let name = path.display();
    let media_type = media_type(&path)
        .ok_or_else(|| format!("{name} must be a .svg, .png, .jpg or .webp file"))?;
    let unreadable = |error| format!("cannot read {name}: {error}");
    let length_bytes = fs::metadata(&path).map_err(unreadable)?.len();
    if length_bytes > MAX_LOGO_BYTES {
        return Err(format!("{name} may have at most {MAX_LOGO_BYTES} bytes"));
    }
    let bytes = Bytes::from(fs::read(&path).map_err(unreadable)?);
    Ok(Logo { media_type, bytes })
}

fn media_type(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    match extension.as_str() {
        "svg" => Some("image/svg+xml"),
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "webp" => Some("image/webp"),
        _ => None,
    }
}

fn ancestor(item: &Value) -> Result<String, &'static str> {
    let text = item.as_str().unwrap_or_default();
    origin(text, Wildcard::Allowed)
        .ok_or("must be a site such as \"https://app.example.com\" or \"https://*.example.com\"")
}

/// Permission for a host to begin with `*.`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wildcard {
    Allowed,
    Forbidden,
}

/// Normalises an origin: scheme, host and port, as browsers write them. The origin is used in headers, so
/// anything else in the text is refused.
fn origin(text: &str, wildcard: Wildcard) -> Option<String> {
    let text = text.strip_suffix('/').unwrap_or(text).to_ascii_lowercase();
    let (scheme, authority) = text.split_once("://")?;
    let default_port = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return None,
    };
    let authority = authority.strip_suffix(default_port).unwrap_or(authority);
    let rest = match authority.strip_prefix("*.") {
        Some(rest) if wildcard == Wildcard::Allowed => rest,
        Some(_) => return None,
        None => authority,
    };
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        Some(_) | None => (rest, None),
    };
    let in_brackets = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_host = match in_brackets {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
            (1..=MAX_HOST_CHARS).contains(&host.len()) && host.bytes().all(allowed)
        }
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    (is_host && is_port).then(|| format!("{scheme}://{authority}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_and_a_host_and_nothing_else() {
        let read = |text| origin(text, Wildcard::Forbidden);
        for (text, expected) in [
            ("https://hooks.example.com", "https://hooks.example.com"),
            ("https://Hooks.Example.com/", "https://hooks.example.com"),
            ("https://hooks.example.com:443", "https://hooks.example.com"),
            ("http://127.0.0.1:8420", "http://127.0.0.1:8420"),
            ("http://[::1]:8420", "http://[::1]:8420"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
        for wrong in [
            "",
            "hooks.example.com",
            "ftp://hooks.example.com",
            "https://",
            "https://hooks.example.com/path",
            "https://user@hooks.example.com",
            "https://hooks.example.com; script-src *",
            "https://a b",
            "https://*.example.com",
            "https://hooks.example.com:0",
            "https://hooks.example.com:x",
            "https://[::1",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let wild = origin("https://*.example.com", Wildcard::Allowed);
        assert_eq!(wild.as_deref(), Some("https://*.example.com"));
        assert_eq!(origin("https://*", Wildcard::Allowed), None);
    }
}
