//! Arrivals over an outage, as SVG.

use std::fmt::Write;

use posthaste_sim::recovery::{Recovery, Scenario};

use super::{Chart, Panel};
use crate::picture::scale::Even;
use crate::picture::series::{Bucket, MAX_BUCKETS};
use crate::picture::svg::{Element, centred, disc, ending, label, line, number, picture, rect};
use crate::picture::{ticks, words};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 600.0;
const LEFT: f64 = 108.0;
const RIGHT: f64 = 932.0;
/// Where the bars of the two panels begin, and how high they may be.
const TOPS: [f64; 2] = [136.0, 356.0];
const TALL: f64 = 160.0;
/// Room above the highest bar for the name of the peak.
const HEADROOM: f64 = 1.2;
/// So many characters fit below the heading.
const SETTING_CHARS: usize = 120;
/// The least height that is seen.
const SEEN: f64 = 1.5;

/// Draws arrivals per second of both senders, under a heading and a line that tells the scenario.
/// The conclusion goes into the description, for those who cannot see the picture.
pub fn svg(
    scenario: &Scenario,
    recovery: &Recovery,
    heading: &str,
    setting: &str,
    conclusion: &str,
) -> String {
    let chart = Chart::new(scenario, recovery, MAX_BUCKETS);
    let time = Even::new(chart.end_ms as f64, RIGHT - LEFT);
    let panels = chart.panels.iter().zip(TOPS);
    picture(WIDTH as u32, HEIGHT as u32, heading, conclusion)
        .child(label(24.0, 40.0, heading).class("heading"))
        .child(label(24.0, 64.0, &words::shortened(setting, SETTING_CHARS)).class("quiet"))
        .children(legend(&chart))
        .children(panels.flat_map(|(panel, top)| draw_panel(&chart, panel, &time, top)))
        .children(time_axis(&chart, &time))
        .write()
}

fn legend(chart: &Chart) -> Vec<Element> {
    let y = 92.0;
    let capacity = format!("receiver's capacity, {}/s", words::count(chart.capacity));
    vec![
        rect(24.0, y - 10.0, 12.0, 12.0).with("rx", 2).class("good"),
        label(42.0, y, "accepted").class("quiet"),
        rect(122.0, y - 10.0, 12.0, 12.0).with("rx", 2).class("bad"),
        label(140.0, y, "refused or failed").class("quiet"),
        line((266.0, y - 4.0), (292.0, y - 4.0)).class("limit"),
        label(300.0, y, &capacity).class("quiet"),
    ]
}

fn draw_panel(chart: &Chart, panel: &Panel, time: &Even, top: f64) -> Vec<Element> {
    let end = (panel.highest as f64 * HEADROOM).ceil();
    let scale = Even::new(end, TALL);
    let floor = top + TALL;
    let mut drawn = Vec::new();
    if chart.outage_ms > 0 {
        let down = time.place(chart.outage_ms as f64);
        drawn.push(rect(LEFT, top, down, TALL).class("down"));
    }
    for value in ticks::counts(end as u64, 4) {
        let y = floor - scale.place(value as f64);
        drawn.push(line((LEFT, y), (RIGHT, y)).class("grid"));
        drawn.push(ending(LEFT - 8.0, y + 4.0, &words::count(value)).class("tick"));
    }
    drawn.push(bars(panel, time, &scale, floor, "good", accepted));
    drawn.push(bars(panel, time, &scale, floor, "bad", refused));
    drawn.push(line((LEFT, floor), (RIGHT, floor)).class("axis"));
    drawn.extend(capacity(chart, panel, &scale, floor));
    drawn.extend(outage_name(chart, time, &scale, top));
    drawn.extend(peak(panel, time, &scale, floor));
    drawn.push(panel_name(panel, top - 10.0));
    drawn.push(
        centred(0.0, 0.0, "arrivals per second")
            .with(
                "transform",
                format!("translate(32 {}) rotate(-90)", number(top + TALL / 2.0)),
            )
            .class("tick"),
    );
    drawn
}

fn panel_name(panel: &Panel, y: f64) -> Element {
    let habit = panel.habit.iter().map(|habit| format!("{habit}: "));
    let mut note = format!("{}{}", habit.collect::<String>(), panel.note);
    if let Some(until_ms) = panel.goes_on_until_ms {
        let _ = write!(note, "; goes on until {}", words::duration(until_ms));
    }
    let piece = |class, text: &str| Element::new("tspan").class(class).text(text);
    Element::new("text")
        .with("x", number(LEFT))
        .with("y", number(y))
        .child(piece("name", panel.name))
        .child(piece("quiet", &note).with("dx", 8))
}

/// The share of a bucket that was accepted, from the floor up.
fn accepted(bucket: &Bucket) -> (f64, f64) {
    (0.0, 1.0 - refused_share(bucket))
}

/// The share that was refused, above it.
fn refused(bucket: &Bucket) -> (f64, f64) {
    (1.0 - refused_share(bucket), 1.0)
}

fn refused_share(bucket: &Bucket) -> f64 {
    bucket.failed as f64 / bucket.arrivals.max(1) as f64
}

/// One path for all bars of a kind: hundreds of elements would say no more.
fn bars(
    panel: &Panel,
    time: &Even,
    scale: &Even,
    floor: f64,
    class: &'static str,
    share: fn(&Bucket) -> (f64, f64),
) -> Element {
    let mut path = String::new();
    for bucket in &panel.buckets {
        let (low, high) = share(bucket);
        if bucket.arrivals == 0 || high <= low {
            continue;
        }
        let tall = scale.place(bucket.peak_per_second as f64).max(SEEN);
        let from = LEFT + time.place(bucket.from_ms as f64);
        let to = LEFT + time.place(bucket.to_ms as f64);
        let _ = write!(
            path,
            "M{} {}H{}V{}H{}z",
            number(from),
            number(floor - tall * low),
            number(to),
            number(floor - tall * high),
            number(from),
        );
    }
    Element::new("path").with("d", path).class(class)
}

/// The line of the capacity, with its name where the line stands clear of the floor, at the side
/// where the name of the peak is not.
fn capacity(chart: &Chart, panel: &Panel, scale: &Even, floor: f64) -> Vec<Element> {
    let height = scale.place(chart.capacity as f64);
    if height >= TALL {
        return Vec::new();
    }
    let y = floor - height;
    let mut drawn = vec![line((LEFT, y), (RIGHT, y)).class("limit")];
    if height > TALL / 4.0 {
        let name = format!("capacity {}/s", words::count(chart.capacity));
        let peak_is_left = panel.peak.is_some_and(|(ms, _)| ms < chart.end_ms / 2);
        let name = if peak_is_left {
            ending(RIGHT - 8.0, y - 7.0, &name)
        } else {
            label(LEFT + 8.0, y - 7.0, &name)
        };
        drawn.push(name.class("limit-name"));
    }
    drawn
}

/// The name of the outage, in the upper panel only, since the lower one is not empty there.
fn outage_name(chart: &Chart, time: &Even, scale: &Even, top: f64) -> Option<Element> {
    let width = time.place(chart.outage_ms as f64);
    if width < 170.0 || top != TOPS[0] {
        return None;
    }
    let name = format!("receiver down for {}", words::duration(chart.outage_ms));
    let middle = TALL / 2.0;
    let capacity = TALL - scale.place(chart.capacity as f64);
    let below = if (capacity - middle).abs() < 30.0 {
        36.0
    } else {
        14.0
    };
    let y = top + middle + below;
    Some(centred(LEFT + width / 2.0, y, &name).class("quiet"))
}

fn peak(panel: &Panel, time: &Even, scale: &Even, floor: f64) -> Vec<Element> {
    let inside = |at_ms: u64| {
        panel
            .buckets
            .iter()
            .find(|b| (b.from_ms..b.to_ms).contains(&at_ms))
    };
    let Some((bucket, per_second)) = panel
        .peak
        .and_then(|(at_ms, count)| Some((inside(at_ms)?, count)))
    else {
        return Vec::new();
    };
    let middle = bucket.from_ms.midpoint(bucket.to_ms);
    let x = LEFT + time.place(middle as f64);
    let y = floor - scale.place(per_second as f64);
    let name = format!("{}/s", words::count(per_second));
    vec![
        disc(x, y, 4.0).class("ring"),
        centred(x.clamp(LEFT + 30.0, RIGHT - 30.0), y - 11.0, &name).class("name"),
    ]
}

fn time_axis(chart: &Chart, time: &Even) -> Vec<Element> {
    let floor = TOPS[1] + TALL;
    let mut drawn = Vec::new();
    for ms in ticks::times_ms(chart.end_ms, 10) {
        let x = LEFT + time.place(ms as f64);
        let name = match ms {
            0 => "0".to_owned(),
            ms => words::duration(ms),
        };
        for floor in TOPS.map(|top| top + TALL) {
            drawn.push(line((x, floor), (x, floor + 5.0)).class("axis"));
        }
        drawn.push(centred(x, floor + 21.0, &name).class("tick"));
    }
    let step = words::duration(chart.step_ms);
    let axis_name = format!(
        "time since the outage began; each bar is the busiest second of {step}, each panel has its own scale"
    );
    drawn.push(centred((LEFT + RIGHT) / 2.0, floor + 52.0, &axis_name).class("quiet"));
    drawn
}

#[cfg(test)]
mod tests {
    use super::super::tests::scenario;
    use super::*;
    use crate::picture::svg::tests::assert_well_formed;
    use posthaste_core::time::Span;
    use posthaste_sim::recovery::play;

    fn drawn(pending: u32, outage: Span) -> String {
        let scenario = scenario(pending, outage);
        svg(
            &scenario,
            &play(&scenario),
            "a <heading>",
            "set & ready",
            "it \"ends\"",
        )
    }

    #[test]
    fn the_picture_is_well_formed_and_says_what_it_shows() {
        let text = drawn(10_000, Span::from_mins(30));
        assert_well_formed(&text);
        for part in [
            "<title>a &lt;heading&gt;</title>",
            "<desc>it &quot;ends&quot;</desc>",
            "set &amp; ready",
            ">10,000/s<",
            ">capacity 50/s<",
            "receiver down for 30m",
            "receiver's capacity, 50/s",
            "goes on until 3h 49m",
            "arrivals per second",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(text.len() < 50_000, "{}", text.len());
    }

    #[test]
    fn extreme_scenarios_make_pictures_too() {
        for outage in [Span::ZERO, Span::from_millis(1), Span::from_days(30)] {
            for pending in [0, 1, 2_000] {
                assert_well_formed(&drawn(pending, outage));
            }
        }
    }

    #[test]
    fn bars_stay_on_their_panel() {
        let text = drawn(10_000, Span::from_mins(30));
        let paths: Vec<&str> = text.split(" d=\"").skip(1).collect();
        // Two kinds of bars in each of two panels.
        assert_eq!(paths.len(), 4);
        for (path, top) in paths.iter().zip([TOPS[0], TOPS[0], TOPS[1], TOPS[1]]) {
            let path = &path[..path.find('"').expect("an end")];
            for piece in path.split('V').skip(1) {
                let y: f64 = piece[..piece.find('H').expect("H")]
                    .parse()
                    .expect("a number");
                assert!(y >= top && y <= top + TALL, "{y}");
            }
        }
    }
}
