//! Shape, size and context of each row of a table, and rows that are left out.
//!
//! Knows: the columns of AIConfigurator's tables. Knows nothing about kernels or times.

use super::columns::{Columns, Words};
use super::source::TimedWork;
use roofcast_facts::error::Result;

/// Most axes of a shape.
pub(super) const AXES: usize = 6;
/// Bytes of a 16-bit value of an all-reduce; tables count messages in values.
const WIDTH: u32 = 2;

/// Word columns of a table.
pub(super) struct WordColumns {
    pub(super) kernel: Words,
    pub(super) format: Words,
    /// Third word column: a distribution, a dtype of queries or a collective.
    pub(super) third: Words,
}

/// Function from a row to its shape, size and context; `None` for a row that is left out.
pub(super) type Points<'a> = Box<dyn Fn(usize) -> Option<([u32; AXES], u32, u32)> + 'a>;

/// Returns the function that reads the rows of a table.
pub(super) fn points<'a>(
    operator: TimedWork,
    columns: &'a Columns,
    named: &'a WordColumns,
) -> Result<Points<'a>> {
    match operator {
        TimedWork::Gemm => {
            let [n, k, m] = columns.numbers(["n", "k", "m"])?;
            Ok(Box::new(move |i| Some((axes([n.at(i), k.at(i)]), m.at(i), 0))))
        }
        TimedWork::Experts | TimedWork::Exchanged(_) => {
            let split = columns.numbers(["moe_tp_size", "moe_ep_size"])?;
            let [hidden, inter] = columns.numbers(["hidden_size", "inter_size"])?;
            let [top_k, experts, tokens] = columns.numbers(["topk", "num_experts", "num_tokens"])?;
            let shape = [hidden, inter, top_k, experts, split[0], split[1]];
            Ok(Box::new(move |i| Some((shape.map(|axis| axis.at(i)), tokens.at(i), 0))))
        }
        TimedWork::Attention { decode } => {
            let [heads, kv, dim] = columns.numbers(["num_heads", "num_key_value_heads", "head_dim"])?;
            let window = columns.numbers_if_any("window_size");
            let shape = move |i| {
                // In the tables 0 KV heads means as many as query heads.
                let kv = if kv.at(i) == 0 { heads.at(i) } else { kv.at(i) };
                axes([heads.at(i), kv, dim.at(i), window.at(i)])
            };
            sequences(decode, columns, shape)
        }
        TimedWork::Latent { decode } => {
            let [heads] = columns.numbers(["num_heads"])?;
            sequences(decode, columns, move |i| axes([heads.at(i)]))
        }
        TimedWork::Recurrent(_) => recurrent(columns, named),
        TimedWork::AllReduce | TimedWork::Collective(_) => all_reduce(columns, named),
        // `TableSource::exchanges` reads these tables, because a row has two times.
        TimedWork::Exchange(_) => Ok(Box::new(|_| None)),
    }
}

/// Rows of attention: sequences and context of a decode, or tokens of a prompt. Prompts in batches or with cached
/// tokens are left out.
fn sequences<'a>(
    decode: bool,
    columns: &'a Columns,
    shape: impl Fn(usize) -> [u32; AXES] + 'a,
) -> Result<Points<'a>> {
    let [batch, new, before] = columns.numbers(["batch_size", "isl", "step"])?;
    Ok(Box::new(move |i| match decode {
        true => Some((shape(i), batch.at(i), new.at(i).saturating_add(before.at(i)))),
        false => (batch.at(i) == 1 && before.at(i) == 0).then(|| (shape(i), new.at(i), 0)),
    }))
}

/// Rows of recurrences: sequences of a decode, or tokens of a single prompt.
fn recurrent<'a>(columns: &'a Columns, named: &'a WordColumns) -> Result<Points<'a>> {
    let shape = columns.numbers(["num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim"])?;
    let [batch, tokens] = columns.numbers(["batch_size", "seq_len"])?;
    Ok(Box::new(move |i| {
        let size = match named.format.word(named.format.code(i)) {
            "generation" => batch.at(i),
            "context" if batch.at(i) == 1 => tokens.at(i),
            _ => return None,
        };
        Some((axes(shape.map(|axis| axis.at(i))), size, 0))
    }))
}

/// Rows of all-reduces: bytes of messages of 16-bit values.
fn all_reduce<'a>(columns: &'a Columns, named: &'a WordColumns) -> Result<Points<'a>> {
    let [ranks, values] = columns.numbers(["num_gpus", "message_size"])?;
    Ok(Box::new(move |i| {
        let is = |column: &Words, accepted: &[&str]| {
            let word = column.word(column.code(i));
            word.is_empty() || accepted.contains(&word)
        };
        let counts = is(&named.third, &["all_reduce"]) && is(&named.format, &["bfloat16", "float16", "half"]);
        counts.then(|| (axes([ranks.at(i)]), values.at(i).saturating_mul(WIDTH), 0))
    }))
}

/// Pads a shape to the most axes.
fn axes<const N: usize>(axes: [u32; N]) -> [u32; AXES] {
    let mut all = [0; AXES];
    all.iter_mut().zip(axes).for_each(|(to, from)| *to = from);
    all
}
