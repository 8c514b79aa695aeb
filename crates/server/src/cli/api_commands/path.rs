//! Fills in the path templates of API commands.

use crate::cli::error::CommandError;

/// Fills in a path template.
pub fn fill(
    template: &str,
    tenant: Option<&str>,
    id: Option<&str>,
) -> Result<String, CommandError> {
    let tenant = tenant.map(str::trim).filter(|tenant| !tenant.is_empty());
    let mut template = template.to_owned();
    if let (Some(open), Some(close)) = (template.find('['), template.find(']')) {
        let part = match tenant {
            Some(_) => template[open + 1..close].to_owned(),
            None => String::new(),
        };
        template.replace_range(open..=close, &part);
    }
    if template.contains("{tenant}") {
        let tenant = tenant.ok_or(CommandError::NoTenant)?;
        template = template.replace("{tenant}", &escaped(tenant));
    }
    Ok(match id {
        Some(id) => template.replace("{id}", &escaped(id)),
        None => template,
    })
}

/// Escapes a text so that it is exactly one segment of a path.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            // A segment of only dots would lead to a parent.
            b'.' if !text.bytes().all(|byte| byte == b'.') => out.push('.'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_segment_of_the_path() {
        let path = |id| fill("/v1/tenants/{tenant}/x/{id}", Some("a/b"), Some(id)).unwrap();
        assert_eq!(path("ep_1"), "/v1/tenants/a%2Fb/x/ep_1");
        assert_eq!(path(".."), "/v1/tenants/a%2Fb/x/%2E%2E");
        assert_eq!(path("a.b?c#ü"), "/v1/tenants/a%2Fb/x/a.b%3Fc%23%C3%BC");
    }

    #[test]
    fn the_part_in_brackets_needs_a_tenant() {
        let stats = |tenant| fill("/v1[/tenants/{tenant}]/stats", tenant, None).unwrap();
        assert_eq!(stats(None), "/v1/stats");
        assert_eq!(stats(Some(" ")), "/v1/stats");
        assert_eq!(stats(Some("acme")), "/v1/tenants/acme/stats");
        assert!(matches!(
            fill("/{tenant}", None, None),
            Err(CommandError::NoTenant)
        ));
    }
}
