//! Energy used during a run: read every second while it runs, from a Prometheus exporter or from this machine's own
//! counters.
//!
//! Knows: the metric names and units by which exporters report energy, power and memory; RAPL and amdgpu below `/sys`.
//! Energy is the difference of a counter between the ends of the run; power is integrated by trapezoids. Knows nothing
//! about other work of the machine, whose energy is included.

use super::client::Client;
use super::scrape::{EVERY, named, told};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Quantity and unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Unit {
    /// Energy counter, since an arbitrary start; the factor converts to joules.
    Joules(f64),
    /// Power; the factor converts to watts.
    Watts(f64),
}

/// Metrics of energy or power, the preferred one first. Sources: `etc/default-counters.csv` of NVIDIA's
/// dcgm-exporter, `docs/METRICS.md` of nvidia_gpu_exporter, the metrics list of ROCm's device-metrics-exporter,
/// node_exporter's rapl collector; Linux's `Documentation/power/powercap/powercap.rst` and `gpu/amdgpu/thermal.rst`.
const METERS: [(&str, Unit); 8] = [
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Unit::Joules(1e-3)),
    ("DCGM_FI_DEV_POWER_USAGE", Unit::Watts(1.0)),
    ("nvidia_smi_energy_joules_total", Unit::Joules(1.0)),
    ("nvidia_smi_power_draw_watts", Unit::Watts(1.0)),
    ("gpu_package_power", Unit::Watts(1.0)),
    (AMDGPU, Unit::Watts(1e-6)),
    ("node_rapl_package_joules_total", Unit::Joules(1.0)),
    (RAPL, Unit::Joules(1e-6)),
];

/// Metrics of memory in use, each with the factor that converts to bytes.
const MEMORY: [(&str, f64); 3] = [
    ("DCGM_FI_DEV_FB_USED", 1_048_576.0),
    ("nvidia_smi_memory_used_bytes", 1.0),
    ("gpu_used_vram", 1_048_576.0),
];

/// Name of this machine's processor counters, in microjoules.
const RAPL: &str = "intel-rapl energy_uj";
/// Name of the power of this machine's GPUs by Linux's amdgpu driver, in microwatts.
const AMDGPU: &str = "amdgpu power1_average";

/// Timeout of one reading.
const PATIENCE: Duration = Duration::from_secs(5);

/// Source of energy or power readings.
#[derive(Clone)]
pub(super) enum Source {
    /// A Prometheus exporter, by its `/metrics`.
    Exporter(Arc<Client>),
    /// Counters of this machine, below `/sys`.
    Here,
}

/// Energy and power of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Energy {
    /// Name of the metric that was used.
    pub(crate) meter: &'static str,
    /// Energy in joules.
    pub(crate) joules: f64,
    /// Mean power in watts.
    pub(crate) mean_w: f64,
    /// Joules per output token; the tokens include warm-up requests.
    pub(crate) joules_per_output_token: Option<f64>,
    /// Largest memory in use among the readings, in bytes.
    pub(crate) memory_used_bytes: Option<f64>,
}

/// Readings in order of time, each with the sum over all devices for each metric.
#[derive(Debug, Default)]
struct Readings(Vec<(Duration, BTreeMap<String, f64>)>);

/// A measurement in progress.
pub(super) struct Metering {
    readings: Arc<Mutex<Readings>>,
    sources: Vec<Source>,
    start: Instant,
    task: JoinHandle<()>,
}

impl Metering {
    pub(super) async fn start(sources: Vec<Source>) -> Metering {
        let readings = Arc::new(Mutex::new(Readings::default()));
        let start = Instant::now();
        read(&sources, start, &readings).await;
        let scraped = sources.clone();
        let collected = Arc::clone(&readings);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(EVERY).await;
                read(&scraped, start, &collected).await;
            }
        });
        Metering { readings, sources, start, task }
    }

    /// Takes the last reading; returns the energy used while `tokens` were received, or `None` if no known metric was
    /// reported.
    pub(super) async fn stop(self, tokens: u64) -> Option<Energy> {
        self.task.abort();
        read(&self.sources, self.start, &self.readings).await;
        self.readings.lock().unwrap_or_else(PoisonError::into_inner).energy(tokens)
    }
}

/// Reads every source once.
async fn read(sources: &[Source], start: Instant, readings: &Mutex<Readings>) {
    let mut all = BTreeMap::new();
    for source in sources {
        match source {
            Source::Here => here(Path::new("/sys/class"), &mut all),
            Source::Exporter(client) => {
                if let Ok(Some(text)) = tokio::time::timeout(PATIENCE, told(client)).await {
                    add(&String::from_utf8_lossy(&text), &mut all);
                }
            }
        }
    }
    if !all.is_empty() {
        let at = start.elapsed();
        readings.lock().unwrap_or_else(PoisonError::into_inner).0.push((at, all));
    }
}

/// Adds the known metrics in an exporter's `text` to the sums in `all`.
fn add(text: &str, all: &mut BTreeMap<String, f64>) {
    let known = |name: &str| {
        METERS.iter().any(|(meter, _)| *meter == name) || MEMORY.iter().any(|(memory, _)| *memory == name)
    };
    for (name, value) in text.lines().filter_map(named).filter(|(name, _)| known(name)) {
        *all.entry(name.to_owned()).or_default() += value;
    }
}

/// Adds the counters of this machine below `class` to the sums. Of processors only whole packages count, because they
/// include the counters of their parts.
fn here(class: &Path, all: &mut BTreeMap<String, f64>) {
    let number = |file: &Path| std::fs::read_to_string(file).ok()?.trim().parse::<f64>().ok();
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    for zone in names(&class.join("powercap")) {
        let name = zone.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with("intel-rapl:") && name.matches(':').count() == 1 {
            *all.entry(RAPL.to_owned()).or_default() += number(&zone.join("energy_uj")).unwrap_or_default();
        }
    }
    for monitor in names(&class.join("hwmon")) {
        let amdgpu = std::fs::read_to_string(monitor.join("name")).is_ok_and(|name| name.trim() == "amdgpu");
        if let Some(power) = number(&monitor.join("power1_average")).filter(|_| amdgpu) {
            *all.entry(AMDGPU.to_owned()).or_default() += power;
        }
    }
}

impl Readings {
    fn energy(&self, tokens: u64) -> Option<Energy> {
        let first = self.0.first()?;
        let last = self.0.last()?;
        let seconds = (last.0 - first.0).as_secs_f64();
        // A counter that fell was reset or overflowed, so its difference is no energy.
        let drawn = |(name, unit): &(&'static str, Unit)| {
            let reading_of = |reading: &(Duration, BTreeMap<String, f64>)| {
                Some((reading.0.as_secs_f64(), *reading.1.get(*name)?))
            };
            let values: Vec<(f64, f64)> = self.0.iter().filter_map(reading_of).collect();
            let joules = match unit {
                Unit::Joules(unit) => (values.last()?.1 - values.first()?.1) * unit,
                Unit::Watts(unit) => {
                    let part = |pair: &[(f64, f64)]| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0;
                    values.windows(2).map(part).sum::<f64>() * unit
                }
            };
            (values.len() > 1 && joules > 0.0).then_some((*name, joules))
        };
        let (meter, joules) = METERS.iter().find_map(drawn)?;
        let memory = |(name, unit): &(&str, f64)| {
            let levels = self.0.iter().filter_map(|(_, reading)| reading.get(*name));
            levels.map(|value| value * unit).reduce(f64::max)
        };
        Some(Energy {
            meter,
            joules,
            mean_w: joules / seconds.max(f64::MIN_POSITIVE),
            joules_per_output_token: (tokens > 0).then(|| joules / tokens as f64),
            memory_used_bytes: MEMORY.iter().find_map(memory),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(texts: &[(u64, &str)]) -> Readings {
        let reading = |(at, text): &(u64, &str)| {
            let mut all = BTreeMap::new();
            add(text, &mut all);
            (Duration::from_secs(*at), all)
        };
        Readings(texts.iter().map(reading).collect())
    }

    /// Counters of two GPUs in millijoules grow by 1,000 J and 500 J in 10 s: 150 W in the mean, 3 J for each of 500
    /// tokens. The energy counter is preferred to the power metric.
    #[test]
    fn a_counter_of_energy() {
        let text = |a: u64, b: u64| {
            format!(
                "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\nDCGM_FI_DEV_POWER_USAGE{{gpu=\"0\"}} 999.0\n\
                 DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu=\"0\"}} {a}\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu=\"1\"}} {b}\n\
                 DCGM_FI_DEV_FB_USED{{gpu=\"0\"}} 1024\nother 7\n"
            )
        };
        let before = text(5_000_000, 1_000_000);
        let after = text(6_000_000, 1_500_000);
        let energy = readings(&[(0, &before), (10, &after)]).energy(500).unwrap();
        assert_eq!(energy.meter, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION");
        assert_eq!(
            (energy.joules, energy.mean_w, energy.joules_per_output_token),
            (1500.0, 150.0, Some(3.0))
        );
        assert_eq!(energy.memory_used_bytes, Some(1_073_741_824.0));
    }

    /// Power of 100 W, 300 W and 300 W at intervals of a second: (100 + 300)/2 + 300 = 500 J.
    #[test]
    fn power_is_integrated() {
        let text = |watts: u64| format!("gpu_package_power{{gpu_id=\"0\"}} {watts}\n");
        let texts = [text(100), text(300), text(300)];
        let energy = readings(&[(0, &texts[0]), (1, &texts[1]), (2, &texts[2])]).energy(0).unwrap();
        assert_eq!((energy.joules, energy.mean_w, energy.joules_per_output_token), (500.0, 250.0, None));
    }

    #[test]
    fn without_a_known_name_there_is_none() {
        assert_eq!(readings(&[]).energy(1), None);
        assert_eq!(readings(&[(0, "up 1\n"), (1, "up 1\n")]).energy(1), None);
        // One reading gives no energy, nor does a counter that was reset.
        let counter = |n: u64| format!("nvidia_smi_energy_joules_total {n}\n");
        assert_eq!(readings(&[(0, &counter(9))]).energy(1), None);
        assert_eq!(readings(&[(0, &counter(9)), (1, &counter(1))]).energy(1), None);
    }

    /// Two packages of 1 and 2 MJ, whose cores are not added again, and a GPU; a disk's sensor is ignored.
    #[test]
    fn counters_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = folder.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        write("powercap/intel-rapl:0/energy_uj", "1000000\n");
        write("powercap/intel-rapl:0:0/energy_uj", "500\n");
        write("powercap/intel-rapl:1/energy_uj", "2000000\n");
        write("hwmon/hwmon0/name", "nvme\n");
        write("hwmon/hwmon0/power1_average", "7\n");
        write("hwmon/hwmon1/name", "amdgpu\n");
        write("hwmon/hwmon1/power1_average", "250000000\n");
        let mut all = BTreeMap::new();
        here(folder.path(), &mut all);
        assert_eq!(all, [(RAPL.to_owned(), 3e6), (AMDGPU.to_owned(), 2.5e8)].into());
    }
}
