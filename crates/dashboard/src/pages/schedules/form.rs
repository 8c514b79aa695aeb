//! The form of a schedule: its values as they were typed, and the documents for the API.

use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_api::resources::{Headers, Schedule};
use posthaste_core::schedule::{DEFAULT_ZONE, MissedRuns, Overlap};
use serde_json::{Map, Value, json};

use crate::components::FieldErrors;
use crate::form::Form;
use crate::pages::time_input::parse_absolute_time;

/// Name of the form field that says that the stored headers are not shown.
pub(super) const LACKS_HEADERS_FIELD: &str = "lacks_headers";
/// Advice for a changed request whose stored headers cannot be read.
const ENTER_HEADERS: &str =
    "A change of the request would delete its headers, so enter all of them again.";

/// The values of the form.
#[derive(Clone, Default)]
pub(super) struct ScheduleForm {
    pub(super) id: String,
    pub(super) name: String,
    /// `cron`, `every` or `at`.
    pub(super) kind: String,
    pub(super) cron: String,
    pub(super) every: String,
    pub(super) at: String,
    pub(super) timezone: String,
    /// `event` or `request`.
    pub(super) target: String,
    pub(super) event_type: String,
    pub(super) url: String,
    pub(super) method: String,
    pub(super) headers: String,
    /// The stored headers could not be read when the form was shown, so it shows none.
    pub(super) lacks_headers: bool,
    pub(super) payload: String,
    pub(super) starts_at: String,
    pub(super) ends_at: String,
    pub(super) max_runs: String,
    pub(super) overlap: String,
    pub(super) missed: String,
}

impl ScheduleForm {
    /// Returns the form of a new schedule.
    pub(super) fn new() -> ScheduleForm {
        ScheduleForm {
            kind: "cron".to_owned(),
            cron: "0 9 * * MON-FRI".to_owned(),
            timezone: DEFAULT_ZONE.to_owned(),
            target: "event".to_owned(),
            method: "POST".to_owned(),
            payload: "{}".to_owned(),
            overlap: "allow".to_owned(),
            missed: "run_once".to_owned(),
            ..ScheduleForm::default()
        }
    }

    /// Reads the form that was sent.
    pub(super) fn read(sent: &Form) -> ScheduleForm {
        let text = |name: &str| sent.text(name).to_owned();
        ScheduleForm {
            id: text("id"),
            name: text("name"),
            kind: text("kind"),
            cron: text("cron"),
            every: text("every"),
            at: text("at"),
            timezone: text("timezone"),
            target: text("target"),
            event_type: text("event_type"),
            url: text("url"),
            method: text("method"),
            headers: text("headers"),
            lacks_headers: sent.filled(LACKS_HEADERS_FIELD).is_some(),
            payload: text("payload"),
            starts_at: text("starts_at"),
            ends_at: text("ends_at"),
            max_runs: text("max_runs"),
            overlap: text("overlap"),
            missed: text("missed"),
        }
    }

    /// Returns the form of an existing schedule.
    pub(super) fn of(schedule: &Schedule) -> ScheduleForm {
        let mut form = ScheduleForm {
            id: schedule.id.clone(),
            name: schedule.name.clone(),
            cron: schedule.cron.clone().unwrap_or_default(),
            every: schedule.every.clone().unwrap_or_default(),
            at: schedule.at.as_deref().unwrap_or_default().join("\n"),
            timezone: schedule.timezone.clone(),
            starts_at: schedule.starts_at.clone().unwrap_or_default(),
            ends_at: schedule.ends_at.clone().unwrap_or_default(),
            max_runs: schedule
                .max_runs
                .map_or_else(String::new, |max| max.to_string()),
            payload: String::new(),
            ..ScheduleForm::new()
        };
        form.kind = match (&schedule.cron, &schedule.every) {
            (Some(_), _) => "cron",
            (None, Some(_)) => "every",
            (None, None) => "at",
        }
        .to_owned();
        form.overlap = match schedule.overlap {
            Overlap::Allow => "allow",
            Overlap::Skip => "skip",
        }
        .to_owned();
        form.missed = match schedule.missed {
            MissedRuns::RunOnce => "run_once",
            MissedRuns::Skip => "skip",
            MissedRuns::RunAll => "run_all",
        }
        .to_owned();
        if let Some(event) = &schedule.event {
            form.event_type.clone_from(&event.r#type);
            form.payload = event
                .payload
                .as_ref()
                .map_or_else(String::new, |raw| raw.get().to_owned());
        }
        if let Some(request) = &schedule.request {
            form.target = "request".to_owned();
            form.url.clone_from(&request.url);
            form.method.clone_from(&request.method);
            form.headers = header_lines(&request.headers);
            form.lacks_headers = schedule.error.is_some();
            form.payload = request
                .payload
                .as_ref()
                .map_or_else(String::new, |raw| raw.get().to_owned());
        }
        form
    }

    /// Returns the fields of the timing for the API.
    pub(super) fn timing(&self) -> Map<String, Value> {
        let mut document = Map::new();
        let (name, value) = match self.kind.as_str() {
            "every" => ("every", json!(self.every)),
            "at" => {
                let lines = self
                    .at
                    .lines()
                    .map(str::trim)
                    .filter(|line| !line.is_empty());
                ("at", json!(lines.map(time).collect::<Vec<_>>()))
            }
            _ => ("cron", json!(self.cron)),
        };
        document.insert(name.to_owned(), value);
        let zone = Some(&self.timezone).filter(|zone| !zone.is_empty());
        document.insert("timezone".to_owned(), json!(zone));
        document
    }

    /// Returns the document of a new schedule, or of a change of `current`. Fields that the form does not show keep their
    /// values.
    pub(super) fn document(&self, current: Option<&Schedule>) -> Result<Value, FieldErrors> {
        let mut errors = FieldErrors::default();
        let mut document = self.timing();
        let optional = |text: &str| match text {
            "" => Value::Null,
            text => json!(text),
        };
        if current.is_none() && !self.id.is_empty() {
            document.insert("id".to_owned(), json!(self.id));
        }
        document.insert("name".to_owned(), optional(&self.name));
        document.insert("overlap".to_owned(), optional(&self.overlap));
        document.insert("missed".to_owned(), optional(&self.missed));
        document.insert("starts_at".to_owned(), optional(&time(&self.starts_at)));
        document.insert("ends_at".to_owned(), optional(&time(&self.ends_at)));
        let max_runs = match (self.max_runs.as_str(), self.max_runs.parse::<u64>()) {
            ("", _) => Value::Null,
            (_, Ok(count)) => json!(count),
            (text, Err(_)) => json!(text),
        };
        document.insert("max_runs".to_owned(), max_runs);
        match self.keeps_unreadable_headers(current) {
            None => {}
            // Without `request` in the document it is not changed, and keeps its headers.
            Some((true, _)) => return Ok(Value::Object(document)),
            Some((false, error)) => {
                let message = format!("{error}. {ENTER_HEADERS}");
                return Err(errors.with("headers", message));
            }
        }
        let (target, mut fields) = self.target_fields(current);
        if !self.payload.is_empty() {
            match serde_json::from_str::<Value>(&self.payload) {
                Ok(payload) => {
                    fields.remove("body_base64");
                    fields.remove("content_type");
                    fields.insert("payload".to_owned(), payload);
                }
                Err(error) => {
                    errors = errors.with("payload", format!("is not valid JSON: {error}"));
                }
            }
        }
        document.insert(target.to_owned(), Value::Object(fields));
        match errors.is_empty() {
            true => Ok(Value::Object(document)),
            false => Err(errors),
        }
    }

    /// If the stored headers of the request cannot be read and none were typed: returns whether the request stays the same, and
    /// the error of the headers. Saving the request would delete them.
    fn keeps_unreadable_headers<'a>(
        &self,
        current: Option<&'a Schedule>,
    ) -> Option<(bool, &'a str)> {
        let current = current?;
        let error = current.error.as_deref()?;
        let is_request = current.request.is_some() && self.target == "request";
        if !is_request || !self.headers.trim().is_empty() {
            return None;
        }
        let stored = ScheduleForm::of(current);
        // Browsers send CR LF.
        let payload = self.payload.replace("\r\n", "\n");
        let typed = (&self.url, &self.method, &payload);
        let is_same = typed == (&stored.url, &stored.method, &stored.payload);
        Some((is_same, error))
    }

    /// Returns the target without the payload of the form.
    fn target_fields(&self, current: Option<&Schedule>) -> (&'static str, Map<String, Value>) {
        let known = current.and_then(|current| serde_json::to_value(current).ok());
        let of_kind = |kind: &str| {
            let known = known.as_ref().and_then(|known| known.get(kind));
            let mut fields = known
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default();
            fields.remove("payload");
            fields
        };
        match self.target.as_str() {
            "request" => {
                let mut fields = of_kind("request");
                fields.insert("url".to_owned(), json!(self.url));
                fields.insert("method".to_owned(), json!(self.method));
                // They may be readable by now, or on this node.
                if !self.lacks_headers || !self.headers.trim().is_empty() {
                    fields.insert("headers".to_owned(), header_object(&self.headers));
                }
                ("request", fields)
            }
            _ => {
                let mut fields = of_kind("event");
                fields.insert("type".to_owned(), json!(self.event_type));
                ("event", fields)
            }
        }
    }
}

fn header_lines(headers: &Headers) -> String {
    let lines = headers
        .0
        .iter()
        .map(|(name, value)| format!("{name}: {value}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn header_object(lines: &str) -> Value {
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        (name.trim().to_owned(), json!(value.trim()))
    });
    Value::Object(headers.collect())
}

/// Maps an API field to a form field.
fn form_field(field: &str) -> Option<&'static str> {
    const SAME: [&str; 11] = [
        "id",
        "name",
        "cron",
        "every",
        "timezone",
        "overlap",
        "missed",
        "starts_at",
        "ends_at",
        "max_runs",
        "at",
    ];
    match field {
        "event.type" => Some("event_type"),
        "event.payload" | "request.payload" => Some("payload"),
        "request.url" => Some("url"),
        "request.method" => Some("method"),
        _ if field.starts_with("request.headers") => Some("headers"),
        _ if field.starts_with("at[") => Some("at"),
        _ => SAME.into_iter().find(|name| *name == field),
    }
}

/// Returns the errors that the API found in the form. Other problems are shown on a page of their own.
pub(super) fn errors_in_form(problem: Problem) -> Result<FieldErrors, Problem> {
    if problem.code == Code::AlreadyExists {
        return Ok(FieldErrors::default().with("id", "is already in use"));
    }
    let has_own_page = [Code::NotFound, Code::Unauthorized, Code::Forbidden];
    if has_own_page.contains(&problem.code) {
        return Err(problem);
    }
    Ok(FieldErrors::new(&problem, form_field))
}

/// Converts a typed time. The API reports a text that is none.
fn time(text: &str) -> String {
    parse_absolute_time(text).unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_converted_to_the_api_document() {
        let sent = Form::of(&[
            ("id", "nightly"),
            ("kind", "at"),
            ("cron", "ignored"),
            ("at", " 2027-01-01 09:00 \r\n\r\n2027-02-01T09:00:00Z\r\n"),
            ("timezone", ""),
            ("target", "request"),
            ("url", "https://a.example/"),
            ("method", "PUT"),
            ("headers", "X-A: 1\r\nX-B:2"),
            ("payload", "[1]"),
            ("max_runs", "3"),
            ("overlap", "skip"),
            ("missed", "run_all"),
            ("ends_at", "2028-01-01 00:00"),
        ]);
        let expected = json!({
            "id": "nightly", "name": null, "at": ["2027-01-01T09:00:00.000Z", "2027-02-01T09:00:00.000Z"], "timezone": null,
            "overlap": "skip", "missed": "run_all", "starts_at": null, "ends_at": "2028-01-01T00:00:00.000Z", "max_runs": 3,
            "request": {"url": "https://a.example/", "method": "PUT", "headers": {"X-A": "1", "X-B": "2"}, "payload": [1]},
        });
        assert_eq!(ScheduleForm::read(&sent).document(None), Ok(expected));
    }

    #[test]
    fn headers_that_cannot_be_read_are_not_deleted() {
        let current: Schedule = serde_json::from_value(json!({
            "id": "n", "name": "N", "every": "1h", "timezone": "UTC",
            "request": {"url": "https://a.example/", "method": "POST", "headers": {}, "payload": {"a": 1}},
            "overlap": "allow", "missed": "skip", "starts_at": null, "ends_at": null, "max_runs": null,
            "status": "active", "next_run_at": null, "last_run_at": null, "run_count": 0,
            "created_at": "2026-11-15T12:00:00.000Z", "description": "Every hour", "failed_runs": 0,
            "error": "the headers of the request cannot be decrypted; set the request again",
        }))
        .expect("a schedule");
        let mut form = ScheduleForm::of(&current);
        form.name = "Renamed".to_owned();
        let document = form.document(Some(&current)).expect("valid");
        assert_eq!(document["name"], "Renamed");
        assert_eq!(document.get("request"), None);
        form.url = "https://b.example/".to_owned();
        let errors = form
            .document(Some(&current))
            .expect_err("headers are missing");
        let message = errors.message("headers").expect("an error");
        assert!(message.contains("cannot be decrypted") && message.contains(ENTER_HEADERS));
        // The node that saves the form can read them.
        let mut readable = current.clone();
        readable.error = None;
        let headers = [("X-B".to_owned(), "2".to_owned())];
        readable.request.as_mut().expect("a request").headers = Headers(headers.into());
        let document = form.document(Some(&readable)).expect("valid");
        assert_eq!(document["request"]["headers"], json!({"X-B": "2"}));
        form.headers = "X-A: 1".to_owned();
        let document = form.document(Some(&current)).expect("valid");
        assert_eq!(document["request"]["headers"], json!({"X-A": "1"}));
        form.target = "event".to_owned();
        let document = form.document(Some(&current)).expect("valid");
        assert!(document["event"].is_object());
    }

    #[test]
    fn a_change_keeps_what_the_form_does_not_show() {
        let current: Schedule = serde_json::from_value(json!({
            "id": "n", "name": "N", "every": "1h", "timezone": "UTC",
            "request": {
                "url": "https://a.example/", "method": "POST", "headers": {"X-A": "1"}, "body_base64": "AA==",
                "content_type": "a/b", "timeout": "5s", "retry_policy": {"preset": "swift"},
            },
            "overlap": "allow", "missed": "skip", "starts_at": null, "ends_at": null, "max_runs": null,
            "status": "active", "next_run_at": null, "last_run_at": null, "run_count": 0,
            "created_at": "2026-11-15T12:00:00.000Z", "description": "Every hour", "failed_runs": 0,
        }))
        .expect("a schedule");
        let mut form = ScheduleForm::of(&current);
        let document = form.document(Some(&current)).expect("valid");
        let mut same = serde_json::to_value(&current).expect("JSON")["request"].clone();
        assert_eq!(document["request"], same);
        assert_eq!(
            (&document["every"], document.get("id")),
            (&json!("1h"), None)
        );
        form.payload = "{}".to_owned();
        let document = form.document(Some(&current)).expect("valid");
        let fields = same.as_object_mut().expect("an object");
        fields.remove("body_base64");
        fields.remove("content_type");
        fields.insert("payload".to_owned(), json!({}));
        assert_eq!(document["request"], same);
        form.payload = "{".to_owned();
        let errors = form.document(Some(&current)).expect_err("not JSON");
        assert!(
            errors
                .message("payload")
                .is_some_and(|it| it.contains("not valid JSON"))
        );
    }
}
