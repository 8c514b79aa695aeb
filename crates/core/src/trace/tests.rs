//! Tests of the trace context headers.
//!
//! They cover the examples of the standard, headers that it forbids, later versions, and the limits of
//! `tracestate`. Property tests check that any text can be read without a panic and that what is written reads
//! back.

use proptest::prelude::*;

use super::*;
use crate::rng::Rng;

/// The example of the standard.
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn read(parent: &str, state: &str) -> Option<TraceContext> {
    TraceContext::read(parent, [state])
}

fn state(values: &[&str]) -> String {
    let read = TraceContext::read(PARENT, values.iter().copied());
    read.expect("the traceparent is valid")
        .state
        .as_str()
        .to_owned()
}

#[test]
fn examples_of_the_standard_are_parsed() {
    let context =
        read(PARENT, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE").expect("the headers are valid");
    assert_eq!(
        context.trace_id.to_string(),
        "4bf92f3577b34da6a3ce929d0e0e4736"
    );
    assert_eq!(context.parent_id.to_string(), "00f067aa0ba902b7");
    assert!(context.flags.is_sampled());
    assert_eq!(
        context.state.as_str(),
        "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
    );
    assert_eq!(context.traceparent(), PARENT);

    let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let context = read(unsampled, "").expect("the headers are valid");
    assert!(!context.flags.is_sampled());
    assert!(context.state.is_empty());
    assert_eq!(context.traceparent(), unsampled);
}

#[test]
fn invalid_traceparents_are_ignored() {
    for parent in [
        "",
        "00",
        // Ids of zeros.
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        // Upper case.
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01",
        "0A-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0A",
        // Not hexadecimal.
        "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
        "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-.1",
        // Too short, too long, other separators, spaces.
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_01",
        " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 ",
        // The forbidden version.
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        // A character of two bytes, which a slice would split.
        "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
    ] {
        assert_eq!(read(parent, "a=1"), None, "{parent}");
    }
}

#[test]
fn later_versions_are_parsed_as_version_00() {
    let rest = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
    for parent in [
        format!("01-{rest}-01"),
        format!("cc-{rest}-01"),
        format!("cc-{rest}-01-what-the-future-brings"),
        format!("fe-{rest}-f5-"),
    ] {
        let context = read(&parent, "").expect(&parent);
        assert_eq!(context.traceparent(), PARENT, "{parent}");
    }
    for parent in [format!("cc-{rest}-01.what"), format!("cc-{rest}-012")] {
        assert_eq!(read(&parent, ""), None, "{parent}");
    }
}

#[test]
fn only_known_flags_are_passed_on() {
    let flags = |bits: &str| {
        let parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{bits}");
        let context = read(&parent, "").expect("the headers are valid");
        context.flags.bits()
    };
    for (bits, kept) in [
        ("00", 0),
        ("01", 1),
        ("02", 2),
        ("03", 3),
        ("fc", 0),
        ("ff", 3),
    ] {
        assert_eq!(flags(bits), kept, "{bits}");
    }
    assert!(TraceFlags::local(true).is_sampled());
    assert!(!TraceFlags::local(false).is_sampled());
}

#[test]
fn a_state_is_a_list_of_members() {
    assert_eq!(state(&["foo=1,bar=2"]), "foo=1,bar=2");
    assert_eq!(state(&["foo=1 , \tbar=2 "]), "foo=1,bar=2");
    assert_eq!(state(&["foo=1", "bar=2"]), "foo=1,bar=2");
    assert_eq!(state(&["foo=1,", "", ",bar=2"]), "foo=1,bar=2");
    assert_eq!(
        state(&["fw529a3039@dt=FfK_8,x= a b"]),
        "fw529a3039@dt=FfK_8,x= a b"
    );
    assert_eq!(state(&["a-_*/1=~!"]), "a-_*/1=~!");
    let name = "z".repeat(256);
    let value = "v".repeat(250);
    assert_eq!(
        state(&[&format!("{name}={value}")]),
        format!("{name}={value}")
    );
}

#[test]
fn an_invalid_tracestate_does_not_drop_the_parent() {
    let long = format!("{}=1", "z".repeat(257));
    let longer = format!("z={}", "v".repeat(257));
    for wrong in [
        "foo",
        "foo=",
        "=1",
        "FOO=1",
        "_foo=1",
        "foo@=1=2",
        "foo =1",
        "foo=a=b",
        "foo=1;bar=2,foo=2",
        "foo=ä",
        "foo=\u{7}",
        "foo=1,foo=1",
        &long,
        &longer,
    ] {
        assert_eq!(state(&[wrong]), "", "{wrong}");
    }
    let members = |count: usize| {
        let members: Vec<String> = (0..count).map(|number| format!("m{number}=1")).collect();
        members.join(",")
    };
    assert_eq!(state(&[&members(32)]), members(32));
    assert_eq!(state(&[&members(33)]), "");
}

#[test]
fn a_long_tracestate_drops_whole_members_longest_first() {
    let long = format!("long={}", "x".repeat(130));
    let short = |number: usize| format!("s{number}={}", "y".repeat(97));
    let all = [
        short(1),
        long.clone(),
        short(2),
        short(3),
        short(4),
        short(5),
    ];
    // 130 + 6 and five times 100 characters, with commas: dropping the long member is enough.
    let kept = [short(1), short(2), short(3), short(4), short(5)].join(",");
    assert_eq!(state(&[&all.join(",")]), kept);
    let more = [kept.clone(), "last=1234567890".to_owned()].join(",");
    assert_eq!(state(&[&more]), kept);
    let exactly = format!("{kept},l={}", "1".repeat(MAX_STATE_CHARS - kept.len() - 3));
    assert_eq!(exactly.len(), MAX_STATE_CHARS);
    assert_eq!(state(&[&exactly]), exactly);
}

#[test]
fn generated_ids_are_valid_and_distinct() {
    let mut rng = Rng::seeded(5);
    let (one, other) = (TraceId::random(&mut rng), TraceId::random(&mut rng));
    assert_ne!(one, other);
    assert_ne!(SpanId::random(&mut rng), SpanId::random(&mut rng));
    let parent = SpanId::random(&mut rng);
    let text = format!("00-{one}-{parent}-01");
    let context = read(&text, "").expect("the headers are valid");
    assert_eq!((context.trace_id, context.parent_id), (one, parent));
    let child = SpanId::random(&mut rng);
    assert_eq!(
        context.within(child).traceparent(),
        format!("00-{one}-{child}-01")
    );
    assert_eq!(TraceId::new([0; 16]), None);
    assert_eq!(SpanId::new([0; 8]), None);
}

#[test]
fn debug_output_contains_no_member() {
    let context = read(PARENT, "vendor=canary").expect("the headers are valid");
    assert!(!format!("{context:?}").contains("canary"));
}

fn member() -> impl Strategy<Value = String> {
    "[a-z0-9][a-z0-9_*/@-]{0,80}=[ -+--<>-~]{0,80}[!-+--<>-~]"
}

fn context() -> impl Strategy<Value = TraceContext> {
    let ids = (any::<[u8; 16]>(), any::<[u8; 8]>(), 0..4u8);
    let members = proptest::collection::vec(member(), 0..10);
    (ids, members).prop_filter_map("zeros", |((trace, parent, flags), members)| {
        Some(TraceContext {
            trace_id: TraceId::new(trace)?,
            parent_id: SpanId::new(parent)?,
            flags: TraceFlags::known(flags),
            state: TraceState::read([members.join(",").as_str()]).unwrap_or_default(),
        })
    })
}

proptest! {
    #[test]
    fn written_headers_parse_back(context in context()) {
        let stored = context.to_string();
        prop_assert_eq!(stored.parse::<TraceContext>(), Ok(context.clone()));
        let read = TraceContext::read(&context.traceparent(), [context.state.as_str()]);
        prop_assert_eq!(read, Some(context));
    }

    #[test]
    fn random_headers_do_not_panic(parent in ".{0,80}", states in proptest::collection::vec(".{0,700}", 0..4)) {
        let _ = parent.parse::<TraceContext>();
        let kept = TraceContext::read(PARENT, states.iter().map(String::as_str));
        prop_assert!(kept.expect("the traceparent is valid").state.as_str().len() <= MAX_STATE_CHARS);
    }

    #[test]
    fn one_wrong_character_invalidates_a_traceparent(place in 0..55usize, byte in any::<char>()) {
        let mut parent: Vec<char> = PARENT.chars().collect();
        prop_assume!(!byte.is_ascii_hexdigit() && byte != parent[place]);
        parent[place] = byte;
        let parent: String = parent.into_iter().collect();
        prop_assert_eq!(read(&parent, ""), None);
    }

    #[test]
    fn a_long_tracestate_keeps_whole_members(members in proptest::collection::vec(member(), 0..32)) {
        let whole = members.join(",");
        if let Some(state) = TraceState::read([whole.as_str()]) {
            prop_assert!(state.as_str().len() <= MAX_STATE_CHARS);
            let mut given = members.iter().map(|member| member.trim_matches(' '));
            for kept in state.as_str().split(',').filter(|kept| !kept.is_empty()) {
                prop_assert!(given.any(|member| member == kept), "{kept}");
            }
            if whole.len() <= MAX_STATE_CHARS {
                prop_assert_eq!(state.as_str(), whole);
            }
        }
    }
}
