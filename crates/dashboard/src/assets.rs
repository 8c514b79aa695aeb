//! The stylesheet, the script, and the operator's logo and colours: [`Assets`].
//!
//! The link to an asset contains a hash of its content. Browsers therefore cache it for good, and load it again when
//! it changes.

use axum::body::Body;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use posthaste_charts as charts;

use super::page::content_hash;
use super::responses::{self, HtmlResponse};
use super::settings::Brand;

const CSS: &str = "text/css; charset=utf-8";
const CACHE_FOREVER: &str = "public, max-age=31536000, immutable";

const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 32 32\">\
<rect width=\"32\" height=\"32\" rx=\"7\" fill=\"#0a58ca\"/>\
<path d=\"M11 8h15v16H11\" fill=\"none\" stroke=\"#fff\" stroke-width=\"2\"/>\
<path d=\"M11 9l8 8 7-8M4 13h8M6 18h6\" fill=\"none\" stroke=\"#fff\" stroke-width=\"2\"/></svg>";

/// All assets that pages load.
pub(super) struct Assets {
    all: Vec<Asset>,
}

struct Asset {
    name: &'static str,
    media_type: &'static str,
    bytes: Bytes,
    hash: String,
}

impl Assets {
    /// Builds the assets. The portal's stylesheet gets the colours of `portal`.
    pub(super) fn new(portal: &Brand) -> Assets {
        let style = format!("{}\n{}", include_str!("style.css"), charts::styles());
        let mut all = vec![
            asset("style.css", CSS, style),
            asset("dashboard.css", CSS, colours(&Brand::default())),
            asset("portal.css", CSS, colours(portal)),
            asset(
                "script.js",
                "text/javascript; charset=utf-8",
                include_str!("script.js").to_owned(),
            ),
            asset("icon.svg", "image/svg+xml", ICON.to_owned()),
        ];
        if let Some(logo) = &portal.logo {
            all.push(asset("logo", logo.media_type, logo.bytes.clone()));
        }
        Assets { all }
    }

    /// Returns the link to an asset.
    ///
    /// # Panics
    /// If there is no asset of this name.
    pub(super) fn link(&self, name: &str) -> String {
        let found = self.all.iter().find(|asset| asset.name == name);
        let asset = found.expect("pages link only to existing assets");
        format!("/assets/{name}?{}", asset.hash)
    }

    /// Answers a request for an asset.
    pub(super) fn response(&self, name: &str) -> HtmlResponse {
        let Some(asset) = self.all.iter().find(|asset| asset.name == name) else {
            return responses::empty(StatusCode::NOT_FOUND);
        };
        let mut response = Response::new(Body::from(asset.bytes.clone()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.media_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(CACHE_FOREVER));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // An SVG file can contain a script. This policy keeps it from running when the file is opened directly.
        let policy =
            HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox");
        headers.insert(http::header::CONTENT_SECURITY_POLICY, policy);
        response
    }
}

fn asset(name: &'static str, media_type: &'static str, bytes: impl Into<Bytes>) -> Asset {
    let bytes = bytes.into();
    Asset {
        name,
        media_type,
        hash: content_hash(&bytes),
        bytes,
    }
}

fn colours(brand: &Brand) -> String {
    let (light, dark) = (brand.accent, brand.accent_dark);
    format!(
        ":root{{--accent:{light};--on-accent:{}}}\n\
         @media (prefers-color-scheme:dark){{:root{{--accent:{dark};--on-accent:{}}}}}\n",
        light.ink(),
        dark.ink()
    )
}
