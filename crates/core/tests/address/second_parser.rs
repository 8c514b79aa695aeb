//! A second parser that shares nothing with the first: no `url`, no `ipnet`, none of its tables.
//!
//! It parses addresses as the C library does (`inet_aton`: one to four parts, each decimal, octal or hexadecimal),
//! because the C library would connect if a program passed it the text.

/// Ranges that must be refused, as first address and prefix length, copied from IANA's registries by hand.
const SPECIAL_V4: &[(u32, u32)] = &[
    (0x0000_0000, 8),
    (0x0a00_0000, 8),
    (0x6440_0000, 10),
    (0x7f00_0000, 8),
    (0xa83f_8110, 32),
    (0xa9fe_0000, 16),
    (0xac10_0000, 12),
    (0xc000_0000, 24),
    (0xc000_0200, 24),
    (0xc01f_c400, 24),
    (0xc034_c100, 24),
    (0xc058_6300, 24),
    (0xc0a8_0000, 16),
    (0xc0af_3000, 24),
    (0xc612_0000, 15),
    (0xc633_6400, 24),
    (0xcb00_7100, 24),
    (0xe000_0000, 3),
];

/// Ranges within `2000::/3` that must be refused, by the first 64 bits.
const SPECIAL_V6: &[(u64, u32)] = &[
    (0x2001_0000_0000_0000, 23),
    (0x2001_0db8_0000_0000, 32),
    (0x2002_0000_0000_0000, 16),
    (0x2620_004f_8000_0000, 48),
    (0x3ffe_0000_0000_0000, 16),
    (0x3fff_0000_0000_0000, 20),
];

/// A sample of the ports that must be refused.
const CLOSED_PORTS: &[u16] = &[
    0, 1, 21, 22, 23, 25, 53, 81, 111, 139, 389, 445, 1023, 1433, 2049, 2375, 2379, 3306, 3389,
    5432, 5672, 6379, 6443, 8500, 9092, 9200, 10250, 11211, 27017,
];

pub(crate) fn is_special_v4(bits: u32) -> bool {
    let within = |(first, length): &(u32, u32)| (bits ^ first) >> (32 - length) == 0;
    SPECIAL_V4.iter().any(within)
}

pub(crate) fn is_special_v6(bits: u128) -> bool {
    let high = (bits >> 64) as u64;
    let low = bits as u64;
    if bits >> 32 == 0xffff {
        return is_special_v4(bits as u32);
    }
    let within = |(first, length): &(u64, u32)| (high ^ first) >> (64 - length) == 0;
    // ISATAP has an IPv4 address after a fixed mark; its two flags may have any value.
    let isatap = (low >> 32) & 0xfcff_ffff == 0x0000_5efe;
    high >> 61 != 1 || SPECIAL_V6.iter().any(within) || isatap && is_special_v4(low as u32)
}

pub(crate) fn is_closed_port(port: u16) -> bool {
    CLOSED_PORTS.contains(&port)
}

/// Returns the number in a part, by the digits of its radix; `None` if it is not a number.
fn part(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    if digits.is_empty() {
        // Some implementations read `0x` alone as zero.
        return (radix == 16).then_some(0);
    }
    digits.bytes().try_fold(0_u64, |number, digit| {
        let digit = (digit as char).to_digit(radix)?;
        number
            .checked_mul(u64::from(radix))?
            .checked_add(u64::from(digit))
    })
}

/// Returns the address that the C library would parse from a text.
pub(crate) fn inet_aton(text: &str) -> Option<u32> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let parts: Option<Vec<u64>> = text.split('.').map(part).collect();
    let parts = parts.filter(|parts| parts.len() <= 4)?;
    let (last, before) = parts.split_last()?;
    let room = 32 - 8 * before.len() as u32;
    if before.iter().any(|part| *part > 255) || *last >= 1 << room {
        return None;
    }
    let high = before
        .iter()
        .fold(0_u64, |address, part| address << 8 | part);
    u32::try_from(high << room | last).ok()
}

/// Returns host and port of a URL, split by hand. The port is empty if there is none.
pub(crate) fn host_and_port(url: &str) -> Option<(&str, &str)> {
    let (_, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    let bracket = authority.rfind(']').map_or(0, |at| at + 1);
    match authority[bracket..].find(':') {
        Some(colon) => Some((
            &authority[..bracket + colon],
            &authority[bracket + colon + 1..],
        )),
        None => Some((authority, "")),
    }
}

/// Returns the text with its percent escapes decoded.
pub(crate) fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let escaped = after.get(..2).and_then(|hex| {
            let hex = std::str::from_utf8(hex).ok()?;
            let is_hex = hex.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_hex.then(|| u8::from_str_radix(hex, 16).ok()).flatten()
        });
        match escaped {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            Some(_) | None => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).ok()
}

/// Returns true for the best-known names that have a meaning only inside a network.
pub(crate) fn is_inside_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    let inside = [
        "localhost",
        "local",
        "internal",
        "lan",
        "svc",
        "arpa",
        "onion",
        "localdomain",
    ];
    !name.contains('.') || inside.contains(&last)
}

#[test]
fn the_second_parser_agrees_with_the_c_library() {
    for (text, bits) in [
        ("127.0.0.1", Some(0x7f00_0001)),
        ("127.1", Some(0x7f00_0001)),
        ("0x7f.1", Some(0x7f00_0001)),
        ("0177.0.0.01", Some(0x7f00_0001)),
        ("2130706433", Some(0x7f00_0001)),
        ("10.258.1", None),
        ("10.2.258", Some(0x0a02_0102)),
        ("4294967296", None),
        ("1.2.3.4.5", None),
        ("08", None),
        ("0", Some(0)),
        ("a.b", None),
        ("", None),
    ] {
        assert_eq!(inet_aton(text), bits, "{text}");
    }
    assert_eq!(host_and_port("https://a:1/b:2"), Some(("a", "1")));
    assert_eq!(host_and_port("https://[::1]:5?x"), Some(("[::1]", "5")));
    assert_eq!(unescaped("%31%3x%"), Some("1%3x%".to_owned()));
    assert!(is_special_v6(1) && !is_special_v6(0x2606_4700_u128 << 96));
}
