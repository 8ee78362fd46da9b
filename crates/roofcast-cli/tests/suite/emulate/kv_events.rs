//! KV cache events as routers receive them.

use super::{Server, TINY};
use rmp::decode::bytes::Bytes;
use rmp::decode::{read_array_len, read_f64, read_int, read_map_len, read_str};
use serde_json::{Value, json};
use std::time::Duration;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

/// Runs a future that waits for a socket, for at most half a minute.
pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), future).await.unwrap() })
}

/// Decodes the next MessagePack value as JSON; the only float is the time of a batch.
fn value(bytes: &mut Bytes<'_>) -> Value {
    let rest = bytes.remaining_slice();
    match rest[0] {
        0xc0 => {
            rmp::decode::read_nil(bytes).unwrap();
            Value::Null
        }
        0xcb => json!(read_f64(bytes).unwrap()),
        0x80..=0x8f | 0xde | 0xdf => {
            let count = read_map_len(bytes).unwrap();
            let pair = |bytes: &mut Bytes<'_>| (text(bytes), value(bytes));
            Value::Object((0..count).map(|_| pair(bytes)).collect())
        }
        0x90..=0x9f | 0xdc | 0xdd => {
            let count = read_array_len(bytes).unwrap();
            (0..count).map(|_| value(bytes)).collect()
        }
        0xa0..=0xbf | 0xd9 => text(bytes).into(),
        _ => json!(read_int::<u64, _>(bytes).unwrap()),
    }
}

fn text(bytes: &mut Bytes<'_>) -> String {
    let rest = bytes.remaining_slice();
    let mut room = vec![0; rest.len()];
    let mut reader = rest;
    let text = read_str(&mut reader, &mut room).unwrap().to_owned();
    let taken = rest.len() - reader.len();
    *bytes = Bytes::new(&rest[taken..]);
    text
}

/// Splits a message into its frames: topic or nothing, sequence number, and batch.
fn read(message: ZmqMessage) -> (Vec<u8>, i64, Option<Value>) {
    let frames = message.into_vec();
    let [first, number, batch] = frames.as_slice() else { panic!("{} frames", frames.len()) };
    let number = i64::from_be_bytes(number[..].try_into().unwrap());
    (first.to_vec(), number, (!batch.is_empty()).then(|| value(&mut Bytes::new(batch))))
}

/// A socket that is subscribed to a server's events of a topic, and the number of the next event. No answer says that a
/// subscription holds, so the idle server is sent to sleep and woken (`--enable-sleep-mode`), which publishes that its cache
/// was emptied, until one of these events arrives.
pub(super) async fn subscribed(server: &Server, topic: &str) -> (SubSocket, i64) {
    let mut subscriber = SubSocket::new();
    subscriber.connect(&server.kv_events[0]).await.unwrap();
    subscriber.subscribe(topic).await.unwrap();
    let (mut published, mut received) = (0, None);
    while received != Some(published - 1) {
        if received.is_none() {
            assert_eq!(server.post("/sleep?level=1", "").status, 200);
            assert_eq!(server.post("/wake_up", "").status, 200);
            published += 1;
        }
        if let Ok(message) = tokio::time::timeout(Duration::from_millis(20), subscriber.recv()).await {
            received = Some(read(message.unwrap()).1);
        }
    }
    (subscriber, published)
}

/// The next batch of events.
pub(super) async fn next(subscriber: &mut SubSocket) -> Value {
    read(subscriber.recv().await.unwrap()).2.unwrap()
}

fn ask(server: &Server, tokens: std::ops::Range<u32>, max_tokens: u64) {
    let prompt: Vec<u32> = tokens.collect();
    let body = json!({"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": true});
    assert_eq!(server.post("/v1/completions", &body.to_string()).status, 200);
}

/// A prompt of 128 tokens stores eight blocks of 16, with the hashes of vLLM's chain; a prompt that needs their room
/// removes them, last first; a replay repeats all events and ends with −1.
#[test]
fn what_the_cache_stores_and_removes_is_told() {
    let spec =
        format!("{TINY}num_gpu_blocks = 12\nmax_model_len = 160\n").replace("max_model_len = 4096\n", "");
    let config = r#"{"endpoint":"tcp://127.0.0.1:0","replay_endpoint":"tcp://127.0.0.1:0","topic":"kv@me"}"#;
    let server = Server::start(&spec, &format!("--enable-sleep-mode --kv-events-config {config}"));
    let (events, again) = now(async {
        let (mut subscriber, first) = subscribed(&server, "kv@").await;
        ask(&server, 1000..1129, 1);
        ask(&server, 5000..5129, 1);
        let mut events = Vec::new();
        while events.iter().filter(|e: &&Value| e["type"] == "BlockStored").count() < 2 {
            let (topic, number, batch) = read(subscriber.recv().await.unwrap());
            assert_eq!((topic.as_slice(), number >= first), (&b"kv@me"[..], true));
            let batch = batch.unwrap();
            assert!(batch[0].as_f64().unwrap() > 1.7e9 && batch[2] == 0);
            events.extend(batch[1].as_array().unwrap().iter().cloned());
        }
        let mut replay = DealerSocket::new();
        replay.connect(&server.kv_events[1]).await.unwrap();
        let from = first.to_be_bytes().to_vec();
        let frames = vec![bytes::Bytes::new(), bytes::Bytes::from(from)];
        replay.send(ZmqMessage::try_from(frames).unwrap()).await.unwrap();
        let mut again = Vec::new();
        loop {
            let (_, number, batch) = read(replay.recv().await.unwrap());
            let Some(batch) = batch else {
                assert_eq!(number, -1);
                break;
            };
            assert_eq!(number, first + i64::try_from(again.len()).unwrap());
            again.push(batch);
        }
        (events, again)
    });
    let stored: Vec<&Value> = events.iter().filter(|e| e["type"] == "BlockStored").collect();
    assert_eq!(stored[0]["token_ids"], (1000..1128).collect::<Value>());
    assert_eq!((&stored[0]["block_size"], &stored[0]["parent_block_hash"]), (&json!(16), &Value::Null));
    assert_eq!(
        (stored[0]["block_hashes"].as_array().unwrap().len(), &stored[0]["medium"]),
        (8, &json!("GPU"))
    );
    // SHA-256 over canonical CBOR of [root, [1000, …, 1015], null], its low 64 bits, computed with Python's hashlib.
    assert_eq!(stored[0]["block_hashes"][0], FIRST_HASH);
    // The cache has 11 blocks, and each prompt takes nine: the second takes blocks that the first released, from the
    // end of the free queue.
    let removed: Vec<&Value> = events.iter().filter(|e| e["type"] == "BlockRemoved").collect();
    let gone: Vec<&Value> = removed.iter().flat_map(|e| e["block_hashes"].as_array().unwrap()).collect();
    let kept = stored[0]["block_hashes"].as_array().unwrap();
    assert_eq!(gone, kept.iter().rev().take(gone.len()).collect::<Vec<_>>());
    assert_eq!(gone.len(), 6);
    let all: Vec<Value> = again.iter().flat_map(|batch| batch[1].as_array().unwrap().clone()).collect();
    assert_eq!(all, events);
}

const FIRST_HASH: u64 = 3_753_563_854_825_738_204;

/// Readers for vLLM before 0.20 expect arrays.
#[test]
fn events_are_arrays_where_that_is_asked_for() {
    let config = r#"{"endpoint":"tcp://127.0.0.1:0"}"#;
    let flags = format!("--enable-sleep-mode --kv-events-config {config} --kv-events-encoding array");
    let server = Server::start(TINY, &flags);
    let batch = now(async {
        let (mut subscriber, _) = subscribed(&server, "").await;
        ask(&server, 0..16, 2);
        next(&mut subscriber).await
    });
    let event = &batch[1][0];
    assert_eq!((&event[0], &event[3], &event[4]), (&json!("BlockStored"), &(0..16).collect(), &json!(16)));
    assert_eq!(event.as_array().unwrap().len(), 8);
}

#[test]
fn wrong_settings_are_refused() {
    for (config, found) in [
        ("{", "--kv-events-config"),
        (r#"{"endpoint":"udp://x"}"#, "udp://x"),
        (r#"{"publisher":"kafka"}"#, "kafka"),
        (r#"{"port":3}"#, "port"),
    ] {
        let (_folder, path) = crate::support::file("spec.toml", TINY.as_bytes());
        let run = crate::support::run(["emulate", &path, "--port", "0", "--kv-events-config", config]);
        assert!(run.code == 2 && run.err.contains(found), "{config}: {} {}", run.code, run.err);
    }
}
