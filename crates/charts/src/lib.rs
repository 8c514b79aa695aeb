//! Charts from data, as SVG or terminal text.
//!
//! Every function here is pure: it takes data and returns a `String` or an [`svg::Element`]. The caller
//! prints it, in a command, an HTTP response or a page. Most charts exist in two forms: terminal text with
//! ANSI styles, which the caller may strip, and SVG without external resources.

pub mod journey;
pub mod outage;
pub mod scale;
pub mod series;
pub mod svg;
pub mod terminal;
pub mod ticks;
pub mod timeline;
pub mod words;

pub use svg::styles;
