//! The retry policies to choose from: presets, or a custom policy.

use posthaste_api::problem::Problem;
use serde::Deserialize;

use crate::page_request::PageRequest;

/// The choice of a custom policy.
pub(super) const CUSTOM_POLICY: &str = "own";

#[derive(Deserialize)]
struct Presets {
    data: Vec<Preset>,
}

#[derive(Deserialize)]
struct Preset {
    name: String,
}

/// Loads the names of the presets.
pub(super) async fn policy_presets(request: &PageRequest) -> Result<Vec<String>, Problem> {
    let presets: Presets = request.get("/v1/policies").await?;
    Ok(presets.data.into_iter().map(|preset| preset.name).collect())
}

/// Returns the choices of a policy: values and labels, with the custom policy last.
pub(super) fn policy_choices(presets: &[String]) -> impl Iterator<Item = (&str, &str)> {
    let presets = presets.iter().map(|name| (name.as_str(), name.as_str()));
    presets.chain([(CUSTOM_POLICY, "Custom JSON")])
}
