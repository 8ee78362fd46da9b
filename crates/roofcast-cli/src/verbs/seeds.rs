//! `roofcast seeds`: recomputes every figure of the texts from which roofcast was developed.

use crate::args::SeedsArgs;
use crate::input;
use crate::show;
use crate::show::number::{grouped, significant};
use crate::show::table::{WIDTH, wrapped};
use roofcast::Catalog;
use roofcast::seeds::{Claim, Seed, claims};
use serde::Serialize;
use std::process::ExitCode;

/// Claims of published texts, recomputed.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Seeds"))]
pub(crate) struct Answer {
    /// The texts.
    seeds: Vec<Text>,
}

/// A published text with its claims.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "SeedText"))]
struct Text {
    /// Number of the text, as in `003`.
    seed: &'static str,
    /// Title of the text.
    title: &'static str,
    /// Figures of the text.
    claims: Vec<Claim>,
}

pub(crate) fn run(args: &SeedsArgs) -> anyhow::Result<ExitCode> {
    let catalog = input::catalog(&[])?;
    let wanted = args.seed.map_or(Seed::ALL.to_vec(), |seed| vec![seed]);
    let seeds = wanted.into_iter().map(|seed| text(&catalog, seed)).collect::<Result<Vec<_>, _>>()?;
    if args.output.json {
        show::json("roofcast/seeds/1", &Answer { seeds })?;
    } else if args.output.csv {
        let header = ["seed", "section", "claim", "said", "unit", "recomputed", "roofcast", "verdict", "why"];
        let rows: Vec<_> = seeds.iter().flat_map(|t| t.claims.iter().map(|c| row(t.seed, c))).collect();
        show::csv(&header, &rows)?;
    } else {
        show::text(&seeds.iter().map(people).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(catalog: &Catalog, seed: Seed) -> roofcast::Result<Text> {
    Ok(Text { seed: seed.id(), title: seed.title(), claims: claims(catalog, seed)? })
}

fn row(seed: &str, c: &Claim) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
    vec![
        seed.to_owned(),
        c.section.to_owned(),
        c.claim.clone(),
        c.said.clone(),
        c.unit.to_owned(),
        number(c.recomputed),
        number(c.roofcast),
        c.verdict.name().to_owned(),
        c.why.clone(),
    ]
}

/// The cells of one claim: claim, stated value, recomputed value, roofcast's value, unit, verdict.
fn cells(c: &Claim) -> [String; 6] {
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), figure);
    [
        c.claim.clone(),
        c.said.clone(),
        shown(c.recomputed),
        shown(c.roofcast),
        c.unit.to_owned(),
        c.verdict.name().to_owned(),
    ]
}

/// The text of a seed in sections; an explanation follows its claim, on a separate line if the line would be too wide.
fn people(text: &Text) -> String {
    let mut out = format!("seed {}: {}\n", text.seed, text.title);
    for claims in text.claims.chunk_by(|a, b| a.section == b.section) {
        let section = claims.first().map_or("", |c| c.section);
        out.push_str(&format!("\n{section}\n{}", table(claims)));
    }
    out
}

fn table(claims: &[Claim]) -> String {
    let header = ["", "the seed says", "recomputed", "roofcast", "unit", "verdict"].map(str::to_owned);
    let rows: Vec<[String; 6]> = claims.iter().map(cells).collect();
    let mut widths: [usize; 6] = std::array::from_fn(|column| {
        let length = |row: &[String; 6]| row[column].chars().count();
        rows.iter().chain([&header]).map(length).max().unwrap_or(0)
    });
    // A claim that is too long for its column continues on the next lines.
    let figures = widths[1..].iter().map(|w| w + 2).sum::<usize>() + 2;
    widths[0] = widths[0].min(WIDTH - figures.min(WIDTH));
    let room = WIDTH.saturating_sub(widths.iter().map(|w| w + 2).sum::<usize>() + 2);
    let mut out = line(&header, &widths, "");
    for (claim, row) in claims.iter().zip(&rows) {
        if claim.why.chars().count() <= room {
            out.push_str(&line(row, &widths, &claim.why));
            continue;
        }
        out.push_str(&line(row, &widths, ""));
        for part in wrapped(&claim.why, WIDTH - 6) {
            out.push_str(&format!("      {part}\n"));
        }
    }
    out
}

/// One row: words on the left, figures on the right, the explanation `why` last.
fn line(row: &[String; 6], widths: &[usize; 6], why: &str) -> String {
    let [claim, said, recomputed, roofcast, unit, verdict] = row;
    let [w0, w1, w2, w3, w4, w5] = widths;
    let mut parts = wrapped(claim, *w0).into_iter();
    let claim = parts.next().unwrap_or_default();
    let rest: String = parts.map(|part| format!("    {part}\n")).collect();
    let text = format!(
        "  {claim:<w0$}  {said:>w1$}  {recomputed:>w2$}  {roofcast:>w3$}  {unit:<w4$}  {verdict:<w5$}  {why}"
    );
    format!("{}\n{rest}", text.trim_end())
}

/// Formats a figure: whole numbers with groups of digits, others with at least three digits; powers of ten from 10^12
/// on.
fn figure(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "–".to_owned();
    }
    if size >= 1e12 {
        return format!("{value:.2e}");
    }
    if size >= 1000.0 || size == size.round() {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", grouped(size.round() as u64));
    }
    if size < 0.01 { format!("{value:.6}") } else { significant(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        let shown = [257_424.0, -22_747.4, 13.118, 0.276, 0.002_097, 138.0, 5.9e17].map(figure);
        assert_eq!(shown, ["257,424", "-22,747", "13.12", "0.276", "0.002097", "138", "5.90e17"]);
    }
}
