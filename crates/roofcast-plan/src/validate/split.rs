//! The split of measured rows into rows that may be read singly during work on the cost model and rows that only judge
//! it.
//!
//! Knows: the side of a row, decided by a fixed hash of its group (model, accelerator, engine, weights) for all sources
//! at once, so that no deployment is on both sides. Knows nothing about forecasts.

use crate::measurement::Measurement;
use serde::Serialize;

/// Modulus of a group's hash; the remainder is the group's position.
const PLACES: u64 = 1000;
/// Positions below this are on the side that may be looked at: a quarter.
const LOOK: u64 = 250;
/// Positions below this may be used in fits: all groups that may be looked at, and half of those that judge.
const TEACHES: u64 = 625;

/// Side of a row in the split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Residuals of single rows may be read.
    Look,
    /// Rows are read only as one table of errors.
    Judge,
}

roofcast_facts::named! { Side {
    Look: "look",
    Judge: "judge",
} }

impl Side {
    /// The side of `row`.
    pub fn of(row: &Measurement) -> Side {
        if place(&row.group()) < LOOK { Side::Look } else { Side::Judge }
    }
}

/// True if a fit may use `row`: every row that may be looked at, and half of the groups that judge.
pub fn teaches(row: &Measurement) -> bool {
    place(&row.group()) < TEACHES
}

/// Position of a group, from 0 to 999; case is ignored.
fn place(group: &str) -> u64 {
    fnv1a(group.to_ascii_lowercase().as_bytes()) % PLACES
}

/// FNV-1a hash of 64 bits (Fowler, Noll and Vo; RFC 9923).
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::read;

    /// Test vectors of the hash's authors (<http://www.isthe.com/chongo/src/fnv/test_fnv.c>).
    #[test]
    fn the_hash_is_fnv1a() {
        let hashes = ["", "a", "foobar"].map(|text| fnv1a(text.as_bytes()));
        assert_eq!(hashes, [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]);
    }

    /// 0x85944171f73967e8 is 9,625,390,261,332,436,968, so that the position is 968, in lower case or not.
    #[test]
    fn a_place_is_the_hash_modulo_a_thousand() {
        assert_eq!(["foobar", "FooBar"].map(place), [968, 968]);
    }

    /// All sources, kinds and loads of a deployment are on one side.
    #[test]
    fn all_sources_of_a_deployment_are_on_one_side() {
        let header = "source,kind,model,hardware,engine,weights,input_len,output_len,concurrency";
        let rows: String = (0..400)
            .map(|n| format!("s{},closed_loop,m{},h100-sxm,vllm,fp8,{n},64,4\n", n % 7, n / 2))
            .collect();
        let rows = read("f.csv", &format!("{header}\n{rows}")).unwrap();
        let sides: Vec<Side> = rows.iter().map(Side::of).collect();
        assert!(sides.chunks(2).all(|pair| pair[0] == pair[1]));
        // A quarter of 400 rows, in 200 groups of two: 100, with three standard deviations of 2 · √(200 · 0.25 · 0.75)
        // = 37.
        let look = sides.iter().filter(|side| **side == Side::Look).count();
        assert!((63..=137).contains(&look), "{look}");
        let taught = rows.iter().filter(|row| teaches(row)).count();
        // Five eighths of 400 rows are 250, ± 3 · 2 · √(200 · 0.625 · 0.375) = 41.
        assert!((209..=291).contains(&taught), "{taught}");
        assert!(rows.iter().zip(&sides).all(|(row, side)| *side == Side::Judge || teaches(row)));
    }
}
