//! A deployment that is reported though it is not among the ones that meet the SLO.
//!
//! Knows: the form of such a result. Knows nothing about how it was judged.

use super::feasibility::SearchStage;
use serde::Serialize;

/// A deployment that misses the SLO, or that the user asked about by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Near {
    /// Description of the deployment.
    pub deployment: String,
    /// Total number of accelerators.
    pub count: u64,
    /// Dollars per hour; `None` if the catalog has no price.
    pub cost_per_hour: Option<f64>,
    /// The stage that judged the deployment; `None` if it was not judged.
    pub stage: Option<SearchStage>,
    /// Text of the result.
    pub reason: String,
    /// Found value over accepted value; `None` if the deployment meets the SLO or does not run.
    pub factor: Option<f64>,
    /// Rate in requests per second at which the deployment meets the SLO, the first of a few that are tried; of the nearest miss of a
    /// search in which none meets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meets_at_requests_per_s: Option<f64>,
    /// Number of users at which the deployment meets the SLO, where the load has users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meets_at_users: Option<u64>,
}
