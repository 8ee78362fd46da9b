//! Long work for a browser: runs on a thread of its own, reports progress line by line, and stops when nobody listens
//! or its time limit has passed.
//!
//! Knows: lines of JSON, `{"progress": {"done", "all"}}` and at last `{"answer"}` or `{"error"}`; the limits on one
//! request's work, and the number of requests worked on at once. Knows nothing about the computation.

use super::question;
use anyhow::{Result, bail};
use bytes::Bytes;
use hyper::body::{Body, Frame};
use serde_json::json;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::sync::mpsc;

/// Time limit of the work for one request.
const MOST_TIME: Duration = Duration::from_secs(120);
/// Number of jobs that run at once; others wait for their turn.
const AT_ONCE: usize = 2;
/// Shortest time between two lines of progress, in milliseconds.
const PAUSE_MS: u64 = 50;
/// Number of lines that may wait for a slow reader.
const BEHIND: usize = 16;

/// Semaphore that limits the number of jobs running at once.
#[derive(Debug, Clone)]
pub(super) struct Desk(Arc<Semaphore>);

/// Handle of a running job: its output and its start time.
#[derive(Debug)]
pub(super) struct Work {
    out: mpsc::Sender<Bytes>,
    from: Instant,
    /// Earliest time of the next line of progress, in milliseconds since the start; the first line is sent at once.
    next: AtomicU64,
}

/// Body of a response: the lines that a job writes.
#[derive(Debug)]
pub(crate) struct Lines(mpsc::Receiver<Bytes>);

impl Desk {
    pub(super) fn new() -> Desk {
        Desk(Arc::new(Semaphore::new(AT_ONCE)))
    }

    /// Starts `job`, which returns its answer as JSON.
    pub(super) fn start(&self, job: impl FnOnce(&Work) -> Result<String> + Send + 'static) -> Lines {
        let (out, lines) = mpsc::channel(BEHIND);
        let desk = Arc::clone(&self.0);
        tokio::spawn(async move {
            let free = tokio::select! {
                free = desk.acquire_owned() => free,
                () = out.closed() => return,
            };
            let done = tokio::task::spawn_blocking(move || {
                let work = Work { out, from: Instant::now(), next: AtomicU64::new(0) };
                let answer = job(&work).and_then(|answer| work.whole().map(|()| answer));
                let line = match answer {
                    Ok(answer) => format!("{{\"answer\":{answer}}}\n"),
                    Err(error) => format!("{}\n", question::refusal(&error)),
                };
                // An error means that nobody listens any more.
                drop(work.out.blocking_send(line.into()));
            });
            drop(done.await);
            drop(free);
        });
        Lines(lines)
    }
}

impl Work {
    /// Reports that `done` of `all` parts are done. True if the job shall go on.
    pub(super) fn at(&self, done: u64, all: u64) -> bool {
        let now = self.from.elapsed().as_millis() as u64;
        if now >= self.next.load(Ordering::Relaxed) {
            self.next.store(now + PAUSE_MS, Ordering::Relaxed);
            let line = format!("{}\n", json!({ "progress": { "done": done, "all": all } }));
            // A slow reader misses this line, which does no harm, because a later line has a newer count.
            drop(self.out.try_send(line.into()));
        }
        self.goes_on()
    }

    /// True if somebody still listens and the time limit has not passed.
    pub(super) fn goes_on(&self) -> bool {
        !self.out.is_closed() && self.from.elapsed() < MOST_TIME
    }

    /// Fails if the job was stopped before its result was complete.
    fn whole(&self) -> Result<()> {
        match self.goes_on() {
            true => Ok(()),
            false => bail!(
                "stopped after {} s; accepted: a question that takes less (fewer requests, a smaller search), or the command line",
                MOST_TIME.as_secs()
            ),
        }
    }
}

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job that runs until it is stopped.
    fn endless(work: &Work) -> Result<String> {
        while work.at(0, 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(String::new())
    }

    #[tokio::test]
    async fn work_ends_when_nobody_listens() {
        let desk = Desk::new();
        let given_up = desk.start(endless);
        let _kept = desk.start(endless);
        let mut third = desk.start(|_| Ok("3".to_owned()));
        assert!(third.0.try_recv().is_err(), "more than {AT_ONCE} at once");
        drop(given_up);
        // Both running jobs are endless, so the third job runs only after the abandoned one was stopped.
        assert_eq!(third.0.recv().await.unwrap(), "{\"answer\":3}\n");
    }

    #[tokio::test]
    async fn the_last_line_is_the_answer_or_the_error() {
        for (answer, line) in [
            (Ok("[1]".to_owned()), "{\"answer\":[1]}\n"),
            (Err(anyhow::anyhow!("no")), "{\"error\":\"no\"}\n"),
        ] {
            let mut lines = Desk::new().start(move |_| answer);
            assert_eq!(lines.0.recv().await.unwrap(), line);
            assert!(lines.0.recv().await.is_none());
        }
    }
}
