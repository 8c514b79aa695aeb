//! Indents JSON without changing any token.
//!
//! Parsing and serializing would change numbers that do not fit an `f64`, but a payload must be shown as it is sent.

/// Indents valid JSON, one member per line.
pub fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth = 0;
    let mut chars = json.chars().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    };
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                out.push(c);
                string(&mut out, &mut chars);
            }
            '{' | '[' => {
                out.push(c);
                while chars.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                if let Some(close) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            blank if blank.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    out
}

/// Copies the rest of a string, with any content.
fn string(out: &mut String, chars: &mut impl Iterator<Item = char>) {
    while let Some(c) = chars.next() {
        out.push(c);
        match c {
            '"' => return,
            '\\' => out.extend(chars.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_unchanged() {
        let json = r#"{"a":[1, 12345678901234567890123 ,1.0e5],"b":{},"c" : [ ],"d":"x, {\"}:\\","e":null}"#;
        let shown = indented(json);
        assert_eq!(
            shown,
            r#"{
  "a": [
    1,
    12345678901234567890123,
    1.0e5
  ],
  "b": {},
  "c": [],
  "d": "x, {\"}:\\",
  "e": null
}"#
        );
        assert_eq!(indented(&shown), shown);
    }
}
