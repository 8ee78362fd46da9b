//! The crates can be packaged, and the binary installs from its folder.

use crate::support::root;
use std::path::Path;
use std::process::Command;

fn cargo(arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO"));
    // Variables that Cargo sets for this test's package would make Cargo rebuild dependencies.
    for (name, _) in std::env::vars()
        .filter(|(name, _)| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    {
        command.env_remove(name);
    }
    let output = command.args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn packages_and_installs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    cargo(&["package", "--workspace", "--allow-dirty", "--no-verify", "--target-dir", &path("package")]);
    let packaged = folder.path().join("package/package/roofcast-0.2.0.crate");
    assert!(packaged.exists(), "{} is not there", packaged.display());
    // This debug build uses the target folder of the tests, which has the dependencies already.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().display().to_string();
    let prefix = path("root");
    let to = ["--path", "crates/roofcast-cli", "--root", &prefix, "--target-dir", &target];
    cargo(&[["install", "--locked", "--debug", "--features", "full"].as_slice(), &to].concat());
    let binary = folder.path().join("root/bin/roofcast");
    let version = Command::new(&binary).arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    assert!(version.starts_with("roofcast 0.2.0 (network, parquet, schema, tokenizers"), "{version}");
}

/// The container's default command is `serve`, which is absent from a build without features.
#[test]
fn the_container_has_the_verb_that_it_starts() {
    let text = std::fs::read_to_string(root().join("Containerfile")).unwrap();
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
    assert!(line("CMD").contains("\"serve\""));
    assert!(line("RUN cargo install").contains("--features full"));
}
