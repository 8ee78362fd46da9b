//! Rows of a measurements CSV.
//!
//! Knows: the columns and the valid values of their cells. Knows nothing about deployments.

use super::kind::KINDS;
use super::{Lengths, Measurement, MeasurementKind, Metrics, RowSettings, TpotMean};
use roofcast_ask::parallelism::RequestedParallelism;
use roofcast_ask::spec::PoolSpec;
use roofcast_ask::workload::Workload;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::table;

/// Reads a measurements CSV, all or nothing: any wrong row is an error. `place` names the file in errors.
pub fn read(place: &str, text: &str) -> Result<Vec<Measurement>> {
    read_each(place, text)?.into_iter().collect()
}

/// Reads a measurements CSV row by row: each row gives a measurement, or an error with its line number. `place` names
/// the file in errors.
pub fn read_each(place: &str, text: &str) -> Result<Vec<Result<Measurement>>> {
    let mut reader = table::reader(text);
    let separator = table::separator(text);
    let broken = |e: csv::Error| table::broken(place, text, &e);
    let header = reader.headers().map_err(broken)?.clone();
    for needed in ["model", "hardware"] {
        if !header.iter().any(|h| h == needed) {
            let accepted =
                "a measurements CSV with the columns model, hardware, kind and those of its metrics";
            return Err(Error::field(place, needed, "missing", accepted));
        }
    }
    let row = |record: csv::Result<csv::StringRecord>| {
        let record = record.map_err(broken)?;
        let line = table::line(text, record.position());
        MeasurementLine { place: format!("{place}:{line}"), header: &header, record: &record, separator }
            .read()
    };
    Ok(reader.records().map(row).collect())
}

/// One line of the file, with the header.
struct MeasurementLine<'a> {
    place: String,
    header: &'a csv::StringRecord,
    record: &'a csv::StringRecord,
    separator: char,
}

impl MeasurementLine<'_> {
    fn text(&self, column: &str) -> &str {
        let index = self.header.iter().position(|h| h == column);
        index.and_then(|i| self.record.get(i)).unwrap_or_default().trim()
    }

    fn number(&self, column: &str) -> Result<Option<f64>> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        match table::pointed(text, self.separator).parse::<f64>() {
            Ok(v) if v.is_finite() && (0.0..=1e12).contains(&v) => Ok(Some(v)),
            _ => Err(Error::field(&self.place, column, text, "empty, or a number from 0 to 10^12")),
        }
    }

    /// Reads requests per second; `inf`, as benchmark clients write a burst, is read as no rate.
    fn rate(&self) -> Result<Option<f64>> {
        match self.text("request_rate") {
            "inf" | "Inf" | "infinity" => Ok(None),
            _ => Ok(self.number("request_rate")?.filter(|rate| *rate > 0.0)),
        }
    }

    /// Reads a count; zero is read as absent.
    fn count(&self, column: &str) -> Result<Option<u64>> {
        match self.number(column)? {
            None | Some(0.0) => Ok(None),
            Some(n) if n.fract() == 0.0 && n <= 1e9 => Ok(Some(n as u64)),
            Some(n) => Err(Error::field(&self.place, column, n, "empty, or a whole number up to 10^9")),
        }
    }

    /// Reads token counts; a fractional mean is rounded.
    fn lengths(&self, column: &str) -> Result<Option<Lengths>> {
        let tokens = |column: &str| -> Result<Option<u64>> {
            match self.number(column)?.map(f64::round) {
                None | Some(0.0) => Ok(None),
                Some(n) if n <= 1e9 => Ok(Some(n as u64)),
                Some(n) => Err(Error::field(&self.place, column, n, "empty, or tokens up to 10^9")),
            }
        };
        let Some(max) = tokens(column)? else { return Ok(None) };
        let min_column = format!("{column}_min");
        let min = tokens(&min_column)?.unwrap_or(max);
        if min > max {
            return Err(Error::field(&self.place, min_column, min, format!("at most {column}, {max}")));
        }
        Ok(Some(Lengths { min, max }))
    }

    /// Kind of a row that states none: that of pools, or of a server's run at a rate or with a number of users.
    fn implied(&self, pools: bool) -> Option<MeasurementKind> {
        let has = |column: &str| !self.text(column).is_empty();
        match () {
            () if pools => Some(MeasurementKind::Disaggregated),
            () if has("workload") || !has("output_len") => None,
            () if has("request_rate") => Some(MeasurementKind::OpenLoop),
            () if has("concurrency") => Some(MeasurementKind::ClosedLoop),
            () => None,
        }
    }

    fn read(&self) -> Result<Measurement> {
        let pools = self.pools()?;
        let stated = self.text("kind");
        let known = KINDS.iter().find(|(name, _)| *name == stated).map(|(_, kind)| *kind);
        let implied = if stated.is_empty() { self.implied(pools.is_some()) } else { None };
        let kind = known.or(implied).ok_or_else(|| {
            let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            let accepted = format!(
                "{}; or, for a server's run without one, output_len with concurrency (closed_loop) or request_rate \
                 (open_loop)",
                names.join(", ")
            );
            Error::field(&self.place, "kind", format!("{stated:?}"), accepted)
        })?;
        let assumed = implied.filter(|_| pools.is_none());
        let notes = assumed.map(|kind| format!("kind is taken as {}, by its columns", kind.name()));
        let measured = Metrics {
            ttft_ms: self.number("ttft_ms")?,
            tpot_ms: self.number("tpot_ms")?,
            e2e_ms: self.number("e2e_ms")?,
            output_tok_s: self.number("output_tok_s")?,
            total_tok_s: self.number("total_tok_s")?,
        };
        let text_or = |column: &str, absent: &str| match self.text(column) {
            "" => absent.to_owned(),
            text => text.to_owned(),
        };
        let engine = text_or("engine", "vllm");
        Ok(Measurement {
            id: text_or("id", &self.place),
            source: text_or("source", ""),
            kind,
            model: text_or("model", ""),
            hardware: text_or("hardware", ""),
            parallelism: match &pools {
                Some([_, decode]) => RequestedParallelism {
                    tp: decode.tp,
                    pp: decode.pp,
                    ep: decode.ep,
                    attention_dp: decode.attention_dp,
                    ..RequestedParallelism::default()
                },
                None => self.parallelism()?,
            },
            pools: pools.clone(),
            engine,
            version: text_or("engine_version", ""),
            weights: text_or("weights", ""),
            kv: text_or("kv_cache", ""),
            input: self.lengths("input_len")?.map(|l| if pools.is_some() { l.as_in_inferencex() } else { l }),
            output: self
                .lengths("output_len")?
                .map(|l| if pools.is_some() { l.as_in_inferencex() } else { l }),
            context: self.count("context_len")?,
            concurrency: self.count("concurrency")?,
            request_rate: self.rate()?,
            measured,
            median: self.text("stat").starts_with("median"),
            tpot_mean: TpotMean::Requests,
            workload: self.workload()?,
            notes: notes.into_iter().collect(),
            settings: RowSettings::read(&self.place, self.text("settings"))?,
        })
    }

    /// The load of a row that carries it, as JSON of `[workload]`.
    fn workload(&self) -> Result<Option<Box<Workload>>> {
        let text = self.text("workload");
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = |e: serde_json::Error| Error::field(&self.place, "workload", text, e);
        Ok(Some(Box::new(serde_json::from_str(text).map_err(wrong)?)))
    }

    /// Prefill and decode pools of a row with columns for workers (`prefill_tp`, `decode_tp` and others); the columns
    /// describe one worker of each pool.
    fn pools(&self) -> Result<Option<[PoolSpec; 2]>> {
        let pool = |side: &str| -> Result<PoolSpec> {
            let column = |name: &str| format!("{side}_{name}");
            let count = |name: &str| Ok(Some(self.count(&column(name))?.unwrap_or(1)));
            let (tp, dp): (Option<u64>, Option<u64>) = (count("tp")?, count("attention_dp")?);
            let ranks = tp.unwrap_or(1).saturating_mul(dp.unwrap_or(1));
            if self.number(&column("workers"))? == Some(0.0) {
                let accepted = "empty, or a whole number from 1 to 10^9";
                return Err(Error::field(&self.place, column("workers"), 0, accepted));
            }
            Ok(PoolSpec {
                replicas: count("workers")?,
                tp,
                pp: count("pp")?,
                ep: Some(self.count(&column("ep"))?.unwrap_or(1).min(ranks)),
                attention_dp: dp,
                ..PoolSpec::default()
            })
        };
        match self.text("prefill_workers") {
            "" => Ok(None),
            _ => Ok(Some([pool("prefill")?, pool("decode")?])),
        }
    }

    /// Degrees of parallelism of the row. Some sources state more expert-parallel ranks than exist, so the number is
    /// limited to the ranks of a stage.
    fn parallelism(&self) -> Result<RequestedParallelism> {
        let tp = self.count("tp")?.unwrap_or(1);
        let dp = self.count("attention_dp")?.unwrap_or(1);
        Ok(RequestedParallelism {
            count: self.count("gpus")?,
            tp: Some(tp),
            pp: self.count("pp")?,
            ep: self.count("ep")?.map(|ep| ep.min(tp.saturating_mul(dp))).filter(|ep| *ep > 1),
            attention_dp: Some(dp),
            replicas: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrong row is refused with its line number, and all other rows are read; an engine that is not forecast is none
    /// of the file's faults.
    #[test]
    fn rows_are_refused_one_by_one() {
        let file = "kind,model,hardware,engine,tpot_ms\ndecode_step,m,h100-sxm,vllm,9\ndecode_step,m,h100-sxm,vllm,-9\n\
                    decode_step,m,h100-sxm\ndecode_step,m,h100-sxm,vlm,9\ndecode_step,m,h100-sxm,,9\n";
        let rows = read_each("f.csv", file).unwrap();
        assert_eq!(rows.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, true, true]);
        for (index, line, says) in [(1, ":3", "tpot_ms"), (2, ":4", "3 fields")] {
            let error = rows[index].as_ref().unwrap_err().to_string();
            assert!(error.contains(line) && error.contains(says), "{error}");
        }
        let error = rows[3].as_ref().unwrap().check_engine().unwrap_err().to_string();
        assert!(error.contains(":5") && error.contains("vllm, sglang"), "{error}");
        assert!(read("f.csv", file).is_err());
    }

    /// Two prefill workers of 4 data-parallel ranks and one decode worker of tp 8; lengths of 1,024 tokens vary from
    /// 819 to 1,024.
    #[test]
    fn pools_of_workers() {
        let header = "model,hardware,engine,weights,input_len,output_len,concurrency,prefill_workers,prefill_tp,\
                      prefill_attention_dp,prefill_ep,decode_workers,decode_tp,decode_ep,tpot_ms";
        let row = read("f.csv", &format!("{header}\nm,gb300,sglang,fp8,1024,8192,36,2,1,4,4,1,8,1,11.3\n"));
        let row = row.unwrap().remove(0);
        let [prefill, decode] = row.pools.unwrap();
        assert_eq!((prefill.replicas, prefill.attention_dp, prefill.ep), (Some(2), Some(4), Some(4)));
        assert_eq!((decode.replicas, decode.tp, decode.ep), (Some(1), Some(8), Some(1)));
        assert_eq!((row.kind, row.parallelism.tp), (MeasurementKind::Disaggregated, Some(8)));
        assert_eq!(row.input, Some(Lengths { min: 819, max: 1024 }));
        for (workers, wrong, found) in [
            ("many,1", "prefill_workers", "many"),
            ("1,0", "decode_workers", "0"),
            ("0,1", "prefill_workers", "0"),
        ] {
            let file = format!("model,hardware,prefill_workers,decode_workers\nm,h100-sxm,{workers}\n");
            let error = read("f.csv", &file).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains(found), "{error}");
        }
    }
}
