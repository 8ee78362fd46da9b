//! `examples/emulate`: the files that it names exist, and the flags that it uses are the binary's.

use crate::support::{roofcast, root};
use serde_json::Value;
use std::path::PathBuf;

fn folder() -> PathBuf {
    root().join("examples/emulate")
}

fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The long flags in a file, as `--port` of `- --port=8000`.
fn flags(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("- ").trim_matches('\''));
    let lines = lines.map(|line| line.trim_start_matches("ENTRYPOINT [").trim());
    let named = lines.filter(|line| line.starts_with("--") && *line != "---");
    named.map(|line| line.split(['=', ' ']).next().unwrap().to_owned()).collect()
}

#[test]
fn every_flag_of_the_rig_exists() {
    let help = roofcast("emulate --help").out;
    let known: Vec<&str> = help.split([' ', '=', '[', '\n']).filter(|word| word.starts_with("--")).collect();
    let mut found = 0;
    for name in ["docker-compose.yml", "kubernetes.yaml"] {
        for flag in flags(&text(name)) {
            assert!(known.contains(&flag.as_str()), "{name}: {flag}");
            found += 1;
        }
    }
    assert!(found >= 4, "only {found} flags");
    assert!(text("Dockerfile").contains("\"--host\"") && known.contains(&"--host"));
    // A binary without this feature has no verb `emulate`.
    assert!(text("Dockerfile").contains("--features network\n"));
}

/// The spec in the image and the JSON of `--kv-events-config` are valid.
#[test]
fn what_the_rig_is_told_can_be_read() {
    let run = roofcast("emulate examples/emulate/replica.toml --dump-spec");
    assert_eq!(run.code, 0, "{}", run.err);
    let mut configs = 0;
    for name in ["docker-compose.yml", "kubernetes.yaml"] {
        let text = text(name);
        for line in text.lines().filter_map(|line| line.split_once("--kv-events-config=")) {
            let json: Value = serde_json::from_str(line.1.trim_end_matches('\'')).unwrap();
            assert!(json["endpoint"].as_str().unwrap().starts_with("tcp://"), "{name}");
            configs += 1;
        }
    }
    assert_eq!(configs, 2);
}

/// Mounted files exist; Prometheus scrapes existing services, on the ports on which they listen; the dashboard's data
/// source is the provisioned one.
#[test]
fn the_parts_of_the_rig_fit() {
    let compose = text("docker-compose.yml");
    let volumes = compose.split(['"', ' ']).filter(|word| word.starts_with("./"));
    let mounted: Vec<&str> = volumes.map(|word| word.split(':').next().unwrap().trim()).collect();
    assert_eq!(mounted.len(), 3, "{mounted:?}");
    mounted.iter().for_each(|path| assert!(folder().join(path).exists(), "{path}"));
    let prometheus = text("prometheus.yml");
    let targets: Vec<&str> = prometheus.split('"').filter(|word| word.contains(":8000")).collect();
    assert_eq!(targets.len(), 2);
    for target in targets {
        let service = target.split(':').next().unwrap();
        assert!(compose.contains(&format!("\n  {service}:")), "{service}");
    }
    let dashboard: Value = serde_json::from_str(&text("grafana/dashboard.json")).unwrap();
    let provisioned = text("grafana/provisioning/datasources/prometheus.yml");
    for panel in dashboard["panels"].as_array().unwrap() {
        let uid = panel["datasource"]["uid"].as_str().unwrap();
        assert!(provisioned.contains(&format!("uid: {uid}")), "{uid}");
    }
    let path = text("grafana/provisioning/dashboards/emulate.yml");
    let path = path.lines().find_map(|line| line.trim().strip_prefix("path: ")).unwrap().to_owned();
    assert!(compose.contains(&format!(":{path}/")), "{path}");
}
