//! Arrivals of a replayed trace at the pace of its keys.
//!
//! Knows: which pace sends recorded requests at other times than the recorded ones. Sessions stay sessions at every
//! pace, and requests keep their order, lengths and prompts. Knows nothing about file formats ([`super::trace`]).

use super::arrivals::Arrivals;
use super::replay::Replay;
use roofcast_facts::error::Result;

impl Replay {
    /// Arrivals of the loaded file at the pace of the keys. Users, gaps of a given burstiness and files without times have
    /// arrivals of another kind.
    pub(super) fn paced(self, place: &str) -> Result<Arrivals> {
        let Some(trace) = self.recorded.clone() else { return Ok(Arrivals::Trace(self)) };
        self.check_keys(place)?;
        if !trace.sessions.is_empty() {
            return Ok(Arrivals::Trace(self));
        }
        Ok(match (self.concurrency, self.rate, self.burstiness) {
            (Some(concurrency), ..) => Arrivals::ClosedLoop {
                concurrency,
                think_s: self.think_s,
                ramp_s: self.ramp_s,
                turn_round_s: self.turn_round_s,
            },
            (None, Some(rate), Some(burstiness)) => Arrivals::Gamma { rate, burstiness },
            (None, Some(rate), None) => match trace.rate().filter(|_| trace.timed) {
                Some(recorded) => {
                    Arrivals::Trace(Replay { scale: Some(recorded / rate), rate: None, ..self })
                }
                None => Arrivals::Poisson { rate },
            },
            (None, None, _) => Arrivals::Trace(self),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::Spec;
    use crate::workload::{Arrivals, Prompt, Request, Traffic, Workload};
    use roofcast_facts::error::Result;
    use roofcast_facts::units::Picoseconds;

    const S: u64 = 1_000_000_000_000;

    /// Four requests in 6 s, 0.5 a second: the second and the last repeat the first one's block.
    const REQUESTS: &str = r#"{"timestamp":0,"input_length":512,"output_length":4,"hash_ids":[1]}
{"timestamp":1000,"input_length":1024,"output_length":5,"hash_ids":[1,2]}
{"timestamp":2000,"input_length":512,"output_length":6,"hash_ids":[9]}
{"timestamp":6000,"input_length":512,"output_length":7,"hash_ids":[1]}
"#;

    /// Two sessions that begin at 0 and 4 s, the first of two turns.
    const SESSIONS: &str = r#"{"session_id":"a","input_length":600,"output_length":7,"timestamp":0}
{"session_id":"a","input_length":40,"output_length":5,"delay":2500}
{"session_id":"b","input_length":100,"output_length":3,"timestamp":4000}
"#;

    fn loaded(text: &str, keys: &str) -> Result<Workload> {
        let spec = format!("[workload]\narrivals = {{ kind = \"trace\", path = \"t.jsonl\", {keys} }}");
        let mut workload = Spec::parse("t", &spec)?.workload.unwrap();
        workload.load("t", |_| Ok::<_, roofcast_facts::error::Error>(text.to_owned()))?;
        Ok(workload)
    }

    fn sent(workload: &Workload) -> Vec<Request> {
        let mut traffic = Traffic::new(workload, "t").unwrap();
        std::iter::from_fn(|| traffic.next()).collect()
    }

    #[test]
    fn a_rate_scales_recorded_times_and_keeps_prompts() {
        // 0.5 a second becomes 2 a second: times are divided by 4.
        let requests = sent(&loaded(REQUESTS, "rate = 2").unwrap());
        assert_eq!(requests.iter().map(|r| r.at.0 * 4 / S).collect::<Vec<_>>(), [0, 1, 2, 6]);
        assert!(requests.iter().all(|request| request.prompt != Prompt::Own));
    }

    #[test]
    fn users_send_the_recorded_requests_in_their_order() {
        let workload = loaded(REQUESTS, "concurrency = 2").unwrap();
        assert!(matches!(workload.arrivals, Arrivals::ClosedLoop { concurrency: 2, .. }));
        let mut traffic = Traffic::new(&workload, "t").unwrap().without_turn_round();
        let two: Vec<u32> = [(); 3].iter().filter_map(|()| traffic.next()).map(|r| r.output_len).collect();
        assert_eq!((two.as_slice(), traffic.peek()), ([4, 5].as_slice(), None));
        traffic.completed(1, Picoseconds(S), 0);
        let third = traffic.next().unwrap();
        assert_eq!((third.output_len, third.user, third.at.0), (6, 1, S));
        assert!(traffic.shares_prompts() && third.prompt != Prompt::Own);
        assert_eq!((traffic.total(), traffic.remaining()), (4, 1));
    }

    #[test]
    fn gaps_of_a_given_burstiness_keep_the_prompts() {
        let requests = sent(&loaded(REQUESTS, "rate = 2, burstiness = 0.5").unwrap());
        assert_eq!(requests.iter().map(|r| r.output_len).collect::<Vec<_>>(), [4, 5, 6, 7]);
        assert!(requests.iter().all(|request| request.prompt != Prompt::Own));
    }

    #[test]
    fn sessions_stay_sessions_at_every_pace() {
        // One session in 4 s becomes one in 2 s; the wait between turns stays 2.5 s.
        let mut traffic = Traffic::new(&loaded(SESSIONS, "rate = 0.5").unwrap(), "t").unwrap();
        assert_eq!(traffic.next().map(|r| (r.at.0, r.input_len)), Some((0, 600)));
        traffic.completed(0, Picoseconds(S), 7);
        assert_eq!(traffic.next().map(|r| (r.at.0, r.user)), Some((2 * S, 1)));
        let second = traffic.next().unwrap();
        assert_eq!((second.at.0, second.input_len), (S + 5 * S / 2, 647));
        let users = loaded(SESSIONS, "concurrency = 1").unwrap();
        assert!(matches!(&users.arrivals, Arrivals::Trace(replay) if replay.has_sessions()));
        assert_eq!(sent(&users).len(), 1);
    }

    /// Sessions without start times begin independently of each other.
    #[test]
    fn sessions_without_times_begin_at_the_rate() {
        let text: String = (0..2000)
            .map(|n| format!("{{\"session_id\":\"{n}\",\"input_length\":9,\"output_length\":1}}\n"))
            .collect();
        let requests = sent(&loaded(&text, "rate = 4").unwrap());
        // The 2000th start is gamma-distributed: mean 500 s, standard deviation √2000/4 = 11.2 s.
        let last = requests.last().unwrap().at.seconds();
        assert!(requests.len() == 2000 && (last - 500.0).abs() < 5.0 * 11.2, "{last}");
    }

    #[test]
    fn keys_that_a_replay_lacks_are_named() {
        let refused = |text, keys: &str, key: &str| {
            let error = loaded(text, keys).unwrap_err().to_string();
            assert!(error.contains(&format!("workload.arrivals.{key}")), "{keys}: {error}");
        };
        refused(REQUESTS, "rate = 1, concurrency = 2", "rate");
        refused(REQUESTS, "rate = 1, scale = 2", "scale");
        refused(REQUESTS, "concurrency = 1, scale = 2", "scale");
        refused(REQUESTS, "burstiness = 0.5", "burstiness");
        refused(REQUESTS, "think_s = 3", "think_s");
        refused(REQUESTS, "concurrency = 0", "concurrency");
        refused(REQUESTS, "rate = 0", "rate");
        refused(SESSIONS, "concurrency = 2, think_s = 3", "think_s");
        refused(SESSIONS, "rate = 2, burstiness = 0.5", "burstiness");
        refused("input_length,output_length\n3,4\n", "", "path");
    }

    /// A file of lengths has neither times nor prompts: they are drawn, as many as are asked for.
    #[test]
    fn lengths_without_times_are_drawn() {
        let mut workload =
            loaded("input_length,output_length\n3,4\n", "concurrency = 2, think_s = 1").unwrap();
        workload.requests = Some(50);
        assert_eq!(workload.total(), 50);
        assert!(matches!(workload.arrivals, Arrivals::ClosedLoop { think_s: Some(1.0), .. }));
    }
}
