//! Data in, pictures out.
//!
//! Every function here is pure: it takes data and gives a `String`, and printing it is somebody
//! else's business, be it a command, an HTTP answer or a page. Charts exist twice: for a terminal,
//! with ANSI styles that a printer may strip, and as SVG that needs nothing beside itself.

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
