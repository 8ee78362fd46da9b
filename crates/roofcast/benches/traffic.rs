//! Speed of drawing requests: `cargo bench --bench traffic`. CPU time of this process; quote medians.

#![allow(missing_docs, clippy::unwrap_used)]

use divan::{Bencher, counter::ItemsCount};
use roofcast::{Spec, workload::Traffic};

fn main() {
    divan::main();
}

const LOGNORMALS: &str = "[workload]
requests = 100_000
input_len = { kind = \"lognormal\", mu = 6.9, sigma = 0.7 }
output_len = { kind = \"lognormal\", mu = 5.3, sigma = 0.7 }
";

/// 100,000 requests drawn and dropped.
#[divan::bench(args = [
    "kind = \"constant\"\nrate = 10.0",
    "kind = \"poisson\"\nrate = 10.0",
    "kind = \"gamma\"\nrate = 10.0\nburstiness = 0.5",
])]
fn lognormal_requests(bencher: Bencher, arrivals: &str) {
    let spec = Spec::parse("bench", &format!("{LOGNORMALS}[workload.arrivals]\n{arrivals}\n")).unwrap();
    let traffic = Traffic::new(&spec.workload.unwrap(), "bench").unwrap();
    bencher.counter(ItemsCount::new(100_000_u64)).with_inputs(|| traffic.clone()).bench_local_values(
        |mut t| {
            let mut tokens = 0_u64;
            while let Some(request) = t.next() {
                tokens += u64::from(request.input_len);
            }
            tokens
        },
    );
}
