//! x
#![allow(missing_docs, clippy::all, clippy::print_stdout, clippy::unwrap_used)]
use roofcast::deployment::{Deployment, Options};
use roofcast::engine::{
    Engine, clock::Ticks, config::*, decodes::*, price::Price, queue::Order, state::Arrival,
};
use roofcast::scheduler::Policy;
use roofcast::simulate::*;
use roofcast::{Catalog, model, spec::*, units::Picoseconds};
use std::sync::Arc;
struct S {
    s: u64,
    n: u64,
    t: f64,
    rate: f64,
    next: Option<Arrival>,
    total: u64,
}
impl S {
    fn u(&mut self) -> f64 {
        self.s ^= self.s << 13;
        self.s ^= self.s >> 7;
        self.s ^= self.s << 17;
        ((self.s >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
    fn g(&mut self) -> f64 {
        let (a, b) = (self.u(), self.u());
        (-2.0 * a.ln()).sqrt() * (6.283185307 * b).cos()
    }
    fn draw(&mut self) {
        if self.n == self.total {
            self.next = None;
            return;
        }
        let gap = -self.u().ln() / self.rate;
        self.t += gap;
        let (i, o) =
            ((6.9 + 0.7 * self.g()).exp().round().max(1.0), (5.3 + 0.8 * self.g()).exp().round().max(1.0));
        self.next = Some(Arrival {
            number: self.n,
            at: Ticks::from(Picoseconds::from_seconds(self.t)),
            input: i as u32,
            output: o as u32,
            ..Default::default()
        });
        self.n += 1;
    }
}
impl Source for S {
    fn peek(&self) -> Option<Ticks> {
        self.next.map(|a| a.at)
    }
    fn next(&mut self) -> Option<Arrival> {
        let n = self.next;
        self.draw();
        n
    }
    fn closed(&self) -> bool {
        false
    }
    fn completed(&mut self, _: u32, _: Ticks) {}
}
fn main() {
    let c = Catalog::embedded().unwrap();
    let e = c.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
    let m = Arc::new(model::config::read(&e.id, "c", &e.config).unwrap());
    let d = Deployment::resolve(m, Arc::new(c.accelerator("h100-sxm").unwrap().clone()), &Options::default())
        .unwrap();
    let cfg = Config {
        blocks: 25000,
        block_size: 16,
        max_num_seqs: 1024,
        max_num_batched_tokens: 8192,
        max_model_len: 131072,
        enable_chunked_prefill: true,
        scheduler_reserve_full_isl: true,
        watermark_blocks: 0,
        order: Order::Arrival,
        reservation: Reservation::Grow,
        preemption: Preemption::Recompute,
        swap_tokens: 0,
    };
    for (total, rate) in [(100_000, 20.0), (1_000_000, 20.0), (100_000, 2.0), (100_000, 30.0)] {
        let t = std::time::Instant::now();
        let mut s = S { s: 88172645463325252, n: 0, t: 0.0, rate, next: None, total };
        s.draw();
        let mut w = 0;
        if std::env::args().nth(1).is_some() {
            while let Some(a) = s.next() {
                w += a.input
            }
            println!("draw {w} {:?}", t.elapsed());
            continue;
        }
        let mut eng = Engine::<Lockstep>::new(
            cfg.clone(),
            Policy::TokenBudget,
            Price::new(&d, CostKind::Limit),
            Ticks::ZERO,
        );
        let mut r = Results::new(Slo::default(), false);
        run(&mut eng, &mut s, &mut r).unwrap();
        let sum = r.summary(&eng.state.tally.itl);
        println!(
            "{total} {rate}: {:?} ttft {:.2} {:.2} tpot {:.3} steps {} running {}",
            t.elapsed(),
            sum.ttft.mean,
            sum.ttft.p99,
            sum.tpot.mean,
            eng.state.tally.steps,
            eng.state.tally.running_peak
        );
    }
}
