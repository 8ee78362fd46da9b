//! A run in Chrome's trace-event format, which Perfetto opens: a process for each replica, with its steps as slices,
//! its requests as asynchronous spans, and counters.
//!
//! Knows: the format. Knows nothing about how a run is simulated. Source: "Trace Event Format", the object form with
//! `traceEvents`; phases X (complete), b and e (nestable asynchronous), C (counter), M (metadata). Times are
//! microseconds of virtual time, exact to the picosecond.

use roofcast_facts::clock::Ticks;
use roofcast_sim::timeline::Segment;
use roofcast_sim::timeline::trace::{EventTrace, TraceEvent};
use serde_json::{Value, json};

/// The lines of the file; `blocks` is the number of KV blocks of each replica.
pub fn lines(traces: Vec<EventTrace>, blocks: u64) -> impl Iterator<Item = String> {
    let mut names = Vec::new();
    let mut events = Vec::new();
    let mut cuts = Vec::new();
    for (replica, trace) in traces.into_iter().enumerate() {
        let (own, cut) = trace.close();
        cuts.extend(cut.map(|at| json!({ "replica": replica, "cut_at_us": at.ms() * 1e3 })));
        names.push(named("process_name", replica, 0, &format!("replica {replica}")));
        names.push(named("thread_name", replica, STEPS, "steps"));
        events.extend(own.into_iter().map(|(at, event)| (at, replica, event)));
    }
    // Sort stably, so that events of one replica at one time keep their order.
    events.sort_by_key(|(at, ..)| *at);
    let other = json!({ "time": "virtual", "kv_blocks": blocks, "complete": cuts.is_empty(), "cut": cuts });
    let first = format!("{{\"displayTimeUnit\":\"ms\",\"otherData\":{other},\"traceEvents\":[");
    let rest = events.into_iter().flat_map(|(at, replica, event)| objects(at, replica, &event));
    let all = names.into_iter().chain(rest).enumerate();
    let all = all.map(|(index, event)| if index == 0 { event } else { format!(",{event}") });
    std::iter::once(first).chain(all).chain(std::iter::once("]}".to_owned()))
}

/// Number of the thread that shows steps.
const STEPS: u64 = 1;

fn named(what: &str, replica: usize, thread: u64, name: &str) -> String {
    json!({ "ph": "M", "name": what, "pid": replica, "tid": thread, "args": { "name": name } }).to_string()
}

/// Time in microseconds, exact to the picosecond.
fn us(time: Ticks) -> String {
    let ps = time.picoseconds().0;
    format!("{}.{:06}", ps / 1_000_000, ps % 1_000_000)
}

/// An event as JSON, with its time first.
fn object(at: Ticks, rest: &Value) -> String {
    let rest = rest.to_string();
    format!("{{\"ts\":{},{}", us(at), &rest[1..])
}

fn objects(at: Ticks, replica: usize, event: &TraceEvent) -> Vec<String> {
    match *event {
        TraceEvent::Steps(segment) => {
            let [first, _] = segment.blocks;
            let mut all = vec![slice(replica, &segment)];
            all.extend(counters(at, replica, segment.running, segment.waiting, first));
            all
        }
        TraceEvent::Idle => counters(at, replica, 0, 0, 0).to_vec(),
        TraceEvent::Arrived { number, input, output } => {
            let args = json!({ "request": number, "input_len": input, "output_len": output });
            vec![span(at, replica, "b", number, "request", &args)]
        }
        TraceEvent::Begins(number, phase) => vec![span(at, replica, "b", number, phase.name(), &json!({}))],
        TraceEvent::Ends(number, phase) => vec![span(at, replica, "e", number, phase.name(), &json!({}))],
        TraceEvent::Left(number) => vec![span(at, replica, "e", number, "request", &json!({}))],
    }
}

/// Event of a request's span. Spans share the request's number, so that its phases nest in it.
fn span(at: Ticks, replica: usize, kind: &str, number: u64, name: &str, args: &Value) -> String {
    let id = format!("{number:#x}");
    object(
        at,
        &json!({ "ph": kind, "cat": "request", "id": id, "name": name, "pid": replica, "tid": 0, "args": args }),
    )
}

fn slice(replica: usize, s: &Segment) -> String {
    let name = match (s.chunks, s.decodes) {
        (0, n) if s.steps > 1 => format!("decode {n} × {} steps", s.steps),
        (0, n) => format!("decode {n}"),
        (chunks, 0) => format!("prefill {chunks}"),
        (chunks, n) => format!("prefill {chunks} + decode {n}"),
    };
    let args = json!({
        "steps": s.steps,
        "batch": s.running,
        "waiting": s.waiting,
        "prefill_tokens": s.prefill_tokens,
        "output_tokens": s.output_tokens,
        "kv_blocks": s.blocks[1],
        "bound": s.bound,
    });
    // Compute the length from rounded picoseconds, so that neighbouring slices touch and do not overlap.
    let span = s.end.picoseconds().0 - s.start.picoseconds().0;
    let dur = us(Ticks::from(roofcast_facts::units::Picoseconds(span)));
    let rest = json!({ "ph": "X", "name": name, "cat": "step", "pid": replica, "tid": STEPS, "args": args });
    object(s.start, &rest).replacen('{', &format!("{{\"dur\":{dur},"), 1)
}

fn counters(at: Ticks, replica: usize, running: u64, waiting: u64, blocks: u64) -> [String; 2] {
    let counter = |name: &str, args: Value| {
        object(at, &json!({ "ph": "C", "name": name, "pid": replica, "args": args }))
    };
    [
        counter("requests", json!({ "running": running, "waiting": waiting })),
        counter("KV blocks", json!({ "held": blocks })),
    ]
}
