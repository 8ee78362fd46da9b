//! Flags of `python -m sglang.launch_server` that are read together, because several keys depend on each.

use super::flags::{Given, wrong};
use super::{Command, count, formats, last, switched};
use crate::error::Result;

pub(super) fn read(apart: &[(String, Given)], command: &mut Command) -> Result<()> {
    formats(apart, command);
    let fraction = command.settings.iter().any(|s| s.path == "engine.gpu_memory_utilization");
    if fraction {
        let note =
            "--mem-fraction-static is taken as the share of memory for everything, activations among it";
        command.notes.push(note.to_owned());
    }
    // SGLang divides its tensor-parallel ranks into the data-parallel ranks of attention.
    let tp = count(apart, "tensor_parallel")?;
    let copies = count(apart, "data_parallel")?;
    let of_attention = match count(apart, "attention_data_parallel")? {
        Some(ranks) => Some(ranks),
        None => copies.filter(|_| switched(apart, "dp_attention")),
    };
    match of_attention {
        Some(ranks) => {
            let all = tp.unwrap_or(1);
            if all % ranks != 0 {
                let given = last(apart, "attention_data_parallel").or_else(|| last(apart, "data_parallel"));
                let divisor = format!("a divisor of {all}, the tensor-parallel size");
                return given.map_or(Ok(()), |given| Err(wrong(given, &divisor)));
            }
            command.set("parallelism.tp", all / ranks);
            command.set("parallelism.attention_dp", ranks);
        }
        None => {
            if let Some(tp) = tp {
                command.set("parallelism.tp", tp);
            }
            if let Some(copies) = copies.filter(|n| *n > 1) {
                command.set("parallelism.replicas", copies);
            }
        }
    }
    Ok(())
}
