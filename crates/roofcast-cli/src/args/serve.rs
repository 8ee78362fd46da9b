//! Arguments of `roofcast serve`: the address of the page.

use super::values::address;
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The address to listen on; 0.0.0.0 makes it reachable from other machines.
    #[arg(long, default_value = "127.0.0.1", value_parser = address)]
    pub(crate) host: IpAddr,
    /// The port to listen on; 0 chooses a free one.
    #[arg(long, default_value_t = 7663)]
    pub(crate) port: u16,
    /// A host name, other than localhost and addresses, by which browsers may reach the page.
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// CSV files of measured points that the page shows under Accuracy.
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) measured: Vec<PathBuf>,
    /// A TOML file of accelerators and models, in addition to the embedded catalog; its entries win.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Vec<PathBuf>,
}
