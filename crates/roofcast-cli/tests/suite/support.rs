//! Running the binary in tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The result of a run.
pub(crate) struct Run {
    /// Exit code of the process.
    pub(crate) code: i32,
    /// Text on standard output.
    pub(crate) out: String,
    /// Text on standard error.
    pub(crate) err: String,
}

/// Runs `roofcast` with the words of `arguments`.
pub(crate) fn roofcast(arguments: &str) -> Run {
    run(arguments.split_whitespace())
}

/// Runs `roofcast` with arguments that may contain spaces.
pub(crate) fn run<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Run {
    let output: Output =
        Command::new(env!("CARGO_BIN_EXE_roofcast")).args(arguments).current_dir(root()).output().unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs `roofcast` with `--json`; returns the answer and the exit code.
pub(crate) fn json(arguments: &str) -> (serde_json::Value, i32) {
    let run = roofcast(&format!("{arguments} --json"));
    let value =
        serde_json::from_str(&run.out).unwrap_or_else(|e| panic!("{arguments}: {e}: {}{}", run.out, run.err));
    (value, run.code)
}

/// Path of the workspace's folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file with `text` in a fresh temporary folder.
pub(crate) fn file(name: &str, text: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

/// Path of a file of the tests' own data.
pub(crate) fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

/// Path of a file or folder of the data beside the checkout; tests that read it are ignored where it is absent.
pub(crate) fn shared(path: &str) -> PathBuf {
    root().join("../shared").join(path)
}
