//! `roofcast emulate`: an inference server that runs the engine of `simulate` in real time.

use super::About;
use crate::args::EmulateArgs;
use crate::input;
use crate::input::scenario::{EMPTY, Scenario, Source};
use crate::show;
use anyhow::{Context, Result};
use roofcast::deployment::support;
use roofcast::fleet::TransferPath;
use roofcast::simulate::{RunOptions, simulate};
use roofcast::spec::settings::Setting;
use roofcast::spec::{FleetSpec, LinkKind, SchedulerKind};
use roofcast::workload::{Traffic, Workload};
use roofcast::{Deployment, Error, Forecaster, Spec};
use roofcast_emulate::{
    Author, Buckets, Calling, Dialect, Fault, Group, KvEventsConfig, Latencies, Launch, Launched, Lengths,
    Pace, Service, Settings,
};
use roofcast_http::guard::Guard;
use roofcast_http::{server, tls};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Number of output lengths drawn in advance, for requests that do not state a length.
const LENGTHS: usize = 4096;

/// Sections of a spec that an emulator reads.
const SECTIONS: [&str; 7] = ["model", "hardware", "precision", "parallelism", "engine", "workload", "fleet"];

pub(crate) fn run(args: &EmulateArgs) -> Result<ExitCode> {
    let (scenario, dialect) = scenario(args)?;
    let deployment = scenario.deployment()?;
    if args.deployment.source.dump_spec {
        scenario.dump("emulate SPEC.toml", Some(&deployment), &SECTIONS)?;
        return Ok(ExitCode::SUCCESS);
    }
    scenario.starts(&deployment)?;
    suits(args, &deployment, &scenario.spec.fleet)?;
    support::check_generates(&scenario.place, &deployment.model)?;
    let typed = scenario.model_name()?;
    let forecaster = Forecaster::embedded(deployment)?;
    simulates(&forecaster, &scenario.place, &scenario.spec.fleet)?;
    let routed = scenario.is_routed();
    let place = scenario.place;
    let spec = scenario.spec;
    let seed = spec.workload.as_ref().map_or(0, |w| w.seed);
    let lengths = spec.workload.map(lengths).transpose()?;
    let (context, stated) = lengths.unwrap_or((input::DEFAULT_CONTEXT, Vec::new()));
    let stated = args.output_len.map_or(stated, |tokens| vec![tokens]);
    let usual = self::lengths(toml::from_str(USUAL)?)?.1;
    let author = author(args, Lengths { stated, usual })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let names = names(args, typed, &forecaster.deployment);
    let kv_events = args.kv_events_config.as_ref();
    let kv_events = kv_events.map(|text| KvEventsConfig::parse(text, args.kv_events_encoding)).transpose()?;
    let launch = Launch {
        runtime: &runtime,
        dialect,
        pace: Pace::new(args.time_scale),
        context,
        seed,
        name: names.first().cloned().unwrap_or_default(),
        place,
        buckets: buckets(args, dialect)?,
        latencies: latencies(args),
        kv_events: kv_events.flatten(),
        ranks: args.data_parallel_external_lb,
    };
    let Launched { groups, kv_events, threads } = launch.start(&forecaster, &spec.fleet, routed)?;
    let settings = settings(args, &forecaster.deployment, (names, dialect), spec.fleet.link)?;
    let service = |group: Group| Arc::new(Service::new(settings.clone(), group, author.clone()));
    let services = groups.into_iter().map(service).collect();
    let events = kv_events.iter().map(|endpoint| format!("KV events at {endpoint}\n"));
    let images = forecaster.deployment.model.tower.map_or("", |_| NO_IMAGES);
    let text = About::of(&forecaster.deployment).title() + images + &events.collect::<String>();
    runtime.block_on(serve(args, text, services))?;
    drop(runtime);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    Ok(ExitCode::SUCCESS)
}

/// The scenario, and the API dialect of the server. A server with llama.cpp's API runs vLLM's scheduler with as many
/// sequences as slots, because the simulation of llama.cpp's slots cannot be driven request by request.
fn scenario(args: &EmulateArgs) -> Result<(Scenario, Dialect)> {
    let flags = [&args.deployment.flags.settings[..], &args.fleet.settings[..]];
    let source = Source::read(args.deployment.spec.as_deref(), EMPTY, &args.deployment.source, &flags)?;
    let scenario = source.scenario(&[])?;
    let engine = &scenario.spec.engine;
    let dialect = Dialect::of(engine.kind()).ok_or_else(|| {
        Error::field(
            &scenario.place,
            "engine.name",
            engine.name(),
            "vllm, sglang or llama.cpp, whose servers are emulated",
        )
    })?;
    if dialect != Dialect::LlamaCpp || engine.scheduler() == SchedulerKind::Vllm {
        return Ok((scenario, dialect));
    }
    // Cells of one token, and no step decided before the one before it has ended.
    let mut settings =
        vec![Setting::new("engine.scheduler", "vllm"), Setting::new("engine.vllm.async_scheduling", false)];
    if engine.block_size.is_none() {
        settings.push(Setting::new("engine.block_size", 1));
    }
    Ok((source.scenario(&settings)?, dialect))
}

/// Refuses features that SGLang's scheduler does not have, if the deployment uses that scheduler.
fn suits(args: &EmulateArgs, deployment: &Deployment, fleet: &FleetSpec) -> Result<()> {
    let vllm_only =
        [("--kv-events-config", args.kv_events_config.is_some()), ("fleet.prefill", fleet.prefill.is_some())];
    let sglang = deployment.engine.scheduler == SchedulerKind::Sglang;
    match vllm_only.into_iter().find(|(_, given)| *given && sglang) {
        None => Ok(()),
        Some((name, _)) => {
            let accepted = "the same with --scheduler vllm, which serves it behind the same API";
            Err(Error::field("arguments", name, "beyond SGLang's scheduler", accepted).into())
        }
    }
}

/// The line of a server whose model reads images.
const NO_IMAGES: &str =
    "images in requests have no tokens and take no time here; simulate counts them ([workload.images])\n";

/// A load whose answers have the lengths of a published chat.
const USUAL: &str = "requests = 4096\npreset = \"sharegpt\"\n[arrivals]\nkind = \"offline\"";

/// A load of one short request.
const PROBE: &str = "requests = 1\ninput_len = 1\noutput_len = 1\n[arrivals]\nkind = \"offline\"";

/// Refuses the engines that `simulate` refuses, with its words, so that no key is ignored here. Pools of a disaggregated
/// fleet are checked when they start.
fn simulates(forecaster: &Forecaster, place: &str, fleet: &FleetSpec) -> Result<()> {
    if fleet.prefill.is_none() {
        let workload = Some(toml::from_str::<Workload>(PROBE)?);
        simulate(forecaster, &Spec { workload, ..Spec::default() }, place, RunOptions::default())?;
    }
    Ok(())
}

/// The mean context of a workload's requests, and output lengths drawn from it.
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

/// The author of answers of these lengths, in the tokens of `--tokenizer`, or of the rule that needs no vocabulary.
fn author(args: &EmulateArgs, lengths: Lengths) -> Result<Author> {
    let calling = Calling { share: args.auto_tool_calls, most: args.max_tool_calls as usize };
    #[cfg(feature = "tokenizers")]
    if let Some(path) = &args.tokenizer {
        let place = path.display().to_string();
        return Ok(Author::by_vocabulary(&place, &input::text(path)?, lengths, calling)?);
    }
    Ok(Author::by_rule(lengths, calling))
}

/// Bounds of histograms, which vLLM's server alone lets its users choose.
fn buckets(args: &EmulateArgs, dialect: Dialect) -> Result<Buckets> {
    let Some(text) = &args.custom_histogram_buckets else { return Ok(Buckets::default()) };
    let wrong = |accepted: &str| Error::field("arguments", "--custom-histogram-buckets", text, accepted);
    if dialect != Dialect::Vllm {
        return Err(wrong("it with --engine vllm, which alone has it").into());
    }
    Ok(Buckets::parse(text).map_err(|accepted| wrong(&accepted))?)
}

fn latencies(args: &EmulateArgs) -> Option<Latencies> {
    args.ttft.zip(args.itl).map(|(ttft_ms, itl_ms)| Latencies { ttft_ms, itl_ms })
}

/// The names by which clients may call the model: as in vLLM, the name given, and also the model's own name if it
/// differs.
fn names(args: &EmulateArgs, typed: String, deployment: &Deployment) -> Vec<String> {
    let model_name = &deployment.model.name;
    match args.served_model_name.as_slice() {
        [] if typed == *model_name => vec![typed],
        [] => vec![typed, model_name.clone()],
        names => names.to_vec(),
    }
}

fn settings(
    args: &EmulateArgs,
    deployment: &Deployment,
    (names, dialect): (Vec<String>, Dialect),
    link: Option<LinkKind>,
) -> Result<Settings> {
    let key = |variable: &String| {
        let missing = || Error::field("arguments", "--api-key-env", variable, "a variable that is set");
        let key = std::env::var(variable).map_err(|_| missing())?;
        if key.trim().is_empty() {
            let accepted = "a key: an empty one would let nobody in, or everybody";
            return Err(Error::field("environment", variable, "empty", accepted));
        }
        Ok(key)
    };
    let fault = |text: &String| {
        Fault::parse(text).map_err(|accepted| Error::field("arguments", "--fault", text, accepted))
    };
    let injected =
        args.failure_injection_rate.map(|percent| Fault::injected(percent / 100.0, &args.failure_types));
    let module = |text: &String| {
        let wrong = || Error::field("arguments", "--lora-modules", text, "NAME=PATH");
        let (name, path) = text
            .split_once('=')
            .filter(|(name, path)| !name.is_empty() && !path.is_empty())
            .ok_or_else(wrong)?;
        Ok::<_, Error>((name.to_owned(), path.to_owned()))
    };
    let modules = args.lora_modules.iter().map(module).collect::<Result<Vec<_>, _>>()?;
    let served = deployment.engine.lora.is_some();
    if let (false, Some((name, path))) = (served, modules.first()) {
        let adapter = format!("{name}={path}");
        return Err(Error::field("arguments", "--lora-modules", adapter, "it with --enable-lora").into());
    }
    let way = |link| TransferPath::new(deployment, deployment, link, "arguments");
    let vllm = deployment.engine.vllm().copied().unwrap_or_default();
    let queue = [vllm.max_num_queued_reqs, vllm.max_num_queued_tokens];
    Ok(Settings {
        dialect,
        names,
        root: deployment.model.name.clone(),
        api_key: args.api_key_env.as_ref().map(key).transpose()?,
        max_queued: queue.map(|most| most.unwrap_or(u64::MAX)),
        most_body: (args.max_body << 20) as usize,
        echo_request_id: args.enable_request_id_headers,
        allow_faults: args.allow_faults || args.fault.is_some() || injected.is_some(),
        fault: args.fault.as_ref().map(fault).transpose()?.or(injected),
        sleeps: args.enable_sleep_mode,
        adapters: served.then_some(modules),
        link: match link {
            Some(link) => Some(way(link)?),
            // Without a link in the spec, KV caches are transferred over the accelerator's network, if it has one.
            None => way(LinkKind::Network).ok(),
        },
        tp: deployment.parallelism.tp,
        hidden: deployment.model.hidden,
        guard: Guard::new(&args.allow_host),
        latencies: latencies(args),
    })
}

/// Listens, prints the addresses, and serves until a signal stops it.
async fn serve(args: &EmulateArgs, mut text: String, services: Vec<Arc<Service>>) -> Result<()> {
    let (stop, stopped) = watch::channel(false);
    let tls = match (&args.ssl_certfile, &args.ssl_keyfile) {
        (Some(certificate), Some(key)) => Some(tls::acceptor(certificate, key)?),
        _ => None,
    };
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
        let scheme = if tls.is_some() { "https" } else { "http" };
        text += &format!("listening on {scheme}://{}\n", listener.local_addr()?);
        service.warn_when_late();
        let drain = Duration::from_secs_f64(args.drain);
        servers.spawn(server::serve(listener, service, tls.clone(), stopped.clone(), drain));
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
