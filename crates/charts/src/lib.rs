//! Charts from data, as SVG or terminal text.
//!
//! Every function here is pure: it takes data and returns a `String` or an [`svg::Element`]. The caller prints it, in a
//! command, an HTTP response or a page. Most charts exist in two forms: terminal text with ANSI styles, which the caller
//! may strip, and SVG without external resources.
//!
//! | module | contents |
//! |---|---|
//! | [`timeline`] | the expected attempts of a retry policy |
//! | [`delivery`] | the attempts of one delivery |
//! | [`outage`] | the requests that reach a receiver after an outage |
//! | [`series`], [`scale`], [`ticks`] | buckets, positions and labels of the axes |
//! | [`svg`], [`terminal`] | drawing |
//! | [`mod@format`] | numbers and durations as text |

pub mod delivery;
pub mod format;
pub mod outage;
pub mod scale;
pub mod series;
pub mod svg;
pub mod terminal;
pub mod ticks;
pub mod timeline;

pub use svg::styles;
