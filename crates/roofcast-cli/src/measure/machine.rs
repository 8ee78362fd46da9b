//! The machine as the operating system describes it: processor, caches and memory.
//!
//! Knows: Linux's `/proc` and `/sys`, and how to parse them. Measures nothing.

use anyhow::{Context, Result, bail};
use roofcast::units::Bytes;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The machine as the system describes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "MeasuredMachine"))]
pub(crate) struct Machine {
    /// The processor's name.
    pub(crate) name: String,
    /// Processor architecture: `x86`, `arm` or another.
    pub(crate) architecture: &'static str,
    /// Hardware threads that this process may use.
    pub(crate) threads: usize,
    /// Bytes of all last-level caches together.
    pub(crate) cache_bytes: Bytes,
    /// Bytes of memory that this process may use: the system's, or its control group's if that is less.
    pub(crate) memory_bytes: Bytes,
    /// Bytes of memory that are free now.
    pub(crate) free_bytes: Bytes,
    /// The system's setting of transparent huge pages: `always`, `madvise` or `never`.
    pub(crate) huge_pages: Option<String>,
}

impl Machine {
    /// Reads the description of this machine.
    pub(crate) fn read() -> Result<Machine> {
        if !cfg!(target_os = "linux") {
            bail!("hardware measure: runs on Linux, whose /proc and /sys tell caches and memory");
        }
        let meminfo = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
        let size = |key| kibibytes(&meminfo, key).with_context(|| format!("/proc/meminfo: no {key}"));
        let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|t| t.trim().parse().ok());
        let memory_bytes = size("MemTotal")?.min(Bytes(group.unwrap_or(u64::MAX)));
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "x86",
            "aarch64" => "arm",
            other => other,
        };
        Ok(Machine {
            name: processor(&cpuinfo).unwrap_or_else(|| format!("{architecture} CPU")),
            architecture,
            threads: std::thread::available_parallelism()?.get(),
            cache_bytes: last_level(&caches(Path::new("/sys/devices/system/cpu"))),
            memory_bytes,
            free_bytes: size("MemAvailable")?.min(memory_bytes),
            huge_pages: fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
                .ok()
                .and_then(|t| chosen(&t)),
        })
    }

    /// A catalog id of the machine: `amd-epyc-9654-96-core-processor-measured`.
    pub(crate) fn id(&self) -> String {
        let words: String = self
            .name
            .to_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { ' ' })
            .collect();
        let words: Vec<_> = words.split_whitespace().filter(|w| !["r", "tm", "cpu"].contains(w)).collect();
        format!("{}-measured", words.join("-"))
    }
}

/// Bytes of this process in huge pages, if the system reports them.
pub(super) fn huge_bytes() -> Option<Bytes> {
    kibibytes(&fs::read_to_string("/proc/self/smaps_rollup").ok()?, "AnonHugePages")
}

/// Time for which this thread has waited for a processor since it started, if the system reports it.
pub(super) fn waited() -> Option<Duration> {
    queued(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// The second number of `schedstat`'s `ran waited turns`, in nanoseconds.
fn queued(schedstat: &str) -> Option<Duration> {
    Some(Duration::from_nanos(schedstat.split_whitespace().nth(1)?.parse().ok()?))
}

/// The value of a line `Key:   123 kB` in bytes; the kernel's kB are 1024 bytes.
fn kibibytes(text: &str, key: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))?;
    let count: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(1024) * count)
}

/// The first processor's `model name`.
fn processor(cpuinfo: &str) -> Option<String> {
    let (_, name) =
        cpuinfo.lines().filter_map(|l| l.split_once(':')).find(|(key, _)| key.trim() == "model name")?;
    let name: String = name.trim().chars().filter(|c| !c.is_control()).take(200).collect();
    (!name.is_empty()).then_some(name)
}

/// The word in brackets, as `madvise` in `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// A cache: its level, the list of processors that share it, and its size.
type Cache = (u32, String, Bytes);

/// Every cache listed under `cpu*/cache/index*`; a shared cache occurs once.
fn caches(root: &Path) -> BTreeSet<Cache> {
    let folders = |path: &Path, prefix: &'static str| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|e| e.path()).filter(move |p| {
            p.file_name().and_then(|n| n.to_str()?.strip_prefix(prefix)?.parse::<u32>().ok()).is_some()
        })
    };
    let read = |path: &Path, name| fs::read_to_string(path.join(name)).ok().map(|t| t.trim().to_owned());
    folders(root, "cpu")
        .flat_map(|cpu| folders(&cpu.join("cache"), "index"))
        .filter_map(|c| {
            let level = read(&c, "level")?.parse().ok()?;
            Some((level, read(&c, "shared_cpu_list")?, cache_size(&read(&c, "size")?)?))
        })
        .collect()
}

/// The bytes of a cache's size as `/sys` writes it, as in `32768K`.
fn cache_size(text: &str) -> Option<Bytes> {
    let (digits, unit) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => (text.strip_suffix('M')?, 1 << 20),
    };
    Some(Bytes(unit) * digits.parse().ok()?)
}

/// Bytes of all caches of the highest level together.
fn last_level(caches: &BTreeSet<Cache>) -> Bytes {
    let highest = caches.iter().map(|c| c.0).max();
    caches.iter().filter(|c| Some(c.0) == highest).map(|c| c.2).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_the_kernel_are_binary() {
        let text = "MemTotal:       24689764 kB\nMemAvailable:   512 kB\nHugePages_Total:       0\n";
        // 24,689,764 · 1024 = 25,282,318,336 bytes.
        assert_eq!(kibibytes(text, "MemTotal"), Some(Bytes(25_282_318_336)));
        assert_eq!(kibibytes(text, "MemAvailable"), Some(Bytes(524_288)));
        assert_eq!(kibibytes(text, "HugePages_Total"), None);
        assert_eq!(kibibytes("MemTotal: much kB", "MemTotal"), None);
        assert_eq!(
            [cache_size("32768K"), cache_size("2M"), cache_size("x")],
            [Some(Bytes(1 << 25)), Some(Bytes(2 << 20)), None]
        );
    }

    #[test]
    fn waits_are_nanoseconds() {
        assert_eq!(queued("1234 5000000 7\n"), Some(Duration::from_millis(5)));
        assert_eq!([queued(""), queued("1 -2 3")], [None, None]);
    }

    #[test]
    fn words_in_brackets_are_chosen() {
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen("garbage"), None);
    }

    #[test]
    fn names_become_ids() {
        let cpuinfo =
            "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz\n";
        let mut machine = Machine {
            name: processor(cpuinfo).unwrap(),
            architecture: "x86",
            threads: 1,
            cache_bytes: Bytes(1),
            memory_bytes: Bytes(1),
            free_bytes: Bytes(1),
            huge_pages: None,
        };
        assert_eq!(machine.id(), "intel-xeon-platinum-8380-2-30ghz-measured");
        machine.name = "AMD EPYC".into();
        assert_eq!(machine.id(), "amd-epyc-measured");
        assert_eq!(processor("garbage"), None);
    }

    #[test]
    fn caches_that_processors_share_count_once() {
        // Four processors: each has a level-2 cache of 1 MiB, and each pair a level-3 cache of 32 MiB, 64 MiB together.
        let root = tempfile::tempdir().unwrap();
        for cpu in 0..4 {
            let pair = if cpu < 2 { "0-1" } else { "2-3" };
            for (index, level, shared, size) in
                [(2, "2", cpu.to_string(), "1024K"), (3, "3", pair.into(), "32768K")]
            {
                let folder = root.path().join(format!("cpu{cpu}/cache/index{index}"));
                fs::create_dir_all(&folder).unwrap();
                for (name, text) in [("level", level), ("shared_cpu_list", &shared), ("size", size)] {
                    fs::write(folder.join(name), format!("{text}\n")).unwrap();
                }
            }
        }
        fs::create_dir_all(root.path().join("cpufreq")).unwrap();
        let all_caches = caches(root.path());
        assert_eq!((all_caches.len(), last_level(&all_caches)), (6, Bytes(64 << 20)));
        assert_eq!(last_level(&BTreeSet::new()), Bytes::ZERO);
    }
}
