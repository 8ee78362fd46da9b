//! Real clients: the openai package, Prometheus' parser, a ZeroMQ subscriber that decodes with msgspec as routers do.

use super::{Server, TINY};
use crate::support::root;
use std::path::PathBuf;
use std::process::Command;

/// Python packages that the script imports, with the versions for which it was written.
const PACKAGES: [&str; 5] =
    ["openai==3.54.0", "prometheus-client==0.26.0", "pyzmq==27.3.0", "msgspec==0.22.0", "PyYAML==6.0.3"];

/// A Python with these packages, installed once and kept; prints a note and returns `None` if that is impossible.
#[allow(clippy::print_stderr)] // a test that is left out says so
fn python() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("clients");
    let python = folder.join("bin/python");
    let imports = ["-c", "import openai, prometheus_client, zmq, msgspec, yaml"];
    let works = || Command::new(&python).args(imports).output().is_ok_and(|o| o.status.success());
    if !works() {
        drop(Command::new("python3").args(["-m", "venv"]).arg(&folder).output());
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--timeout", "15"];
        drop(Command::new(&python).args(install).args(PACKAGES).output());
    }
    if works() {
        return Some(python);
    }
    eprintln!("omitted: python3 -m venv and pip cannot install {}", PACKAGES.join(", "));
    None
}

#[test]
fn real_clients_understand() {
    let Some(python) = python() else { return };
    let config =
        r#"{"endpoint":"tcp://127.0.0.1:0","replay_endpoint":"tcp://127.0.0.1:0","topic":"kv@test"}"#;
    let server = Server::start(TINY, &format!("--kv-events-config {config}"));
    let script = root().join("crates/roofcast-cli/tests/clients/clients.py");
    let output = Command::new(python).arg(script).arg(server.url()).args(&server.kv_events).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("agreed"), "{said}");
}

#[test]
fn the_rig_is_what_its_readers_take() {
    let Some(python) = python() else { return };
    let script = root().join("crates/roofcast-cli/tests/clients/rig.py");
    let output = Command::new(python).arg(script).arg(root().join("examples/emulate")).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("agreed"), "{said}");
}
