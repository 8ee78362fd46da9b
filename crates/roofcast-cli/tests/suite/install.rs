//! The crates package, and the binary installs from its folder.

use crate::support::root;
use std::process::Command;

fn cargo(arguments: &[&str]) {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn packages_and_installs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    cargo(&["package", "--workspace", "--allow-dirty", "--no-verify", "--target-dir", &path("package")]);
    let packaged = folder.path().join("package/package/roofcast-0.1.0.crate");
    assert!(packaged.exists(), "{} is not there", packaged.display());
    // The shared target folder keeps the second build of the day short.
    let target = root().join("target/install").display().to_string();
    let prefix = path("root");
    cargo(&[
        "install",
        "--locked",
        "--path",
        "crates/roofcast-cli",
        "--root",
        &prefix,
        "--target-dir",
        &target,
    ]);
    let binary = folder.path().join("root/bin/roofcast");
    let size = std::fs::metadata(&binary).unwrap().len();
    assert!(size < 20_000_000, "the binary has {size} bytes");
    let version = Command::new(&binary).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&version.stdout).trim(), "roofcast 0.1.0");
}
