//! Settings of the dashboard and the portal.
//!
//! [`DashboardSettings`] has lifetimes, limits and the sites that may embed the portal. [`Brand`] is the operator's
//! name, logo and colours; text on a colour is black or white, the one with the better contrast.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use posthaste_core::time::Span;

/// Settings of the dashboard and the portal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DashboardSettings {
    /// True if the dashboard and the portal are served.
    pub enabled: bool,
    /// URL at which browsers reach this server: scheme, host and port, as in `https://hooks.example.com`. Without it,
    /// the host of each request is used.
    pub public_url: Option<String>,
    /// Lifetime of a session.
    pub session: Span,
    /// Name, logo and colours of the portal. The dashboard uses our own.
    pub portal: Brand,
    /// Sites that may show the portal in a frame.
    pub frame_ancestors: Vec<String>,
    /// Minimum number of samples for a ratio to be shown as out of range, as for an alert.
    pub min_samples: u64,
}

impl Default for DashboardSettings {
    fn default() -> DashboardSettings {
        DashboardSettings {
            enabled: true,
            public_url: None,
            session: Span::from_hours(12),
            portal: Brand::default(),
            frame_ancestors: Vec::new(),
            min_samples: 20,
        }
    }
}

/// The look of pages: the operator's name, logo and colours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brand {
    /// Name at the top of every page.
    pub name: String,
    /// Logo beside the name.
    pub logo: Option<Logo>,
    /// Colour of links and buttons on a light background.
    pub accent: Colour,
    /// Colour of links and buttons on a dark background.
    pub accent_dark: Colour,
}

impl Default for Brand {
    fn default() -> Brand {
        Brand {
            name: "posthaste".to_owned(),
            logo: None,
            accent: Colour([0x0a, 0x58, 0xca]),
            accent_dark: Colour([0x7a, 0xb0, 0xff]),
        }
    }
}

/// The operator's logo.
#[derive(Clone, PartialEq, Eq)]
pub struct Logo {
    /// Media type of the image.
    pub media_type: &'static str,
    /// Image file.
    pub bytes: Bytes,
}

impl fmt::Debug for Logo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} of {} bytes",
            self.media_type,
            self.bytes.len()
        )
    }
}

/// A colour: red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub [u8; 3]);

/// The text is not a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a colour such as \"#0a58ca\"")]
pub struct ColourError;

impl FromStr for Colour {
    type Err = ColourError;

    fn from_str(text: &str) -> Result<Colour, ColourError> {
        let digits = text.strip_prefix('#').ok_or(ColourError)?;
        let is_hex = digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex {
            return Err(ColourError);
        }
        let number = u32::from_str_radix(digits, 16).map_err(|_| ColourError)?;
        let [_, red, green, blue] = number.to_be_bytes();
        Ok(Colour([red, green, blue]))
    }
}

impl fmt::Display for Colour {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(formatter, "#{red:02x}{green:02x}{blue:02x}")
    }
}

impl Colour {
    /// Relative luminance from 0 to 1, as defined by WCAG.
    fn luminance(self) -> f64 {
        let [red, green, blue] = self.0.map(|part| {
            let part = f64::from(part) / 255.0;
            if part <= 0.040_45 {
                part / 12.92
            } else {
                ((part + 0.055) / 1.055).powf(2.4)
            }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// Returns black or white, the one with the better contrast on this colour.
    pub fn ink(self) -> Colour {
        // At this luminance, black and white have the same contrast.
        if self.luminance() > 0.179 {
            Colour([0, 0, 0])
        } else {
            Colour([255, 255, 255])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_parsed_strictly_and_written_back() {
        let blue: Colour = "#0a58CA".parse().expect("a valid colour");
        assert_eq!(blue.to_string(), "#0a58ca");
        for invalid in [
            "", "0a58ca", "#0a58c", "#0a58cg", "red", "#+a58ca", "#fff;}",
        ] {
            assert_eq!(invalid.parse::<Colour>(), Err(ColourError), "{invalid}");
        }
    }

    #[test]
    fn ink_has_enough_contrast_on_every_colour() {
        for red in (0..=255).step_by(51) {
            for green in (0..=255).step_by(51) {
                for blue in (0..=255).step_by(51) {
                    let ground = Colour([red as u8, green as u8, blue as u8]);
                    let (ground, ink) = (ground.luminance(), ground.ink().luminance());
                    let contrast = (ground.max(ink) + 0.05) / (ground.min(ink) + 0.05);
                    assert!(contrast >= 4.5, "{contrast}");
                }
            }
        }
    }
}
