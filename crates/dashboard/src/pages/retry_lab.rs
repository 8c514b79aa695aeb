//! The retry lab: simulates a retry policy before it is used.
//!
//! All inputs are in the URL, so that a result can be shared by its link. The API limits the cost of a
//! simulation; the page names these limits.

use http::StatusCode;
use maud::{Markup, html};
use posthaste_api::policies::MAX_SIMULATED;
use posthaste_api::problem::Problem;
use posthaste_api::route::Verb;
use posthaste_charts::format;
use posthaste_charts::outage::Times;
use posthaste_core::forecast::{MAX_OUTAGE, NAIVE_INTERVAL};
use serde::Deserialize;
use serde_json::{Value, json};

use super::policy_presets::{CUSTOM_POLICY, policy_choices, policy_presets};
use crate::components::chart::{self, ChartText, Column, Marks};
use crate::components::{Field, FieldErrors, PolicyPreview};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{PageHandler, Route, page_route};
use crate::urls::query_string;

pub(super) const PAGES: &[Route<PageHandler>] = &[
    page_route!(Server, "/lab", show),
    page_route!(Tenant, "/lab", show),
];

/// Minimum time range of a chart, in milliseconds.
const MIN_CHART_MS: u64 = 10_000;

/// The inputs of the page.
struct LabInputs {
    preset: String,
    policy: String,
    pending: String,
    outage: String,
    capacity: String,
}

impl LabInputs {
    fn read(request: &PageRequest) -> LabInputs {
        let or_default = |name: &str, default: &str| match request.query(name) {
            "" => default.to_owned(),
            text => text.to_owned(),
        };
        let custom = request.query("policy");
        let default_preset = if custom.is_empty() {
            "recommended"
        } else {
            CUSTOM_POLICY
        };
        LabInputs {
            preset: or_default("preset", default_preset),
            policy: custom.to_owned(),
            pending: or_default("pending", "1000"),
            outage: or_default("outage", "10m"),
            capacity: or_default("capacity", "50/s"),
        }
    }

    /// Returns the chosen policy, or the error in it.
    fn policy(&self) -> Result<Value, FieldErrors> {
        match self.preset.as_str() {
            CUSTOM_POLICY => serde_json::from_str(&self.policy).map_err(|error| {
                let message = match self.policy.is_empty() {
                    true => "enter a policy, or choose a preset above".to_owned(),
                    false => format!("is not valid JSON: {error}"),
                };
                FieldErrors::default().with("policy", message)
            }),
            preset => Ok(json!({"preset": preset})),
        }
    }

    fn simulation_request(&self, policy: Value) -> Value {
        let pending = match self.pending.replace([',', ' '], "").parse::<u64>() {
            Ok(pending) => json!(pending),
            Err(_) => json!(self.pending),
        };
        // A number without a unit is a rate per second.
        let capacity = match self.capacity.parse::<f64>() {
            Ok(per_second) => json!(per_second),
            Err(_) => json!(self.capacity),
        };
        json!({"policy": policy, "pending": pending, "outage": self.outage, "capacity": capacity})
    }
}

/// Maps an API field to a form field. All fields of a policy belong to the form field `policy`.
fn form_field(field: &str) -> Option<&'static str> {
    let own = ["pending", "outage", "capacity"];
    let found = own.into_iter().find(|name| *name == field);
    Some(found.unwrap_or("policy"))
}

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    let inputs = LabInputs::read(&request);
    let presets = policy_presets(&request).await?;
    let page = Page::new(Tab::Lab, "Retry lab")
        .lead(html! { "See what a retry policy does before you use it." });
    let outcome = simulate(&request, &inputs).await?;
    let errors = match &outcome {
        Ok(_) => FieldErrors::default(),
        Err(errors) => errors.clone(),
    };
    let page = page.static_section("inputs", input_form(&request, &inputs, &presets, &errors));
    Ok(match outcome {
        Err(_) => page.with_status(StatusCode::UNPROCESSABLE_ENTITY),
        Ok((policy, recovery)) => page
            .static_section("timeline", timeline(&request, &inputs, &policy))
            .static_section("recovery", recovery),
    }
    .into())
}

/// Explains and simulates the chosen policy, or returns what is wrong with the inputs.
async fn simulate(
    request: &PageRequest,
    inputs: &LabInputs,
) -> Result<Result<(PolicyPreview, Markup), FieldErrors>, Problem> {
    let policy = match inputs.policy() {
        Ok(policy) => policy,
        Err(errors) => return Ok(Err(errors)),
    };
    let call = request.call(Verb::Post, "/v1/policies/preview", Some(policy.clone()));
    let preview: PolicyPreview = match call.await {
        Ok(preview) => preview,
        Err(problem) if problem.errors.is_some() => {
            // All fields of a preview belong to the policy.
            return Ok(Err(FieldErrors::new(&problem, |_| Some("policy"))));
        }
        Err(problem) => return Err(problem),
    };
    let simulation = inputs.simulation_request(policy);
    let call = request.call(Verb::Post, "/v1/policies/simulate", Some(simulation));
    let result: Result<SimulationResult, Problem> = call.await;
    Ok(match result {
        Ok(result) => Ok((preview, result.render())),
        Err(problem) if problem.errors.is_some() => Err(FieldErrors::new(&problem, form_field)),
        // Too many simulations are running at the moment; the visitor can try again.
        Err(problem) if problem.retry_after.is_some() => {
            let busy = html! { div.card { h2 { "Simulated recovery" } p { (problem.detail) } } };
            Ok((preview, busy))
        }
        Err(problem) => return Err(problem),
    })
}

fn input_form(
    request: &PageRequest,
    inputs: &LabInputs,
    presets: &[String],
    errors: &FieldErrors,
) -> Markup {
    let choices: Vec<(&str, &str)> = policy_choices(presets).collect();
    let field = |name, label, hint, value| Field::new(name, label, hint, value, errors);
    let max_pending = format!("At most {}.", format::count(u64::from(MAX_SIMULATED)));
    let max_outage = format!(
        "For example 30m or 6h; at most {}.",
        format::duration(MAX_OUTAGE.as_millis())
    );
    html! {
        (errors.summary())
        form.card action=(request.scope_link("/lab")) {
            div.columns {
                div {
                    (field("preset", "Policy", "", &inputs.preset).choice(&choices))
                    (field("policy", "Policy as JSON", "Used only if “Custom JSON” is selected above.", &inputs.policy).lines(8))
                }
                div {
                    (field("pending", "Deliveries due when the outage starts", &max_pending, &inputs.pending).line("text"))
                    (field("outage", "Outage duration", &max_outage, &inputs.outage).line("text"))
                    (field("capacity", "Receiver capacity after the outage", "Requests per second or minute, for example 50/s or 600/m.", &inputs.capacity).line("text"))
                    div.actions { button.primary type="submit" { "Simulate" } }
                }
            }
        }
    }
}

fn timeline(request: &PageRequest, inputs: &LabInputs, policy: &PolicyPreview) -> Markup {
    let written = serde_json::to_string_pretty(&without_preset(&policy.policy)).unwrap_or_default();
    let query = query_string([
        ("preset", CUSTOM_POLICY),
        ("policy", written.as_str()),
        ("pending", inputs.pending.as_str()),
        ("outage", inputs.outage.as_str()),
        ("capacity", inputs.capacity.as_str()),
    ]);
    html! {
        div.card {
            h2 { "Retry schedule" }
            (policy.render())
            details #written-out {
                summary { "Policy as JSON" }
                pre tabindex="0" { code { (written) } }
                p { a href={ (request.scope_link("/lab")) (query) } { "Edit" } }
            }
        }
    }
}

/// Returns the policy without the name of its preset, which would contradict a policy that is written out.
fn without_preset(policy: &Value) -> Value {
    let mut policy = policy.clone();
    if let Some(policy) = policy.as_object_mut() {
        policy.remove("preset");
    }
    policy
}

/// The API's answer to a simulated outage.
#[derive(Deserialize)]
struct SimulationResult {
    outage_ms: u64,
    capacity_per_second: f64,
    limits: Limits,
    posthaste: SenderOutcome,
    naive: SenderOutcome,
    words: String,
}

#[derive(Deserialize)]
struct Limits {
    max_in_flight: u32,
    rate_limit: Rate,
}

#[derive(Deserialize)]
struct Rate {
    per_second: f64,
    burst: u32,
}

#[derive(Deserialize)]
struct SenderOutcome {
    attempts: u64,
    delivered: u64,
    dead_lettered: u64,
    peak_arrivals_per_second: u64,
    drained_ms: u64,
    series: Vec<Bucket>,
}

#[derive(Deserialize)]
struct Bucket {
    from_ms: u64,
    to_ms: u64,
    peak_per_second: u64,
    peak_failed: u64,
}

impl SenderOutcome {
    fn end_ms(&self) -> u64 {
        self.series.last().map_or(0, |bucket| bucket.to_ms)
    }
}

impl SimulationResult {
    /// Returns the end of the charts' time axis: when posthaste is done, or when the naive sender is done if that is
    /// not much later.
    fn chart_end_ms(&self) -> u64 {
        let (own_ms, naive_ms) = (self.posthaste.end_ms(), self.naive.end_ms());
        let centre_ms = MIN_CHART_MS
            .max(self.outage_ms + self.outage_ms / 4)
            .max(own_ms + own_ms / 8);
        match naive_ms <= 2 * centre_ms {
            true => centre_ms.max(naive_ms),
            false => centre_ms,
        }
    }

    fn render(&self) -> Markup {
        let times = Times::new(
            self.outage_ms,
            self.posthaste.drained_ms,
            self.naive.drained_ms,
        );
        let every = format::every(NAIVE_INTERVAL.as_millis());
        let limits = format!(
            "posthaste uses the default limits of an endpoint: {} in flight, {}, burst {}.",
            format::count(u64::from(self.limits.max_in_flight)),
            format::rate(self.limits.rate_limit.per_second),
            format::count(u64::from(self.limits.rate_limit.burst)),
        );
        html! {
            div.card {
                h2 { "Simulated recovery" }
                p { (self.words) }
                (self.panel("posthaste", &self.posthaste, &times.posthaste))
                (self.panel("Naive sender", &self.naive, &times.naive))
                p.hint {
                    "Each bar shows the busiest second of its interval; each chart has its own scale. The grey area is the outage, and the line is the receiver's capacity. "
                    "The naive sender retries every " (every) ", without jitter and without limits. " (limits)
                }
                (self.table(&times))
            }
        }
    }

    fn panel(&self, name: &str, course: &SenderOutcome, drained: &str) -> Markup {
        let end_ms = self.chart_end_ms();
        let share = |ms: u64| (ms as f64 / end_ms as f64).min(1.0);
        let visible = course
            .series
            .iter()
            .filter(|bucket| bucket.from_ms < end_ms);
        let columns: Vec<Column> = visible
            .map(|bucket| Column {
                from: share(bucket.from_ms),
                to: share(bucket.to_ms),
                good: bucket.peak_per_second.saturating_sub(bucket.peak_failed) as f64,
                bad: bucket.peak_failed as f64,
            })
            .collect();
        let highest = columns
            .iter()
            .map(|it| it.good + it.bad)
            .fold(0.0, f64::max);
        let continuation = match course.end_ms() > end_ms {
            true => format!("; continues until {drained}"),
            false => String::new(),
        };
        let description = format!(
            "Peak after the outage: {} requests per second{continuation}.",
            format::count(course.peak_arrivals_per_second)
        );
        let marks = Marks {
            horizontal_line: Some(self.capacity_per_second),
            shaded_until: Some(share(self.outage_ms)),
        };
        let title = format!("{name}: arrivals per second{continuation}");
        chart::columns(
            &columns,
            highest,
            marks,
            ChartText {
                title: &title,
                description: &description,
                max_label: &format!("{}/s", format::count(highest as u64)),
                legend: &[("good", "accepted"), ("bad", "rejected or failed")],
                left_label: html! { "outage starts" },
                right_label: html! { (format::duration(end_ms)) " later" },
            },
        )
    }

    fn table(&self, times: &Times) -> Markup {
        let (own, naive) = (&self.posthaste, &self.naive);
        let count = format::count;
        let rows = [
            ("Attempts", count(own.attempts), count(naive.attempts)),
            ("Delivered", count(own.delivered), count(naive.delivered)),
            (
                "Dead-lettered",
                count(own.dead_lettered),
                count(naive.dead_lettered),
            ),
            (
                "Peak requests per second after recovery",
                count(own.peak_arrivals_per_second),
                count(naive.peak_arrivals_per_second),
            ),
            (
                "Drained after",
                times.posthaste.clone(),
                times.naive.clone(),
            ),
        ];
        html! {
            table.stack {
                caption { "Summary" }
                thead { tr { td {} th scope="col" { "posthaste" } th scope="col" { "Naive sender" } } }
                tbody { @for (name, own, naive) in &rows { tr {
                    th scope="row" { (name) }
                    td data-label="posthaste" { (own) }
                    td data-label="Naive sender" { (naive) }
                } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(buckets: &[(u64, u64)], drained_ms: u64) -> Value {
        let series: Vec<Value> = buckets
            .iter()
            .map(|(to_ms, peak)| {
                json!({"from_ms": to_ms - 1_000, "to_ms": to_ms, "arrivals": peak, "failed": 0,
                    "peak_per_second": peak, "peak_failed": 0})
            })
            .collect();
        json!({"attempts": 10, "delivered": 10, "dead_lettered": 0, "dead_letter_reasons": {},
            "peak_arrivals_per_second": 50, "drained_ms": drained_ms, "series": series})
    }

    fn result(own: Value, naive: Value) -> SimulationResult {
        let result = json!({
            "policy": {}, "pending": 10, "outage_ms": 60_000, "capacity_per_second": 50.0, "seed": 1,
            "limits": {"max_in_flight": 10, "rate_limit": {"per_second": 50.0, "burst": 100}},
            "posthaste": own, "naive": naive, "words": "All went well.",
        });
        serde_json::from_value(result).expect("a valid result")
    }

    #[test]
    fn both_charts_share_an_axis_and_a_cut_is_mentioned() {
        let near = result(
            course(&[(80_000, 50)], 80_000),
            course(&[(120_000, 50)], 120_000),
        );
        assert_eq!(near.chart_end_ms(), 120_000);
        assert!(!near.render().0.contains("continues until"));
        let far = result(
            course(&[(80_000, 50)], 80_000),
            course(&[(900_000, 50)], 900_000),
        );
        assert_eq!(far.chart_end_ms(), 90_000);
        assert!(far.render().0.contains("continues until 15m"));
    }

    #[test]
    fn inputs_are_converted_to_the_simulation_request() {
        let inputs = LabInputs {
            preset: CUSTOM_POLICY.to_owned(),
            policy: "{\"preset\": \"swift\"}".to_owned(),
            pending: "10,000".to_owned(),
            outage: "30m".to_owned(),
            capacity: "2.5".to_owned(),
        };
        let policy = inputs.policy().expect("the policy is JSON");
        assert_eq!(
            inputs.simulation_request(policy),
            json!({"policy": {"preset": "swift"}, "pending": 10_000, "outage": "30m", "capacity": 2.5})
        );
        let invalid = LabInputs {
            policy: "{".to_owned(),
            pending: "many".to_owned(),
            ..inputs
        };
        let errors = invalid.policy().expect_err("the policy is not JSON");
        assert!(
            errors
                .message("policy")
                .is_some_and(|it| it.contains("not valid JSON"))
        );
        assert_eq!(
            invalid.simulation_request(Value::Null)["pending"],
            json!("many")
        );
        assert_eq!(form_field("policy.jitter.kind"), Some("policy"));
        assert_eq!(form_field("outage"), Some("outage"));
    }
}
