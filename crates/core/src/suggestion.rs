//! Suggestions for misspelt names.

/// Returns the known name that is most similar to `name`, unless none is similar.
pub fn nearest<T: AsRef<str> + Ord>(name: &str, known: impl IntoIterator<Item = T>) -> Option<T> {
    known
        .into_iter()
        .map(|other| (distance(name, other.as_ref()), other))
        .min()
        .filter(|(errors, other)| {
            let chars = other.as_ref().chars().count();
            *errors <= chars.div_ceil(4) && *errors < chars
        })
        .map(|(_, other)| other)
}

/// Returns the message for an unknown name: the known name that is most similar, or else all known names. `noun` is
/// what is named, such as "field".
pub fn unknown(noun: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(guess) => format!("is not a known {noun}; did you mean {guess}?"),
        None => format!("is not a known {noun}; known {noun}s: {}", known.join(", ")),
    }
}

/// Maximum length of a name that is compared. Longer ones are no typing errors.
const MAX_CHARS: usize = 64;

/// Returns the number of characters to insert, delete or change, and of neighbours to swap.
fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().take(MAX_CHARS).collect();
    let other: Vec<char> = other.chars().collect();
    let mut above: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, character) in one.iter().enumerate() {
        let mut next = vec![line + 1];
        for (column, wanted) in other.iter().enumerate() {
            let changed = row[column] + usize::from(character != wanted);
            let mut least = changed.min(row[column + 1] + 1).min(next[column] + 1);
            let is_swapped = line > 0
                && column > 0
                && one[line - 1] == *wanted
                && other[column - 1] == *character;
            if is_swapped {
                least = least.min(above[column - 1] + 1);
            }
            next.push(least);
        }
        above = std::mem::replace(&mut row, next);
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_suggested() {
        let known = ["url", "timeout", "event_types", "max_in_flight", "id"];
        for (name, guess) in [
            ("timout", Some("timeout")),
            ("tiemout", Some("timeout")),
            ("ulr", Some("url")),
            ("event_type", Some("event_types")),
            ("ur", Some("url")),
            ("max_inflight", Some("max_in_flight")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), guess, "{name}");
        }
        assert_eq!(nearest("x", [""; 0]), None);
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }

    #[test]
    fn without_a_similar_name_all_are_listed() {
        assert_eq!(
            unknown("field", "timout", &["url", "timeout"]),
            "is not a known field; did you mean timeout?"
        );
        assert_eq!(
            unknown("parameter", "colour", &["limit", "cursor"]),
            "is not a known parameter; known parameters: limit, cursor"
        );
    }
}
