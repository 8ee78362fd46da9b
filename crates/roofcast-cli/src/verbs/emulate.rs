//! `roofcast emulate`: a vLLM server whose engine is the one of `simulate`, on the wall clock.

use super::About;
use crate::args::EmulateArgs;
use crate::emulate::faults::Fault;
use crate::emulate::kv_events::{Endpoints, KvEvents, SEED, publish};
use crate::emulate::metrics::{Fixed, Metrics};
use crate::emulate::pace::Pace;
use crate::emulate::replica::EngineHandle;
use crate::emulate::service::{Service, Settings};
use crate::emulate::{Author, warn_when_late};
use crate::http::server;
use crate::{input, show};
use anyhow::{Context, Result};
use roofcast::engine::online::Online;
use roofcast::workload::{Traffic, Workload};
use roofcast::{Deployment, Error, Forecaster};
use serde::Deserialize;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Answers whose lengths are drawn beforehand, for clients that leave them free.
const LENGTHS: usize = 4096;

/// Sections of a spec that an emulator reads.
const SECTIONS: [&str; 6] = ["model", "hardware", "precision", "parallelism", "engine", "workload"];

pub(crate) fn run(args: &EmulateArgs) -> Result<ExitCode> {
    let scenario = input::scenario(&args.deployment)?;
    let deployment = scenario.deployment()?;
    if args.deployment.source.dump_spec {
        scenario.dump("emulate SPEC.toml", Some(&deployment), &SECTIONS)?;
        return Ok(ExitCode::SUCCESS);
    }
    let forecaster = Forecaster::embedded(deployment)?;
    let spec = scenario.spec;
    let seed = spec.workload.as_ref().map_or(0, |w| w.seed);
    let lengths = spec.workload.map(lengths).transpose()?;
    let (context, lengths) = lengths.unwrap_or((input::DEFAULT_CONTEXT, Vec::new()));
    let pace = Pace::new(args.time_scale);
    let author = Author::new(lengths);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut about = About::of(&forecaster.deployment).title();
    let mut threads = Vec::new();
    let mut services = Vec::new();
    for index in 0..forecaster.deployment.parallelism.replicas {
        let engine = Online::new(&forecaster, context, seed)?;
        let settings = settings(args, &forecaster.deployment, &engine)?;
        let metrics = Metrics::new(fixed(&settings, &forecaster.deployment, &engine));
        let kv_events = kv_events(args, index, &engine, &runtime, &mut about)?;
        let (replica, thread) = EngineHandle::start(engine, pace, metrics, kv_events)?;
        threads.push(thread);
        services.push(Arc::new(Service::new(settings, Arc::new(replica), author.clone())));
    }
    runtime.block_on(serve(args, about, services))?;
    drop(runtime);
    threads.into_iter().for_each(|thread: JoinHandle<()>| drop(thread.join()));
    Ok(ExitCode::SUCCESS)
}

/// The mean context of a workload's requests, and lengths of their answers.
fn lengths(workload: Workload) -> Result<(u64, Vec<u64>)> {
    let context = (workload.input_mean() + workload.output_mean() / 2.0) as u64;
    let mut traffic = Traffic::new(&workload, "workload")?;
    let mut lengths = Vec::new();
    while let Some(request) = traffic.next() {
        lengths.push(u64::from(request.output_len));
        if lengths.len() >= LENGTHS {
            break;
        }
        traffic.completed(request.user, request.at, 0);
    }
    Ok((context, lengths))
}

fn settings(args: &EmulateArgs, deployment: &Deployment, engine: &Online) -> Result<Settings> {
    let model = deployment.model.name.clone();
    let names =
        if args.served_model_name.is_empty() { vec![model.clone()] } else { args.served_model_name.clone() };
    let key = |variable: &String| {
        let missing = || Error::field("arguments", "--api-key-env", variable, "a variable that is set");
        std::env::var(variable).map_err(|_| missing())
    };
    let fault = |text: &String| {
        Fault::parse(text).map_err(|accepted| Error::field("arguments", "--fault", text, accepted))
    };
    let asked = &deployment.options.engine;
    let queue = [asked.max_num_queued_reqs, asked.max_num_queued_tokens];
    Ok(Settings {
        names,
        root: model,
        max_model_len: engine.settings().max_model_len,
        api_key: args.api_key_env.as_ref().map(key).transpose()?,
        max_queued: queue.map(|most| most.unwrap_or(u64::MAX)),
        most_body: (args.max_body << 20) as usize,
        echo_request_id: args.enable_request_id_headers,
        allow_faults: args.allow_faults || args.fault.is_some(),
        fault: args.fault.as_ref().map(fault).transpose()?,
    })
}

fn fixed(settings: &Settings, deployment: &Deployment, engine: &Online) -> Fixed {
    let scheduler = engine.settings();
    Fixed {
        model: settings.names.first().cloned().unwrap_or_default(),
        engine: 0,
        max_model_len: scheduler.max_model_len,
        num_gpu_blocks: u64::from(scheduler.num_gpu_blocks),
        block_size: scheduler.block_size,
        cache_dtype: deployment.kv.name.to_string(),
        enable_prefix_caching: scheduler.enable_prefix_caching,
        gpu_memory_utilization: deployment.options.engine.gpu_memory_utilization.unwrap_or(0.9),
    }
}

/// `--kv-events-config`, by vLLM's keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KvEventsConfig {
    #[serde(default = "yes")]
    enable_kv_cache_events: bool,
    publisher: Option<String>,
    endpoint: Option<String>,
    replay_endpoint: Option<String>,
    #[serde(default)]
    topic: String,
    buffer_steps: Option<usize>,
    /// Bounds of vLLM's queues, which are let pass.
    #[serde(rename = "hwm")]
    _hwm: Option<u64>,
    #[serde(rename = "max_queue_size")]
    _max_queue_size: Option<u64>,
}

fn yes() -> bool {
    true
}

/// What tells of replica `index`'s cache, where that is asked for; its sockets are said in `text`.
fn kv_events(
    args: &EmulateArgs,
    index: u64,
    engine: &Online,
    runtime: &Runtime,
    text: &mut String,
) -> Result<Option<KvEvents>> {
    let Some(given) = &args.kv_events_config else { return Ok(None) };
    let wrong =
        |found: &str, accepted: String| Error::field("arguments", "--kv-events-config", found, accepted);
    let config: KvEventsConfig = serde_json::from_str(given).map_err(|e| {
        wrong(given, format!("vLLM's JSON, as {{\"endpoint\": \"tcp://127.0.0.1:5557\"}} ({e})"))
    })?;
    if let Some(other) = config.publisher.as_ref().filter(|p| *p != "zmq" && *p != "null") {
        return Err(wrong(other, "the publisher zmq".to_owned()).into());
    }
    if !config.enable_kv_cache_events || config.publisher.as_deref() == Some("null") {
        return Ok(None);
    }
    let shifted = |endpoint: &str| {
        let moved = offset(endpoint, index);
        moved.ok_or_else(|| wrong(endpoint, "an endpoint as tcp://127.0.0.1:5557".to_owned()))
    };
    let endpoints = Endpoints {
        publish: shifted(config.endpoint.as_deref().unwrap_or("tcp://127.0.0.1:5557"))?,
        replay: config.replay_endpoint.as_deref().map(shifted).transpose()?,
        topic: config.topic,
        encoding: args.kv_events_encoding,
        kept: config.buffer_steps.unwrap_or(10_000),
        rank: 0,
    };
    let place = endpoints.publish.clone();
    let (outbox, bound) =
        runtime.block_on(publish(endpoints)).with_context(|| format!("KV events at {place}"))?;
    bound.iter().for_each(|endpoint| text.push_str(&format!("KV events at {endpoint}\n")));
    let seed = std::env::var("PYTHONHASHSEED").unwrap_or_else(|_| SEED.to_owned());
    Ok(Some(KvEvents::new(&seed, engine.settings().block_size, outbox)))
}

/// An endpoint with its port moved by the replica's number, as vLLM moves it by the rank; a free port stays one.
fn offset(endpoint: &str, index: u64) -> Option<String> {
    let (host, port) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let port = if port == 0 { 0 } else { u64::from(port) + index };
    let host = if host == "*" { "0.0.0.0" } else { host };
    Some(format!("tcp://{host}:{port}"))
}

/// Listens, says where, and serves until it is told to stop.
async fn serve(args: &EmulateArgs, mut text: String, services: Vec<Arc<Service>>) -> Result<()> {
    let (stop, stopped) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut servers = JoinSet::new();
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs_f64(args.start_delay.unwrap_or(0.0))) => {}
        _ = terminate.recv() => return Ok(()),
        interrupted = tokio::signal::ctrl_c() => return Ok(interrupted?),
    }
    for (index, service) in (0..).zip(services) {
        let port = if args.port == 0 { 0 } else { args.port.saturating_add(index) };
        let address = SocketAddr::new(args.host, port);
        let listener = TcpListener::bind(address).await.with_context(|| format!("--port: {address}"))?;
        text += &format!("listening on http://{}\n", listener.local_addr()?);
        warn_when_late(service.replica());
        let drain = Duration::from_secs_f64(args.drain);
        servers.spawn(server::serve(listener, service, stopped.clone(), drain));
    }
    show::text(&text)?;
    tokio::select! {
        _ = terminate.recv() => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    _ = stop.send(true);
    while servers.join_next().await.is_some() {}
    Ok(())
}
