//! Device names that differ from the catalog's spelling: `H100 80GB HBM3`, `A100 80GB PCIe`, `M3 Ultra (80c)`.
//!
//! Knows: words may be in any order, some carry no information (`GPU`, `HBM3`, `Edition`), and a memory size and a
//! number of cores must agree with the entry. A device name with a word that the entry lacks means another device.

use super::entries::{Entries, Slot};
use super::names::{telling, words};
use crate::accelerator::Accelerator;

/// Words of device names that carry no information: no two devices of the catalog differ in them alone.
const IDLE: [&str; 31] = [
    "gpu",
    "gpus",
    "graphics",
    "card",
    "tensor",
    "core",
    "cores",
    "processor",
    "edition",
    "generation",
    "accelerator",
    "oam",
    "sxm",
    "hgx",
    "dgx",
    "hbm2",
    "hbm2e",
    "hbm3",
    "hbm3e",
    "gddr6",
    "gddr6x",
    "gddr7",
    "memory",
    "vram",
    "unified",
    "ram",
    "blackwell",
    "arc",
    "rtx",
    "tpu",
    "ac",
];
/// Names of computers, removed first because words in them also occur in names of chips.
const COMPUTERS: [&[&str]; 6] = [
    &["macbook", "pro"],
    &["macbook", "air"],
    &["mac", "studio"],
    &["mac", "mini"],
    &["mac", "pro"],
    &["imac"],
];

/// Device name, split into parts.
#[derive(Debug, Default, PartialEq)]
struct Device {
    words: Vec<String>,
    /// Memory size in GB or GiB; makers write either, so that both are accepted.
    memory: Option<u64>,
    cores: Option<u64>,
}

/// True for a name without a word that distinguishes devices, such as `gpu`.
pub(super) fn is_generic(name: &str) -> bool {
    let words = words(name);
    !words.is_empty() && words.iter().all(|word| IDLE.contains(&word.as_str()))
}

/// Entries that a device name may mean; if the name states neither memory nor cores, the first entry of the chip.
pub(super) fn find<'a>(entries: &'a Entries<Accelerator>, name: &str) -> Vec<&'a Slot<Accelerator>> {
    let wanted = Device::read(name);
    let mut best = (0, Vec::<&Slot<Accelerator>>::new());
    for slot in entries.iter().filter(|_| !wanted.words.is_empty()) {
        let named: Vec<Device> = slot.names().map(Device::read).collect();
        let Some(shared) = wanted.shared(&named) else { continue };
        if shared > best.0 {
            best = (shared, Vec::new());
        }
        // A name without memory size or number of cores means the first entry of the chip.
        let cored = wanted.cores.is_none() && named.iter().any(|n| n.cores.is_some());
        let option =
            wanted.memory.is_none() && best.1.iter().any(|b| b.beside(slot)) || cored && !best.1.is_empty();
        if shared == best.0 && !option {
            best.1.retain(|b| b.id != slot.id);
            best.1.push(slot);
        }
    }
    best.1
}

/// Splits a device name with a count before or after it: `8xH100`, `2 x RTX 3090`, `H200 x8`, `TPU v6e-8`.
pub(super) fn counted(name: &str) -> Option<(u64, &str)> {
    const TIMES: [char; 4] = ['x', 'X', '×', '*'];
    let name = name.trim();
    let digit = |c: char| c.is_ascii_digit();
    let rest = name.trim_start_matches(digit);
    if let Ok(count) = name[..name.len() - rest.len()].parse() {
        return rest.trim_start().strip_prefix(TIMES).map(|device| (count, device.trim_start()));
    }
    let device = name.trim_end_matches(digit);
    let count = name[device.len()..].parse().ok()?;
    let apart = device.ends_with(char::is_whitespace);
    let sign = |c: char| TIMES.contains(&c) || c == '-' && !apart;
    let device = device.trim_end().strip_suffix(sign)?;
    // The X of `RTX 3090` belongs to the name.
    (!apart || device.ends_with(char::is_whitespace)).then(|| (count, device.trim_end()))
}

impl Device {
    fn read(name: &str) -> Device {
        let mut all = words(name);
        for computer in COMPUTERS {
            if let Some(at) = all.windows(computer.len()).position(|w| w == computer) {
                // A laptop's name may be followed by its screen size in inches.
                let inches = all
                    .get(at + computer.len())
                    .is_some_and(|w| ["13", "14", "15", "16"].contains(&w.as_str()));
                all.drain(at..at + computer.len() + usize::from(inches));
            }
        }
        // `40 GPU cores` is read as `40 cores`.
        let core = |word: Option<&String>| word.is_some_and(|w| w.starts_with("core"));
        let gpu = (0..all.len()).find(|&at| all[at] == "gpu" && core(all.get(at + 1)));
        gpu.map(|at| all.remove(at));
        let mut device = Device::default();
        let mut rest = all.iter().map(String::as_str).peekable();
        while let Some(word) = rest.next() {
            let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let number = digits.parse::<u64>().ok();
            let mut unit = &word[digits.len()..];
            let next = rest.peek().copied().unwrap_or_default();
            if unit.is_empty() && number.is_some() && ["gb", "gib", "core", "cores"].contains(&next) {
                unit = next;
                rest.next();
            }
            match (number, unit) {
                (Some(size), "gb" | "gib" | "g") => device.memory = Some(size),
                (Some(cores), "c" | "core" | "cores") => device.cores = Some(cores),
                _ => device.words.push(form_factor(word).to_owned()),
            }
        }
        device.words = telling(&device.words.join(" "));
        device
    }

    /// Number of words that a device name shares with an entry; `None` unless the device name contains all words of
    /// one of the entry's names and no word that is in none of them.
    fn shared(&self, named: &[Device]) -> Option<usize> {
        let among = |list: &[String], word: &String| list.contains(word);
        let known =
            |word: &String| IDLE.contains(&word.as_str()) || named.iter().any(|n| among(&n.words, word));
        let same = |ours: Option<u64>, theirs: fn(&Device) -> Option<u64>| {
            ours.is_none() || named.iter().any(|n| theirs(n) == ours)
        };
        let fits =
            self.words.iter().all(known) && same(self.memory, |n| n.memory) && same(self.cores, |n| n.cores);
        let telling = |n: &Device| -> Vec<String> {
            n.words.iter().filter(|w| !IDLE.contains(&w.as_str())).cloned().collect()
        };
        let whole =
            named.iter().map(telling).filter(|n| !n.is_empty() && n.iter().all(|w| among(&self.words, w)));
        whole.map(|n| n.len()).max().filter(|_| fits)
    }
}

/// Reduces `sxm4` and `sxm5` to `sxm`: no two entries differ in the generation of the socket alone.
fn form_factor(word: &str) -> &str {
    match word.strip_prefix("sxm") {
        Some(rest) if rest.chars().all(|c| c.is_ascii_digit()) => "sxm",
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalog;

    fn found(name: &str) -> Vec<&'static str> {
        let catalog = Catalog::embedded().unwrap();
        find(&catalog.accelerators, name).iter().map(|s| s.id.as_ref()).collect()
    }

    #[test]
    fn words_in_any_order_with_memory_and_cores() {
        for (name, id) in [
            ("NVIDIA H100 80GB HBM3", "h100-sxm"),
            ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
            ("H200 SXM 141GB", "h200-sxm"),
            ("RTX 6000 Pro", "rtx-pro-6000"),
            ("RTX Pro 6000 Blackwell 96 GB", "rtx-pro-6000"),
            ("M3 Ultra (80c)", "m3-ultra"),
            ("Apple M3 Ultra 60-core GPU 96GB unified memory", "m3-ultra-60core-96gb"),
            ("MacBook Pro M4 Max 64GB", "m4-max-64gb"),
            ("DGX B200", "b200-sxm"),
            ("AMD EPYC 9654 96-Core Processor", "epyc-9654"),
            ("Apple M4 Max (40 GPU cores)", "m4-max"),
            ("MacBook Pro 16 M4 Max 128GB", "m4-max"),
            ("NVIDIA B300 SXM6 AC", "b300-sxm"),
            ("Dell Pro Max with GB10", "gb10"),
            ("Framework Desktop", "strix-halo"),
            ("Tesla V100-PCIE-32GB", "v100-pcie-32gb"),
            ("TPU v6e", "tpu-v6e"),
        ] {
            assert_eq!(found(name), [id], "{name}");
        }
    }

    #[test]
    fn a_number_is_no_part_of_the_name() {
        assert_eq!(counted("8xH100"), Some((8, "H100")));
        assert_eq!(counted("2 x RTX 3090"), Some((2, "RTX 3090")));
        assert_eq!(counted("H200 x8"), Some((8, "H200")));
        assert_eq!(counted("H200 x 8"), Some((8, "H200")));
        assert_eq!(counted("tpu-v6e-8"), Some((8, "tpu-v6e")));
        for other in ["3090", "H100", "x", "", "99999999999999999999999xH100", "RTX 3090"] {
            assert_eq!(counted(other), None, "{other}");
        }
        let message = Catalog::embedded().unwrap().accelerator("8x NVIDIA H100").unwrap_err().to_string();
        assert!(message.contains("h100-sxm") && message.contains("hardware.count = 8"), "{message}");
        let message = Catalog::embedded().unwrap().accelerator("TPU v6e-8").unwrap_err().to_string();
        assert!(message.contains("tpu-v6e") && message.contains("hardware.count = 8"), "{message}");
    }

    /// A different memory size, a different number of cores or an unknown word means another device.
    #[test]
    fn a_device_that_is_not_there_is_not_guessed() {
        for name in [
            "H100 64GB",
            "RTX 4060 Ti 24GB",
            "M3 Ultra (72c)",
            "Tesla M40",
            "Tesla P4",
            "RTX 5090 D",
            "A100X",
            "H100 CNX",
            "GTX 1080 Ti",
            "B100",
            "80GB",
            "GPU",
            "8xH100",
            "",
        ] {
            assert!(found(name).is_empty(), "{name}: {:?}", found(name));
        }
    }
}
