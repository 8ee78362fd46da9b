//! GPUs of this machine, as their makers' tools list them. Rates are neither measured nor guessed.
//!
//! Knows: the output of `nvidia-smi` and `rocm-smi`, and the catalog entry for a card's name. The catalog has the
//! rates.

use anyhow::{Context, Result, bail};
use roofcast::Catalog;
use roofcast::accelerator::Accelerator;
use roofcast::units::Bytes;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest run time of a tool, because tools hang if the driver is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// A GPU card; a field is `None` if the tool does not report it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Gpu {
    /// Program that listed the card.
    pub(crate) tool: &'static str,
    /// Name of the card in the driver.
    pub(crate) name: String,
    /// Id of the card's entry in the catalog.
    pub(crate) catalog: Option<String>,
    /// Memory that the driver reports.
    pub(crate) memory_bytes: Option<Bytes>,
    /// Highest PCIe generation that both card and slot support.
    pub(crate) pcie_generation: Option<u32>,
    /// Largest number of PCIe lanes that both card and slot support.
    pub(crate) pcie_lanes: Option<u32>,
    /// Power limit as currently set, in watts.
    pub(crate) power_limit_w: Option<f64>,
}

/// A GPU maker's command-line tool.
struct Tool {
    name: &'static str,
    arguments: &'static [&'static str],
    parse: fn(&str, &Catalog) -> Result<Vec<Gpu>>,
}

const TOOLS: [Tool; 2] = [
    Tool {
        name: "nvidia-smi",
        arguments: &[
            "--query-gpu=name,memory.total,pcie.link.gen.max,pcie.link.width.max,power.limit",
            "--format=csv,noheader,nounits",
        ],
        parse: nvidia,
    },
    Tool {
        name: "rocm-smi",
        arguments: &["--showproductname", "--showmeminfo", "vram", "--showmaxpower", "--csv"],
        parse: rocm,
    },
];

/// The cards that the tools list, and a note for each tool that failed. A missing tool is not an error.
pub(crate) fn find(catalog: &Catalog) -> (Vec<Gpu>, Vec<String>) {
    let mut gpus = vec![];
    let mut notes = vec![];
    for tool in &TOOLS {
        match output(tool).and_then(|text| text.map_or(Ok(vec![]), |text| (tool.parse)(&text, catalog))) {
            Ok(found) => gpus.extend(found),
            Err(error) => notes.push(format!("{}: {error:#}", tool.name)),
        }
    }
    (gpus, notes)
}

/// Standard output of a tool; `None` if it is not installed. A tool that prints more than a pipe holds, or that takes
/// too long, is killed.
fn output(tool: &Tool) -> Result<Option<String>> {
    let start = Command::new(tool.name)
        .args(tool.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match start {
        Ok(child) => child,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let since = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if since.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            bail!("no answer in {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut text = vec![];
    child.stdout.take().context("no output")?.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    if !status.success() {
        let complaint: String = text.lines().next().unwrap_or_default().chars().take(200).collect();
        bail!("{status}: {complaint}");
    }
    Ok(Some(text))
}

/// Parses lines of `name, MiB, PCIe generation, lanes, W`; missing values are `[N/A]`.
fn nvidia(text: &str, catalog: &Catalog) -> Result<Vec<Gpu>> {
    let line = |line: &str| {
        let [name, memory, generation, lanes, power] =
            line.split(',').map(str::trim).collect::<Vec<_>>().try_into().ok()?;
        let memory = memory.parse().ok().map(|mebibytes: u64| Bytes(1 << 20) * mebibytes);
        (!name.is_empty()).then(|| Gpu {
            tool: "nvidia-smi",
            name: name.to_owned(),
            catalog: entry(name, memory, catalog),
            memory_bytes: memory,
            pcie_generation: generation.parse().ok(),
            pcie_lanes: lanes.parse().ok(),
            power_limit_w: watts(power),
        })
    };
    text.lines()
        .filter(|l| !l.trim().is_empty())
        .map(|l| {
            line(l).with_context(|| format!("cannot read {:?}", l.chars().take(200).collect::<String>()))
        })
        .collect()
}

/// Parses a table whose header starts with `device`; columns are found by name, whose case differs between versions.
fn rocm(text: &str, catalog: &Catalog) -> Result<Vec<Gpu>> {
    let start =
        text.lines().position(|l| l.starts_with("device,")).context("no line starts with `device,`")?;
    let table = text.lines().skip(start).filter(|l| !l.trim().is_empty()).collect::<Vec<_>>().join("\n");
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let header = reader.headers()?.clone();
    let column = |name: &str| header.iter().position(|h| h.eq_ignore_ascii_case(name));
    let series = column("Card series").or(column("Device Name")).context("no column `Card series`")?;
    let total = column("VRAM Total Memory (B)");
    let power = column("Max Graphics Package Power (W)");
    let mut gpus = vec![];
    for row in reader.records() {
        let row = row?;
        let at = |column: Option<usize>| column.and_then(|c| row.get(c)).unwrap_or_default().trim();
        let name = at(Some(series));
        let memory = at(total).parse().ok().map(Bytes);
        // The line of the whole system (its `device` is `system`) has no card's name.
        if !name.is_empty() && name != "N/A" {
            gpus.push(Gpu {
                tool: "rocm-smi",
                name: name.to_owned(),
                catalog: entry(name, memory, catalog),
                memory_bytes: memory,
                pcie_generation: None,
                pcie_lanes: None,
                power_limit_w: watts(at(power)),
            });
        }
    }
    Ok(gpus)
}

fn watts(text: &str) -> Option<f64> {
    text.parse().ok().filter(|w: &f64| w.is_finite() && *w > 0.0)
}

/// The catalog entry whose id or alias has the words of the driver's name, in any order: `A100 80GB PCIe` is
/// `a100-pcie-80gb`. A further word means another card. If cards of several memory sizes have one name, the memory that
/// the driver reports decides.
fn entry(name: &str, memory: Option<Bytes>, catalog: &Catalog) -> Option<String> {
    let wanted = words(name);
    let known = catalog.accelerator_names().find(|known| !wanted.is_empty() && words(known) == wanted)?;
    let named = catalog.accelerator(known).ok()?;
    let fits = |chip: &&Accelerator| {
        memory.is_none_or(|m| (m.as_f64() / chip.usable_bytes.as_f64() - 1.0).abs() < OTHER_SIZE)
    };
    if fits(&named) {
        return Some(named.id.clone());
    }
    let sized = |name: &&str| {
        let size = name.strip_prefix(&named.id).and_then(|rest| rest.strip_prefix('-'));
        size.and_then(|s| s.strip_suffix("gb")).is_some_and(|s| s.parse::<u32>().is_ok())
    };
    let sizes = catalog.accelerator_names().filter(sized).filter_map(|name| catalog.accelerator(name).ok());
    Some(sizes.into_iter().find(fits).unwrap_or(named).id.clone())
}

/// Smallest relative difference that means another memory size. ECC reserves a sixteenth, which must stay below it.
const OTHER_SIZE: f64 = 0.15;

/// Words that distinguish cards; of `Aqua Vanjaram [Instinct MI300X]` only the words in brackets.
fn words(name: &str) -> BTreeSet<String> {
    const SAME: [&str; 10] =
        ["nvidia", "tesla", "geforce", "amd", "instinct", "oam", "hbm3", "hbm3e", "workstation", "edition"];
    let inner =
        name.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(name, |(inner, _)| inner);
    let lower = inner.to_lowercase();
    let all = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty());
    all.filter(|w| !SAME.contains(w)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> &'static Catalog {
        Catalog::embedded().unwrap()
    }

    #[test]
    fn nvidia_cards_are_read() {
        let text = "NVIDIA H100 80GB HBM3, 81559, 5, 16, 700.00\nNVIDIA GB10, [N/A], [N/A], [N/A], [N/A]\n";
        let cards = nvidia(text, catalog()).unwrap();
        let h100 = Gpu {
            tool: "nvidia-smi",
            name: "NVIDIA H100 80GB HBM3".into(),
            catalog: Some("h100-sxm".into()),
            // 81,559 MiB = 81,559 · 2^20 bytes.
            memory_bytes: Some(Bytes(85_520_809_984)),
            pcie_generation: Some(5),
            pcie_lanes: Some(16),
            power_limit_w: Some(700.0),
        };
        assert_eq!(cards[0], h100);
        assert_eq!(
            (cards[1].catalog.as_deref(), cards[1].memory_bytes, cards[1].power_limit_w),
            (Some("gb10"), None, None)
        );
    }

    #[test]
    fn names_of_drivers_find_their_entries_and_others_none() {
        for (name, id) in [
            ("NVIDIA H200", Some("h200-sxm")),
            ("NVIDIA A100-SXM4-80GB", Some("a100-sxm-80gb")),
            ("NVIDIA A100 80GB PCIe", Some("a100-pcie-80gb")),
            ("NVIDIA A100-PCIE-40GB", Some("a100-pcie-40gb")),
            ("Tesla V100-SXM2-16GB", Some("v100-16gb")),
            ("Tesla T4", Some("t4")),
            ("NVIDIA GeForce RTX 4090", Some("rtx-4090")),
            ("NVIDIA GeForce RTX 4090 D", Some("rtx-4090-d")),
            ("NVIDIA GeForce RTX 5090 D", None),
            ("NVIDIA GeForce RTX 4070 Ti SUPER", Some("rtx-4070-ti-super")),
            ("NVIDIA GeForce RTX 4070 Laptop GPU", Some("rtx-4070-laptop")),
            ("NVIDIA RTX 6000 Ada Generation", Some("rtx-6000-ada")),
            ("NVIDIA RTX A6000", Some("rtx-a6000")),
            ("NVIDIA RTX PRO 4500 Blackwell", Some("rtx-pro-4500")),
            ("NVIDIA RTX PRO 4000 Blackwell SFF Edition", Some("rtx-pro-4000-sff")),
            ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", Some("rtx-pro-6000-max-q")),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", Some("rtx-pro-6000-server")),
            ("AMD Radeon RX 7900 XTX", Some("rx-7900-xtx")),
            ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", Some("rtx-pro-6000")),
            ("AMD Instinct MI300X OAM", Some("mi300x")),
            ("Aqua Vanjaram [Instinct MI300X]", Some("mi300x")),
            ("Arcturus GL-XL [AMD Instinct MI100]", Some("mi100")),
            ("Vega 10 [Radeon Instinct MI25]", None),
            ("NVIDIA", None),
            ("", None),
        ] {
            assert_eq!(entry(name, None, catalog()).as_deref(), id, "{name}");
        }
    }

    #[test]
    fn of_two_sizes_under_one_name_the_counted_one_is_found() {
        for (name, mebibytes, id) in [
            ("NVIDIA GeForce RTX 4060 Ti", 8188, "rtx-4060-ti"),
            ("NVIDIA GeForce RTX 4060 Ti", 16380, "rtx-4060-ti-16gb"),
            ("NVIDIA GeForce RTX 3080", 12288, "rtx-3080-12gb"),
            ("NVIDIA RTX A2000", 12282, "rtx-a2000-12gb"),
            // A card rebuilt with more memory, which has an entry, and one of a size without an entry.
            ("NVIDIA GeForce RTX 4090", 49140, "rtx-4090-48gb"),
            ("NVIDIA GeForce RTX 3090", 49140, "rtx-3090"),
            ("NVIDIA A10", 24564, "a10"),
        ] {
            let card = entry(name, Some(Bytes(mebibytes << 20)), catalog());
            assert_eq!(card.as_deref(), Some(id), "{name} {mebibytes}");
        }
    }

    #[test]
    fn rocm_cards_are_read_whatever_stands_before_the_table() {
        let text = "WARNING: AMD GPU device(s) is/are in a low-power state.\n\
            device,Max Graphics Package Power (W),VRAM Total Memory (B),VRAM Total Used Memory (B),Card Series,Card Model,Card Vendor\n\
            card0,750.0,206141652992,299892736,AMD Instinct MI300X OAM,0x74a1,\"Advanced Micro Devices, Inc. [AMD/ATI]\"\n\
            \n\
            card1,N/A,N/A,N/A,0x738c,0x0c34,\"Advanced Micro Devices, Inc. [AMD/ATI]\"\n";
        let cards = rocm(text, catalog()).unwrap();
        assert_eq!(cards.len(), 2);
        assert_eq!((cards[0].catalog.as_deref(), cards[0].power_limit_w), (Some("mi300x"), Some(750.0)));
        assert_eq!(cards[0].memory_bytes, Some(Bytes(206_141_652_992)));
        assert_eq!(
            (cards[1].name.as_str(), cards[1].memory_bytes, cards[1].catalog.as_deref()),
            ("0x738c", None, None)
        );
        // The header of an older version, whose column names have another case.
        let old = "device,Card series,Card model,Card vendor,Card SKU\ncard0,Arcturus GL-XL [AMD Instinct MI100],0x0c34,AMD,D34316\n";
        assert_eq!(rocm(old, catalog()).unwrap()[0].memory_bytes, None);
    }

    #[test]
    fn garbage_is_an_error_and_nothing_is_no_card() {
        assert_eq!(nvidia("\n", catalog()).unwrap(), []);
        for text in ["NVIDIA-SMI has failed", "a,b\n", ", 1, 2, 3, 4", "\u{0}\u{1}"] {
            let message = nvidia(text, catalog()).unwrap_err().to_string();
            assert!(message.starts_with("cannot read"), "{message}");
        }
        for text in ["", "no AMD GPUs", "device,Temperature\ncard0,40", "device,Card series\ncard0,a,b,c"] {
            assert!(rocm(text, catalog()).is_err(), "{text}");
        }
        let strange = nvidia("X, -5, 4.5, many, inf", catalog()).unwrap();
        let x = &strange[0];
        assert_eq!(
            (x.memory_bytes, x.pcie_generation, x.pcie_lanes, x.power_limit_w),
            (None, None, None, None)
        );
    }
}
