//! A server with an exact schedule, to hold load generators against: `schedule PORT TTFT_MS ITL_MS`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // the same code serves tests

#[path = "../tests/suite/schedule.rs"]
mod schedule;

use std::time::Duration;

fn main() {
    let words: Vec<u64> = std::env::args().skip(1).map(|w| w.parse().expect("PORT TTFT_MS ITL_MS")).collect();
    let [port, ttft, itl] = words[..] else { panic!("PORT TTFT_MS ITL_MS") };
    let times = schedule::Schedule { ttft: Duration::from_millis(ttft), itl: Duration::from_millis(itl) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpSocket::new_v4().unwrap();
        listener.set_reuseaddr(true).unwrap();
        listener.bind(format!("127.0.0.1:{port}").parse().unwrap()).unwrap();
        schedule::serve(listener.listen(4096).unwrap(), times).await;
    });
}
