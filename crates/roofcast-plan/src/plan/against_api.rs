//! The best deployment against an API that is paid by the token.
//!
//! Knows: an API's bill for the load is tokens × prices; a deployment costs its price per hour, at any rate that it
//! carries. Knows nothing about the quality or the latency of an API.

use super::demand::TrafficDemand;
use roofcast_ask::spec::ApiPrices;
use serde::Serialize;

/// The best deployment against an API's prices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgainstApi {
    /// The API's dollars per million prompt tokens.
    pub input: f64,
    /// The API's dollars per million output tokens.
    pub output: f64,
    /// The API's dollars per million prompt tokens that it has in its cache; `None` if they cost the price of others.
    pub cached: Option<f64>,
    /// The API's dollars per request of the load, on average.
    pub api_dollars_per_request: f64,
    /// Requests per second of the load.
    pub requests_per_s: f64,
    /// True if the deployment costs less than the API under the load.
    pub beats: bool,
    /// Requests per second at which the two cost as much; above, the deployment costs less.
    pub from_requests_per_s: f64,
    /// True if the deployment meets the SLO at that rate; `None` if nobody tried so high a rate.
    pub reached: Option<bool>,
}

impl AgainstApi {
    /// A deployment of `per_hour` dollars against `prices` at `rate` requests per second. `most` is the highest rate at
    /// which it meets the SLO, and true if it misses the SLO above.
    pub(super) fn at(
        prices: ApiPrices,
        per_hour: f64,
        demand: &TrafficDemand,
        (rate, most): (f64, Option<(f64, bool)>),
    ) -> AgainstApi {
        let hits = demand.input - demand.uncached;
        let cached = prices.cached.unwrap_or(prices.input);
        let api = (demand.uncached * prices.input + hits * cached + demand.output * prices.output) / 1e6;
        let from = per_hour / 3600.0 / api;
        AgainstApi {
            input: prices.input,
            output: prices.output,
            cached: prices.cached,
            api_dollars_per_request: api,
            requests_per_s: rate,
            beats: rate > from,
            from_requests_per_s: from,
            reached: most.and_then(|(most, all)| (all || most >= from).then_some(most >= from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::spec::Spec;

    /// 1000 prompt and 200 output tokens cost (1000 · 0.28 + 200 · 0.42) / 10⁶ = $0.000364 at an API. A machine of $3.60 an
    /// hour costs $0.001 a second, as much as 0.001 / 0.000364 = 2.747 requests. With a price of 0.028 for cached prompts
    /// nothing changes, since no prompt shares tokens.
    #[test]
    fn an_api_by_hand() {
        let spec =
            "[model]\nname = \"llama-3.1-8b\"\n[workload]\nrate = 2\ninput_len = 1000\noutput_len = 200\n";
        let workload = Spec::parse("spec", spec).unwrap().workload.unwrap();
        let demand = TrafficDemand::of(&workload, "spec").unwrap();
        let prices = ApiPrices { input: 0.28, output: 0.42, cached: Some(0.028) };
        let against = |most| AgainstApi::at(prices, 3.6, &demand, (2.0, most));
        let api = against(Some((5.0, true)));
        assert!((api.api_dollars_per_request - 0.000_364).abs() < 1e-12, "{api:?}");
        assert!((api.from_requests_per_s - 1.0 / 0.364).abs() < 1e-9 && !api.beats, "{api:?}");
        assert_eq!(api.reached, Some(true));
        // 2.5 requests/s are fewer than 2.747; if more was not tried, nobody knows.
        assert_eq!([true, false].map(|all| against(Some((2.5, all))).reached), [Some(false), None]);
        assert_eq!(against(None).reached, None);
    }
}
