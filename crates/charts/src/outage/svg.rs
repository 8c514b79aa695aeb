//! Requests after an outage, as SVG.
//!
//! [`svg`] draws the two panels below each other: bars of accepted and refused requests, the receiver's capacity, the
//! outage, and a mark at the peak.

use std::fmt::Write;

use posthaste_core::forecast::{Forecast, OutageScenario};

use super::{Chart, Panel};
use crate::scale::LinearScale;
use crate::series::{Bucket, MAX_BUCKETS};
use crate::svg::{Element, centred, disc, document, label, line, number, rect, right_aligned};
use crate::{format, ticks};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 600.0;
const LEFT: f64 = 108.0;
const RIGHT: f64 = 932.0;
/// Top of the bars of the two panels, and their maximum height.
const TOPS: [f64; 2] = [136.0, 356.0];
const PANEL_HEIGHT: f64 = 160.0;
/// Factor of space above the highest bar, for the label of the peak.
const HEADROOM: f64 = 1.2;
/// Maximum number of characters below the heading.
const MAX_SETTING_CHARS: usize = 120;
/// Minimum height of a visible bar.
const MIN_BAR_HEIGHT: f64 = 1.5;

/// Draws requests per second of both senders, below a heading and a line that describes the scenario. The
/// conclusion is the text alternative for screen readers.
pub fn svg(
    scenario: &OutageScenario,
    forecast: &Forecast,
    heading: &str,
    setting: &str,
    conclusion: &str,
) -> String {
    let chart = Chart::new(scenario, forecast, MAX_BUCKETS);
    let time = LinearScale::new(chart.end_ms as f64, RIGHT - LEFT);
    let panels = chart.panels.iter().zip(TOPS);
    document(WIDTH as u32, HEIGHT as u32, heading, conclusion)
        .child(label(24.0, 40.0, heading).class("heading"))
        .child(label(24.0, 64.0, &format::shortened(setting, MAX_SETTING_CHARS)).class("quiet"))
        .children(legend(&chart))
        .children(panels.flat_map(|(panel, top)| draw_panel(&chart, panel, &time, top)))
        .children(time_axis(&chart, &time))
        .write()
}

fn legend(chart: &Chart) -> Vec<Element> {
    let y = 92.0;
    let capacity = format!("receiver's capacity, {}", format::rate(chart.capacity));
    vec![
        rect(24.0, y - 10.0, 12.0, 12.0).with("rx", 2).class("good"),
        label(42.0, y, "accepted").class("quiet"),
        rect(122.0, y - 10.0, 12.0, 12.0).with("rx", 2).class("bad"),
        label(140.0, y, "rejected or failed").class("quiet"),
        line((266.0, y - 4.0), (292.0, y - 4.0)).class("limit"),
        label(300.0, y, &capacity).class("quiet"),
    ]
}

fn draw_panel(chart: &Chart, panel: &Panel, time: &LinearScale, top: f64) -> Vec<Element> {
    let end = (panel.highest as f64 * HEADROOM).ceil();
    let scale = LinearScale::new(end, PANEL_HEIGHT);
    let baseline = top + PANEL_HEIGHT;
    let mut drawn = Vec::new();
    if chart.outage_ms > 0 {
        let down = time.position(chart.outage_ms as f64);
        drawn.push(rect(LEFT, top, down, PANEL_HEIGHT).class("down"));
    }
    for value in ticks::count_ticks(end as u64, 4) {
        let y = baseline - scale.position(value as f64);
        drawn.push(line((LEFT, y), (RIGHT, y)).class("grid"));
        drawn.push(right_aligned(LEFT - 8.0, y + 4.0, &format::count(value)).class("tick"));
    }
    drawn.push(bars(panel, time, &scale, baseline, "good", accepted));
    drawn.push(bars(panel, time, &scale, baseline, "bad", refused));
    drawn.push(line((LEFT, baseline), (RIGHT, baseline)).class("axis"));
    drawn.extend(capacity(chart, panel, &scale, baseline));
    drawn.extend(outage_label(chart, time, &scale, top));
    drawn.extend(peak(panel, time, &scale, baseline));
    drawn.push(panel_title(panel, top - 10.0));
    drawn.push(
        centred(0.0, 0.0, "arrivals per second")
            .with(
                "transform",
                format!(
                    "translate(32 {}) rotate(-90)",
                    number(top + PANEL_HEIGHT / 2.0)
                ),
            )
            .class("tick"),
    );
    drawn
}

fn panel_title(panel: &Panel, y: f64) -> Element {
    let retry_behaviour = panel
        .retry_behaviour
        .iter()
        .map(|retry_behaviour| format!("{retry_behaviour}: "));
    let mut note = format!("{}{}", retry_behaviour.collect::<String>(), panel.note);
    if let Some(until) = &panel.continues_until {
        let _ = write!(note, "; continues until {until}");
    }
    let piece = |class, text: &str| Element::new("tspan").class(class).text(text);
    Element::new("text")
        .with("x", number(LEFT))
        .with("y", number(y))
        .child(piece("name", panel.name))
        .child(piece("quiet", &note).with("dx", 8))
}

/// Returns the accepted share of a bucket's busiest second, as the lower part of its bar.
fn accepted(bucket: &Bucket) -> (f64, f64) {
    (0.0, 1.0 - refused_share(bucket))
}

/// Returns the refused share, as the upper part.
fn refused(bucket: &Bucket) -> (f64, f64) {
    (1.0 - refused_share(bucket), 1.0)
}

fn refused_share(bucket: &Bucket) -> f64 {
    bucket.peak_failed as f64 / bucket.peak_per_second.max(1) as f64
}

/// Draws all bars of a kind as one path, because hundreds of elements would only make the file larger.
fn bars(
    panel: &Panel,
    time: &LinearScale,
    scale: &LinearScale,
    baseline: f64,
    class: &'static str,
    share: fn(&Bucket) -> (f64, f64),
) -> Element {
    let mut path = String::new();
    for bucket in &panel.buckets {
        let (low, high) = share(bucket);
        if bucket.arrivals == 0 || high <= low {
            continue;
        }
        let height = scale
            .position(bucket.peak_per_second as f64)
            .max(MIN_BAR_HEIGHT);
        let from = LEFT + time.position(bucket.from_ms as f64);
        let to = LEFT + time.position(bucket.to_ms as f64);
        let _ = write!(
            path,
            "M{} {}H{}V{}H{}z",
            number(from),
            number(baseline - height * low),
            number(to),
            number(baseline - height * high),
            number(from),
        );
    }
    Element::new("path").with("d", path).class(class)
}

/// Draws the line of the capacity. Its label is drawn if the line is clearly above the axis, on the side that
/// the label of the peak does not use.
fn capacity(chart: &Chart, panel: &Panel, scale: &LinearScale, baseline: f64) -> Vec<Element> {
    let height = scale.position(chart.capacity);
    if height >= PANEL_HEIGHT {
        return Vec::new();
    }
    let y = baseline - height;
    let mut drawn = vec![line((LEFT, y), (RIGHT, y)).class("limit")];
    if height > PANEL_HEIGHT / 4.0 {
        let name = format!("capacity {}", format::rate(chart.capacity));
        let peak_is_left = panel.peak.is_some_and(|(ms, _)| ms < chart.end_ms / 2);
        let name = if peak_is_left {
            right_aligned(RIGHT - 8.0, y - 7.0, &name)
        } else {
            label(LEFT + 8.0, y - 7.0, &name)
        };
        drawn.push(name.class("limit-name"));
    }
    drawn
}

/// Draws the label of the outage, in the upper panel only, because the lower one has bars there.
fn outage_label(
    chart: &Chart,
    time: &LinearScale,
    scale: &LinearScale,
    top: f64,
) -> Option<Element> {
    let width = time.position(chart.outage_ms as f64);
    if width < 170.0 || top != TOPS[0] {
        return None;
    }
    let name = format!("receiver down for {}", chart.outage);
    let middle = PANEL_HEIGHT / 2.0;
    let capacity = PANEL_HEIGHT - scale.position(chart.capacity);
    let below = if (capacity - middle).abs() < 30.0 {
        36.0
    } else {
        14.0
    };
    let y = top + middle + below;
    Some(centred(LEFT + width / 2.0, y, &name).class("quiet"))
}

fn peak(panel: &Panel, time: &LinearScale, scale: &LinearScale, baseline: f64) -> Vec<Element> {
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
    let x = LEFT + time.position(middle as f64);
    let y = baseline - scale.position(per_second as f64);
    let name = format!("{}/s", format::count(per_second));
    vec![
        disc(x, y, 4.0).class("ring"),
        centred(x.clamp(LEFT + 30.0, RIGHT - 30.0), y - 11.0, &name).class("name"),
    ]
}

fn time_axis(chart: &Chart, time: &LinearScale) -> Vec<Element> {
    let baseline = TOPS[1] + PANEL_HEIGHT;
    let mut drawn = Vec::new();
    for ms in ticks::time_ticks_ms(chart.end_ms, 10) {
        let x = LEFT + time.position(ms as f64);
        let name = match ms {
            0 => "0".to_owned(),
            ms => format::duration(ms),
        };
        for baseline in TOPS.map(|top| top + PANEL_HEIGHT) {
            drawn.push(line((x, baseline), (x, baseline + 5.0)).class("axis"));
        }
        drawn.push(centred(x, baseline + 21.0, &name).class("tick"));
    }
    let since = match chart.outage_ms {
        0 => "time since the deliveries were due",
        _ => "time since the outage began",
    };
    let bar = match chart.step_ms {
        1_000 => "each bar is one second".to_owned(),
        step_ms => format!(
            "each bar is the busiest second of {}",
            format::duration(step_ms)
        ),
    };
    let axis_name = format!("{since}; {bar}, each panel has its own scale");
    drawn.push(centred((LEFT + RIGHT) / 2.0, baseline + 52.0, &axis_name).class("quiet"));
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::tests::assert_well_formed;
    use posthaste_core::forecast::{Arrivals, SenderOutcome, forecast};
    use posthaste_core::time::Span;

    fn drawn(pending: u32, outage: Span) -> String {
        let scenario = OutageScenario::with_defaults(pending, outage);
        svg(
            &scenario,
            &forecast(&scenario),
            "a <heading>",
            "set & ready",
            "it \"ends\"",
        )
    }

    #[test]
    fn the_chart_is_well_formed_and_has_its_labels() {
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
            "continues until 3h 49m",
            "arrivals per second",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(text.len() < 50_000, "{}", text.len());
    }

    #[test]
    fn the_longest_title_fits() {
        let mut scenario = OutageScenario::with_defaults(1_000_000, Span::from_days(1));
        scenario.capacity_per_second = 0.001;
        let naive = SenderOutcome {
            attempts: 1,
            peak_per_second: 1_000_000,
            drained_ms: Span::from_hours(71).as_millis(),
            arrivals: [(255_600, Arrivals::default())].into(),
            ..SenderOutcome::default()
        };
        let posthaste = SenderOutcome::default();
        let text = svg(&scenario, &Forecast { posthaste, naive }, "", "", "");
        let title = text.split(">naive sender</tspan>").nth(1).expect("a title");
        let title = title.split('>').nth(1).expect("a note");
        let title = &title[..title.find('<').expect("an end")];
        assert!(title.ends_with("continues until 2d 23h"), "{title}");
        // A character is narrower than 7 pixels, and the name is about 100 pixels wide.
        let end = LEFT + 104.0 + 6.7 * title.chars().count() as f64;
        assert!(end <= WIDTH, "{end}: {title}");
    }

    #[test]
    fn extreme_scenarios_make_charts_too() {
        for outage in [Span::ZERO, Span::from_millis(1), Span::from_days(30)] {
            for pending in [0, 1, 2_000] {
                assert_well_formed(&drawn(pending, outage));
            }
        }
    }

    /// Returns the tops of the bars of each kind: accepted and refused, of posthaste and of the naive sender.
    fn tops(text: &str) -> Vec<Vec<f64>> {
        let paths = text.split(" d=\"").skip(1);
        paths
            .map(|path| {
                let path = &path[..path.find('"').expect("an end")];
                path.split('V')
                    .skip(1)
                    .map(|piece| &piece[..piece.find('H').expect("H")])
                    .map(|y| y.parse().expect("a number"))
                    .collect()
            })
            .collect()
    }

    #[test]
    fn bars_stay_on_their_panel() {
        let tops = tops(&drawn(10_000, Span::from_mins(30)));
        assert_eq!(tops.len(), 4);
        for (ys, top) in tops.iter().zip([TOPS[0], TOPS[0], TOPS[1], TOPS[1]]) {
            assert!(
                ys.iter().all(|y| *y >= top && *y <= top + PANEL_HEIGHT),
                "{ys:?}"
            );
        }
    }

    #[test]
    fn no_accepted_bar_exceeds_the_capacity() {
        let mut scenario = OutageScenario::with_defaults(10_000, Span::from_mins(30));
        scenario.capacity_per_second = 10.0;
        let forecast = forecast(&scenario);
        let chart = Chart::new(&scenario, &forecast, MAX_BUCKETS);
        let tops = tops(&svg(&scenario, &forecast, "", "", ""));
        for (index, panel) in chart.panels.iter().enumerate() {
            let scale = LinearScale::new((panel.highest as f64 * HEADROOM).ceil(), PANEL_HEIGHT);
            let limit = TOPS[index] + PANEL_HEIGHT - scale.position(10.0);
            let accepted = &tops[2 * index];
            assert!(!accepted.is_empty(), "{}", panel.name);
            let beyond = accepted.iter().any(|y| *y < limit - MIN_BAR_HEIGHT);
            assert!(!beyond, "{}: {limit} {accepted:?}", panel.name);
        }
    }
}
