//! Metrics of HTTP requests and of the process, which vLLM's API server has beside its engine's.
//!
//! Source: the recorded `/metrics` of vLLM 0.32. Requests are counted by prometheus-fastapi-instrumentator: a time ends with
//! the response's last byte, a size is the header `content-length`. The process is described by prometheus-client, on
//! Linux alone.

use super::exposition::{Exposition, Summary};
use super::histogram::Histogram;
use super::label;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Bounds in seconds of the times of all requests.
const FINE: [f64; 21] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0,
    30.0, 60.0,
];
/// Bounds in seconds of the times of one path's requests.
const COARSE: [f64; 3] = [0.1, 0.5, 1.0];
/// Paths whose requests vLLM does not count (`entrypoints/serve/instrumentator/metrics.py`), and the emulator's own.
const UNCOUNTED: [&str; 7] = ["/metrics", "/health", "/load", "/ping", "/version", "/server_info", "/admin"];
/// Clock ticks a second in `/proc/self/stat`: Linux's `USER_HZ`.
const TICKS: f64 = 100.0;

/// Counters of the requests of one server.
#[derive(Debug, Default)]
pub(crate) struct HttpCounts(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    /// Requests by path, method and class of status.
    requests: BTreeMap<[String; 3], u64>,
    /// Bytes of requests and of responses by path.
    bytes: BTreeMap<String, [Summary; 2]>,
    all: Option<Histogram>,
    /// Times by path and method.
    seconds: BTreeMap<[String; 2], Histogram>,
}

/// A request that is being answered, counted when it is dropped.
#[derive(Debug)]
pub(crate) struct Answering {
    counts: Arc<HttpCounts>,
    path: String,
    method: String,
    since: Instant,
    /// Class of the response's status, as `2xx`, and its bytes.
    pub(crate) response: Option<(String, u64)>,
    request_bytes: u64,
}

impl HttpCounts {
    /// Begins to count a request to a path, `none` if there is no such path; `None` for a path that is not counted.
    pub(crate) fn begin(self: &Arc<Self>, path: &str, method: &str, request_bytes: u64) -> Option<Answering> {
        let uncounted = UNCOUNTED.iter().any(|prefix| path.starts_with(prefix));
        (!uncounted).then(|| Answering {
            counts: Arc::clone(self),
            path: path.to_owned(),
            method: method.to_owned(),
            since: Instant::now(),
            response: None,
            request_bytes,
        })
    }

    /// Writes the counters.
    pub(super) fn show(&self, text: &mut Exposition<'_>) {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = |names: &[&str], values: &[&String]| {
            let pairs = names.iter().zip(values).map(|(name, value)| label(name, value));
            pairs.collect::<Vec<_>>().join(",")
        };
        let requests = counted.requests.iter().map(|([path, method, status], count)| {
            (labels(&["handler", "method", "status"], &[path, method, status]), *count)
        });
        let help = "Requests by method, status and path.";
        text.counters(("http_requests", help), &requests.collect::<Vec<_>>());
        for (index, name, help) in [
            (0, "http_request_size_bytes", "Content length of requests by path."),
            (1, "http_response_size_bytes", "Content length of responses by path."),
        ] {
            let sizes = counted.bytes.iter().map(|(path, both)| (label("handler", path), both[index]));
            text.summaries((name, help), &sizes.collect::<Vec<_>>());
        }
        let none = Histogram::new(&FINE);
        let help = "Seconds of all requests.";
        text.histogram(("http_request_duration_highr_seconds", help), counted.all.as_ref().unwrap_or(&none));
        let seconds = counted
            .seconds
            .iter()
            .map(|([path, method], histogram)| (labels(&["handler", "method"], &[path, method]), histogram));
        text.histograms(
            ("http_request_duration_seconds", "Seconds of requests by path."),
            &seconds.collect::<Vec<_>>(),
        );
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // A client that left before the response's head is counted as by the instrumentator: as a server's error.
        let (status, bytes) = self.response.take().unwrap_or(("5xx".to_owned(), 0));
        let seconds = self.since.elapsed().as_secs_f64();
        let path = self.path.clone();
        let method = self.method.clone();
        let mut counted = self.counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counted.requests.entry([path.clone(), method.clone(), status]).or_default() += 1;
        let sizes = counted.bytes.entry(path.clone()).or_default();
        sizes.iter_mut().zip([self.request_bytes, bytes]).for_each(|(size, bytes)| size.add(bytes as f64));
        counted.all.get_or_insert_with(|| Histogram::new(&FINE)).add(seconds);
        let one = counted.seconds.entry([path, method]).or_insert_with(|| Histogram::new(&COARSE));
        one.add(seconds);
    }
}

/// Writes the metrics of this process, which began at `started` in seconds since 1970.
pub(super) fn show_process(text: &mut Exposition<'_>, started: f64) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let status = read("status");
    let limits = read("limits");
    let stat = read("stat");
    let field = |text: &str, name: &str, place: usize| -> Option<f64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().nth(place)?.parse().ok()
    };
    // The name of the program, in parentheses, may have spaces; user and system ticks are fields 14 and 15 of all.
    let times = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: Vec<f64> = times.skip(11).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
    let files = std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64);
    let gauges = [
        (
            "process_virtual_memory_bytes",
            "Virtual memory in bytes.",
            field(&status, "VmSize:", 0).map(|kb| kb * 1024.0),
        ),
        (
            "process_resident_memory_bytes",
            "Resident memory in bytes.",
            field(&status, "VmRSS:", 0).map(|kb| kb * 1024.0),
        ),
        ("process_start_time_seconds", "Start in seconds since 1970.", Some(started)),
        ("process_open_fds", "Open file descriptors.", files),
        ("process_max_fds", "Most open file descriptors.", field(&limits, "Max open files", 0)),
    ];
    if status.is_empty() {
        return;
    }
    for (name, help, value) in gauges {
        if let Some(value) = value {
            text.gauge((name, help), value);
        }
    }
    if let [user, system] = ticks[..] {
        let help = "User and system CPU time in seconds.";
        text.total(("process_cpu_seconds_total", help), (user + system) / TICKS);
    }
}
