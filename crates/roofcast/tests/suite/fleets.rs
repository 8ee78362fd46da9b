//! Replicas that are more than one accelerator, and fleets that are more than equal replicas.

use super::engine::{records, same, schedulers, served, workloads};
use super::support::{catalog, model};
use proptest::prelude::*;
use roofcast::deployment::{Deployment, Options};
use roofcast::parallelism::Request;
use roofcast::spec::EngineSpec;
use std::sync::Arc;

const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";

fn deployment(parallelism: Request, engine: EngineSpec) -> Deployment {
    let accelerator = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
    let options = Options { parallelism, engine, ..Options::default() };
    Deployment::resolve(model(LLAMA), accelerator, &options).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn leaping_is_stepping_through_stages(workload in workloads(), spec in schedulers(), pp in 2_u64..5) {
        let deployment = deployment(Request { pp: Some(pp), ..Request::default() }, spec);
        let (stepping, leaping) = (served(&deployment, &workload, false), served(&deployment, &workload, true));
        same(records(&stepping), records(&leaping));
        let (a, b) = (stepping.replicas[0].tally(), leaping.replicas[0].tally());
        prop_assert_eq!((a.steps, &a.itl, &a.decodes, a.mixed), (b.steps, &b.itl, &b.decodes, b.mixed));
    }
}
