//! Parsers of argument values that several commands use. Their errors state the accepted values.

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;

use posthaste_core::time::{Span, SpanError};

/// Parses a listen address.
pub fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(
        |_| "must be an IP address and a port, such as 127.0.0.1:8421; port 0 picks a free one",
    )
}

/// Parses an integer within bounds. The error states the bounds.
pub fn whole<N>(min: N, max: N) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let number = text.parse().ok();
        number
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| format!("must be a whole number from {min} to {max}"))
    }
}

/// Parses a duration with a maximum.
pub fn span_up_to(max: Span) -> impl Fn(&str) -> Result<Span, String> + Clone {
    move |text| {
        let span: Span = text.parse().map_err(|error: SpanError| error.to_string())?;
        match span <= max {
            true => Ok(span),
            false => Err(format!("must be at most {max}, not {span}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_and_within_bounds() {
        let read = whole(1, 1_000_u32);
        assert_eq!(read("1000"), Ok(1_000));
        for text in ["0", "1001", "-1", "1.5", "1,000", "abc", "", "99999999999"] {
            let refused = Err("must be a whole number from 1 to 1000".to_owned());
            assert_eq!(read(text), refused, "{text}");
        }
    }

    #[test]
    fn spans_have_a_maximum() {
        let read = span_up_to(Span::from_days(30));
        assert_eq!(read("30d"), Ok(Span::from_days(30)));
        assert_eq!(read("31d"), Err("must be at most 30d, not 31d".to_owned()));
        assert!(read("10 parsecs").is_err_and(|error| error.contains("\"30s\"")));
    }
}
