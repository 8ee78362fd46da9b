//! Events over ZeroMQ: published as they occur, and replayed on demand.
//!
//! Knows: vLLM's frames. A published message has topic, sequence number (8 bytes, big-endian) and batch. A client that
//! sends a number to the replay socket gets every kept batch from that number on, and the number −1 at the end. Source:
//! `ZmqEventPublisher` in `vllm/distributed/kv_events.py`.

use super::encoding::{Encoding, Told, batch};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqError, ZmqMessage};

/// Sockets that publish events, and the format of the events.
#[derive(Debug, Clone)]
pub(crate) struct Endpoints {
    pub(crate) publish: String,
    pub(crate) replay: Option<String>,
    pub(crate) topic: String,
    pub(crate) encoding: Encoding,
    /// Number of latest batches that are kept for replay.
    pub(crate) kept: usize,
    pub(crate) rank: u64,
}

/// Sender of a replica's events to the publisher.
#[derive(Debug, Clone)]
pub(crate) struct Outbox(mpsc::UnboundedSender<Vec<Told>>);

impl Outbox {
    pub(super) fn send(&self, events: Vec<Told>) {
        drop(self.0.send(events));
    }
}

/// Sequence number that ends a replay: −1.
const END: [u8; 8] = [0xff; 8];

/// Binds the sockets and publishes events until the replica is dropped. Returns the sender of events, and the sockets'
/// addresses.
pub(crate) async fn publish(endpoints: Endpoints) -> Result<(Outbox, Vec<String>), ZmqError> {
    let mut publisher = PubSocket::new();
    let mut bound = vec![publisher.bind(&endpoints.publish).await?.to_string()];
    let mut replay = RouterSocket::new();
    if let Some(endpoint) = &endpoints.replay {
        bound.push(replay.bind(endpoint).await?.to_string());
    }
    let (sender, mut inbox) = mpsc::unbounded_channel::<Vec<Told>>();
    let answers = endpoints.replay.is_some();
    tokio::spawn(async move {
        let mut replayable: VecDeque<(u64, Bytes)> = VecDeque::new();
        let mut next = 0;
        loop {
            tokio::select! {
                events = inbox.recv() => {
                    let Some(events) = events else { return };
                    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                    let batch = Bytes::from(batch(time, &events, endpoints.rank, endpoints.encoding));
                    let frames = [endpoints.topic.clone().into(), number(next), batch.clone()];
                    if let Ok(message) = ZmqMessage::try_from(Vec::from(frames)) {
                        drop(publisher.send(message).await);
                    }
                    replayable.push_back((next, batch));
                    if replayable.len() > endpoints.kept {
                        replayable.pop_front();
                    }
                    next += 1;
                }
                asked = replay.recv(), if answers => {
                    let Ok(asked) = asked else { continue };
                    drop(again(&mut replay, &asked.into_vec(), &replayable).await);
                }
            }
        }
    });
    Ok((Outbox(sender), bound))
}

fn number(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// Replays every kept batch from the requested number on.
async fn again(
    replay: &mut RouterSocket,
    asked: &[Bytes],
    kept: &VecDeque<(u64, Bytes)>,
) -> Result<(), ZmqError> {
    let [client, _, from] = asked else { return Ok(()) };
    let from = from.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    let end = (Bytes::from_static(&END), Bytes::new());
    let batches = kept.iter().filter(|(n, _)| *n >= from).map(|(n, batch)| (number(*n), batch.clone()));
    for (number, batch) in batches.chain([end]) {
        let frames = vec![client.clone(), Bytes::new(), number, batch];
        if let Ok(message) = ZmqMessage::try_from(frames) {
            replay.send(message).await?;
        }
    }
    Ok(())
}
