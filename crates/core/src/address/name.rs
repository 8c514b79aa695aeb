//! Host names that may be called, checked before they are resolved.
//!
//! The addresses of a name are vetted at every connection; this is an additional, earlier check. It refuses names
//! that have a meaning only inside a network. Refusing them at registration helps honest users and adds one more
//! obstacle for attackers. Names under `.test`, `.example` and `.invalid` pass: they are harmless and do not
//! resolve.

use std::net::{IpAddr, Ipv4Addr};

use super::{DestinationError, EgressRules};

/// Maximum length of a DNS name, without the dot of the root.
const MAX_NAME_BYTES: usize = 253;
/// Maximum length of a DNS label.
const MAX_LABEL_BYTES: usize = 63;

/// The name of the machine itself (RFC 6761). It is refused with all names below it, unless loopback is allowed.
const LOOPBACK_NAME: &str = "localhost";

/// Suffixes that are refused with all names below them: they resolve inside a network or not at all.
const INTERNAL_SUFFIXES: &[&str] = &[
    // Multicast DNS, and names used by hosts files and home routers (RFC 6762 appendix G, ICANN's name collisions).
    "local",
    "localdomain",
    "localdomain4",
    "localdomain6",
    "localnet",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "workgroup",
    "dhcp",
    "router",
    "fritz.box",
    // Reverse lookups, `home.arpa` and `ipv4only.arpa`: infrastructure of DNS, never a receiver.
    "arpa",
    // Kubernetes, by service (`kubernetes.default.svc`) and by namespace; `cluster.local` is covered by `local`.
    "svc",
    "pod",
    "cluster",
    "default",
    "kube-system",
    // Other service discovery.
    "consul",
    "nomad",
    "docker",
    "rancher",
    // Name spaces that are not DNS at all (RFC 7686, RFC 9476).
    "onion",
    "alt",
    // Metadata services with a public name.
    "metadata.tencentyun.com",
    "metadata.packet.net",
    "metadata.platformequinix.com",
];

/// Checks a name in canonical form: lower case, ASCII, without the dot of the root.
pub(super) fn vet_name(name: &str, rules: &EgressRules) -> Result<(), DestinationError> {
    if name.len() > MAX_NAME_BYTES || !name.split('.').all(is_label) {
        return Err(DestinationError::HostName);
    }
    if is_loopback(name) {
        return match rules.vet(IpAddr::V4(Ipv4Addr::LOCALHOST)) {
            Ok(()) => Ok(()),
            Err(_) => Err(DestinationError::InternalName),
        };
    }
    let is_internal = INTERNAL_SUFFIXES
        .iter()
        .any(|suffix| is_at_or_below(name, suffix));
    if is_internal || !name.contains('.') {
        return Err(DestinationError::InternalName);
    }
    Ok(())
}

/// Returns true if a name means the machine itself.
pub(super) fn is_loopback(name: &str) -> bool {
    is_at_or_below(name, LOOPBACK_NAME)
}

fn is_at_or_below(name: &str, suffix: &str) -> bool {
    match name.strip_suffix(suffix) {
        Some(rest) => rest.is_empty() || rest.ends_with('.'),
        None => false,
    }
}

/// Returns true for a valid label. URL parsers accept more than DNS and TLS can handle (`*`, `$`, empty labels).
/// Underscores are allowed, because real receivers use them.
fn is_label(label: &str) -> bool {
    let is_allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label.bytes().all(is_allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(name: &str) -> Result<(), DestinationError> {
        vet_name(name, &EgressRules::default())
    }

    #[test]
    fn suffixes_match_whole_labels_only() {
        for suffix in INTERNAL_SUFFIXES.iter().chain(&[LOOPBACK_NAME]) {
            assert_eq!(
                verdict(suffix),
                Err(DestinationError::InternalName),
                "{suffix}"
            );
            assert_eq!(
                verdict(&format!("a.b.{suffix}")),
                Err(DestinationError::InternalName),
                "{suffix}"
            );
            assert_eq!(verdict(&format!("x.not{suffix}")), Ok(()), "{suffix}");
            assert_eq!(
                verdict(&format!("{suffix}.customer.com")),
                Ok(()),
                "{suffix}"
            );
        }
    }

    #[test]
    fn names_that_cannot_resolve_are_allowed() {
        for name in [
            "hooks.test",
            "hooks.example",
            "hooks.invalid",
            "hooks.example.com",
        ] {
            assert_eq!(verdict(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_that_dns_cannot_carry_are_refused() {
        let long_label = "a".repeat(MAX_LABEL_BYTES);
        assert_eq!(verdict(&format!("{long_label}.com")), Ok(()));
        assert_eq!(
            verdict(&format!("{long_label}a.com")),
            Err(DestinationError::HostName)
        );
        let long_name = format!("{}com", "abcdefgh.".repeat(27));
        assert_eq!(long_name.len(), 246);
        assert_eq!(verdict(&format!("abcdef.{long_name}")), Ok(()));
        assert_eq!(
            verdict(&format!("abcdefg.{long_name}")),
            Err(DestinationError::HostName)
        );
        for name in [
            "", ".", "a..com", ".a.com", "a.com.", "*.a.com", "a$.com", "-a.com", "a-.com",
        ] {
            assert_eq!(verdict(name), Err(DestinationError::HostName), "{name}");
        }
        assert_eq!(verdict("_hooks.a--b.com"), Ok(()));
    }
}
