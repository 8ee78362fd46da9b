//! llama.cpp's slots: requests share a cache or have equal parts, and a shared cache that overflows ends them all.

use super::runs::{deployment, records, same, same_over_time, served, workloads};
use proptest::prelude::*;
use roofcast::record::Outcome;
use roofcast::spec::{EngineSpec, LlamaCppSpec};
use roofcast::workload::Workload;

/// A server with `n_ctx` cells, shared unless `slots` is set.
fn server(n_ctx: u64, slots: Option<u64>, kv_unified: Option<bool>) -> EngineSpec {
    let own = LlamaCppSpec { n_ctx: Some(n_ctx), kv_unified, ..LlamaCppSpec::default() };
    EngineSpec {
        name: Some("llama.cpp".into()),
        max_num_seqs: slots,
        llama_cpp: own,
        ..EngineSpec::default()
    }
}

/// Requests that all arrive at 0, with `lengths` of prompt and output.
fn at_once(lengths: &[[u64; 2]]) -> Workload {
    let keys = "[workload]\narrivals = { kind = \"trace\", path = \"t.csv\" }\n";
    let mut workload = roofcast::Spec::parse("test", keys).unwrap().workload.unwrap();
    let rows: String = lengths.iter().map(|[input, output]| format!("0,{input},{output}\n")).collect();
    let text = format!("arrival_s,input_len,output_len\n{rows}");
    workload.load("test", |_| Ok::<_, roofcast::Error>(text.clone())).unwrap();
    workload
}

fn outcomes(engine: EngineSpec, lengths: &[[u64; 2]]) -> Vec<Outcome> {
    let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", engine);
    let fleet = served(&deployment, &at_once(lengths), true);
    assert!(fleet.replicas[0].is_empty() && fleet.replicas[0].blocks().0 == 0);
    records(&fleet).iter().map(|record| record.outcome).collect()
}

/// As observed in llama-server b11549 with `-c 2048` and four requests of 700 and 700 tokens at once: each is within
/// 2048, 4 · 700 is not, and all four end with an error; one alone succeeds. With `-np 4` a slot has 512 tokens and each
/// is refused. A fifth request that waited for a slot is served.
#[test]
fn a_shared_cache_that_overflows_ends_every_running_request() {
    use Outcome::{Aborted, Completed, Refused};
    let request = [700, 700];
    assert_eq!(outcomes(server(2048, None, None), &[request; 4]), [Aborted; 4]);
    assert_eq!(outcomes(server(2048, None, None), &[request]), [Completed]);
    assert_eq!(outcomes(server(2048, Some(4), None), &[request; 4]), [Refused; 4]);
    let five = outcomes(server(2048, Some(4), Some(true)), &[request; 5]);
    assert_eq!(five, [Aborted, Aborted, Aborted, Aborted, Completed]);
    // Two of 700 + 324 tokens are 2048 together: the last token of an answer is never cached.
    assert_eq!(outcomes(server(2048, None, None), &[[700, 325]; 2]), [Completed; 2]);
    assert_eq!(outcomes(server(2048, None, None), &[[700, 326]; 2]), [Aborted; 2]);
}

/// Four requests of 21,000 tokens in 32,768 shared cells: the second prompt overflows them, and requests three and four,
/// which have slots already, end as well.
#[test]
fn a_prompt_that_overflows_ends_requests_without_a_cell() {
    let long = [[21_000, 100]; 4];
    assert_eq!(outcomes(server(32_768, Some(4), Some(true)), &long), [Outcome::Aborted; 4]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Leaping is stepping where caches overflow, nothing is lost, and every cell is free in the end.
    #[test]
    fn leaping_is_stepping_in_slots(
        workload in workloads(),
        n_ctx in 900_u64..5000,
        slots in proptest::option::of(1_u64..9),
        unified in proptest::option::of(any::<bool>()),
        budget in 16_u64..2048,
    ) {
        let engine = EngineSpec { max_num_batched_tokens: Some(budget), ..server(n_ctx, slots, unified) };
        let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", engine);
        let mut stepping = served(&deployment, &workload, false);
        let mut leaping = served(&deployment, &workload, true);
        same_over_time(&mut stepping, &mut leaping);
        same(records(&stepping), records(&leaping));
        let results = &leaping.results;
        prop_assert_eq!(results.completed + results.refused + results.overflowed, workload.requests.unwrap());
        prop_assert!(leaping.replicas[0].is_empty() && leaping.replicas[0].blocks().0 == 0);
        let unshared = slots.is_some() && unified != Some(true) || unified == Some(false);
        prop_assert!(!unshared || results.overflowed == 0);
    }
}
