//! The verb `serve`: the page, served on this machine.

use super::routes::{Service, no_page};
use super::{Api, Guard};
use crate::args::ServeArgs;
use crate::page::PAGE;
use crate::{input, show};
use anyhow::{Context, Result};
use roofcast_http::server;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Longest time for which answers in progress are awaited after the server is asked to stop.
const DRAIN: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    let catalog = input::catalog(&args.catalog)?;
    let measured = args.measured.iter().map(|path| Ok((path.display().to_string(), input::text(path)?)));
    let api = Api::new(catalog, measured.collect::<Result<_>>()?)?;
    let service = Arc::new(Service::new(Guard::new(&args.allow_host), api));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(args, service))?;
    // Work without a listener ends by itself, so the runtime does not wait for it.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// Listens, prints the address, and serves until a signal stops it.
async fn serve(args: &ServeArgs, service: Arc<Service>) -> Result<()> {
    let (stop, stopped) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    let address = SocketAddr::new(args.host, args.port);
    let listener = TcpListener::bind(address).await.with_context(|| format!("--port: {address}"))?;
    let address = listener.local_addr()?;
    match PAGE {
        Some(_) => show::text(&format!("the page is at http://{address}\n"))?,
        None => show::text(&format!("questions are answered at http://{address}\n\n{}", no_page()))?,
    }
    let serving = tokio::spawn(server::serve(listener, service, None, stopped, DRAIN));
    tokio::select! {
        _ = terminate.recv() => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    _ = stop.send(true);
    Ok(serving.await?)
}
