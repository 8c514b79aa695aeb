//! Recognises an id of another kind of object than a command expects.

/// Kinds of objects whose ids have a prefix: the prefix, the noun and the command.
const KINDS: [(&str, &str, &str); 4] = [
    ("dlv_", "a delivery", "deliveries"),
    ("evt_", "an event", "events"),
    ("ep_", "an endpoint", "endpoints"),
    ("rpl_", "a replay", "replays"),
];

/// Returns what to type instead, if the id in this path template belongs to another kind of object.
pub fn suggestion(template: &str, id: &str) -> Option<String> {
    let expected = KINDS
        .iter()
        .find(|(_, _, command)| template.contains(&format!("/{command}/{{id}}")))?;
    let actual = KINDS.iter().find(|(prefix, _, _)| id.starts_with(prefix))?;
    if actual == expected {
        return None;
    }
    let (_, noun, command) = actual;
    let list = match (expected.2, *command) {
        ("deliveries", "events") => {
            format!(", or `posthaste deliveries list --event {id}` for its deliveries")
        }
        ("deliveries", "endpoints") => {
            format!(", or `posthaste deliveries list --endpoint {id}` for its deliveries")
        }
        _ => String::new(),
    };
    Some(format!(
        "{id} is the id of {noun}: use `posthaste {command} show {id}`{list}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELIVERY: &str = "/v1/tenants/{tenant}/deliveries/{id}";

    #[test]
    fn an_id_of_another_kind_gets_the_command_for_it() {
        assert_eq!(
            suggestion(DELIVERY, "evt_1").as_deref(),
            Some(
                "evt_1 is the id of an event: use `posthaste events show evt_1`, \
                 or `posthaste deliveries list --event evt_1` for its deliveries"
            )
        );
        assert_eq!(
            suggestion("/v1/tenants/{tenant}/endpoints/{id}/pause", "dlv_1").as_deref(),
            Some("dlv_1 is the id of a delivery: use `posthaste deliveries show dlv_1`")
        );
    }

    #[test]
    fn other_ids_are_left_to_the_server() {
        assert_eq!(suggestion(DELIVERY, "dlv_1"), None);
        assert_eq!(suggestion(DELIVERY, "1"), None);
        assert_eq!(suggestion("/v1/tenants/{id}", "evt_1"), None);
    }
}
