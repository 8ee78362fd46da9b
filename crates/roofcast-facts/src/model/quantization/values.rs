//! Values that the sections of all tools have: numbers of bits, sizes of groups, lists of modules, and objects by module.
//!
//! Knows: their types and bounds. Knows nothing about what they mean in a section.

use crate::error::Result;
use crate::model::keys::{Keys, brief};
use serde_json::{Map, Value};

/// Most bits of a value that a section names; 16 and more leave a module as it is.
const MOST_BITS: u64 = 32;
/// Most values that share a scale.
const LARGEST_GROUP: i64 = 65_536;

/// Number of bits under the first of `keys` that has a value; `None` if none has.
pub(super) fn bits(section: &Keys, keys: &[&str]) -> Result<Option<u64>> {
    let Some((key, value)) = keys.iter().find_map(|key| Some((key, section.value(key)?))) else {
        return Ok(None);
    };
    match whole(value).and_then(|bits| u64::try_from(bits).ok()).filter(|bits| (1..=MOST_BITS).contains(bits))
    {
        Some(bits) => Ok(Some(bits)),
        None => Err(section.bad(key, brief(value), format!("a number of bits, 1 to {MOST_BITS}"))),
    }
}

/// Number of values that share a scale by `group_size`, `default` if it is absent; `None` if a row does, as -1 and
/// AutoRound's 0 say.
pub(super) fn group_size(section: &Keys, default: Option<u32>) -> Result<Option<u32>> {
    let Some(value) = section.value("group_size") else { return Ok(default) };
    match whole(value) {
        Some(-1 | 0) => Ok(None),
        Some(size @ 1..=LARGEST_GROUP) => Ok(Some(size as u32)),
        _ => {
            let accepted = format!("1 to {LARGEST_GROUP}, or -1 for a scale a row");
            Err(section.bad("group_size", brief(value), accepted))
        }
    }
}

/// Names and patterns of modules listed under `key`; none if it is absent.
pub(super) fn modules<'a>(section: &Keys<'a>, key: &str) -> Result<Vec<&'a str>> {
    let Some(value) = section.value(key) else { return Ok(Vec::new()) };
    let names = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    names.ok_or_else(|| section.bad(key, brief(value), "a list of modules' names"))
}

/// Object by module under `key`; `None` if it is absent.
pub(super) fn by_module<'a>(section: &Keys<'a>, key: &str) -> Result<Option<&'a Map<String, Value>>> {
    let Some(value) = section.value(key) else { return Ok(None) };
    let accepted = "an object whose keys are modules, each with an object";
    let map = value.as_object().ok_or_else(|| section.bad(key, brief(value), accepted))?;
    match map.iter().find(|(_, module)| !module.is_object() && !module.is_null()) {
        Some((name, module)) => Err(section.bad(&format!("{key}.{name}"), brief(module), "an object")),
        None => Ok(Some(map)),
    }
}

/// A whole number, as 4 or 4.0.
fn whole(value: &Value) -> Option<i64> {
    let from_float = |float: &f64| float.fract() == 0.0 && float.abs() <= 1e9;
    value.as_i64().or_else(|| value.as_f64().filter(from_float).map(|float| float as i64))
}

#[cfg(test)]
mod tests {
    use super::super::Quantization;

    fn refusal(section: &str) -> String {
        let text = format!("{{\"quantization_config\": {section}}}");
        let read = Quantization::read("c.json", &serde_json::from_str(&text).unwrap());
        read.map_or_else(|error| error.to_string(), |_| format!("{section} is read"))
    }

    fn assert_refused(section: &str, key: &str, value: &str) {
        let message = refusal(section);
        assert!(message.contains(key) && message.contains(value), "{section}: {message}");
    }

    /// A number of bits of another type, or so large that bits and scale overflow, is refused in the section and in a rule.
    #[test]
    fn bits_of_a_wrong_type_are_refused() {
        for wrong in [r#""8""#, "3.5", "-1", "[]", "true", "4294967280", "1e300", "0"] {
            for section in [
                format!(r#"{{"quant_method": "gptq", "bits": {wrong}}}"#),
                format!(r#"{{"quant_method": "awq", "w_bit": {wrong}}}"#),
                format!(
                    r#"{{"quant_method": "gptq", "bits": 4, "dynamic": {{"+:.*down_proj": {{"bits": {wrong}}}}}}}"#
                ),
                format!(
                    r#"{{"quant_method": "auto-round", "bits": 4, "extra_config": {{"lm_head": {{"bits": {wrong}}}}}}}"#
                ),
                format!(r#"{{"quant_method": "sinq", "nbits": {wrong}}}"#),
                format!(
                    r#"{{"quant_method": "hqq", "quant_config": {{"weight_quant_params": {{"nbits": {wrong}}}}}}}"#
                ),
                format!(r#"{{"bits": {wrong}, "group_size": 64}}"#),
            ] {
                let key = ["w_bit", "nbits"].into_iter().find(|key| section.contains(key)).unwrap_or("bits");
                assert_refused(&section, key, wrong.trim_matches('"').trim_end_matches("e300"));
            }
        }
    }

    /// A group of another type is refused; it was the default group, or a scale a row.
    #[test]
    fn groups_of_a_wrong_type_are_refused() {
        for wrong in [r#""4""#, "3.5", "[]", "true", "1e300", "-2", "65537"] {
            let size = format!(r#""group_size": {wrong}"#);
            for section in [
                format!(r#"{{"quant_method": "gptq", "bits": 4, {size}}}"#),
                format!(r#"{{"quant_method": "awq", "bits": 4, {size}}}"#),
                format!(
                    r#"{{"quant_method": "gptq", "bits": 4, "dynamic": {{"+:.*down_proj": {{{size}}}}}}}"#
                ),
                format!(r#"{{"quant_method": "auto-round", "bits": 4, {size}}}"#),
                format!(r#"{{"quant_method": "sinq", "nbits": 4, {size}}}"#),
                format!(
                    r#"{{"quant_method": "hqq", "quant_config": {{"weight_quant_params": {{"nbits": 4, {size}}}}}}}"#
                ),
                format!(
                    r#"{{"quant_method": "torchao", "quant_type": {{"default": {{"_type": "Int4WeightOnlyConfig", "_data": {{{size}}}}}}}}}"#
                ),
                format!(r#"{{"bits": 4, {size}}}"#),
                format!(
                    r#"{{"quant_method": "quark", "global_quant_config": {{"weight": {{"dtype": "int4", {size}}}}}}}"#
                ),
                format!(
                    r#"{{"quant_method": "compressed-tensors", "config_groups": {{"a": {{"weights": {{"num_bits": 4, "type": "int", {size}}}}}}}}}"#
                ),
            ] {
                assert_refused(&section, "group_size", wrong.trim_matches('"').trim_end_matches("e300"));
            }
        }
    }

    /// Lists and objects of modules have their type, and so have Quark's weights; each was passed over.
    #[test]
    fn modules_of_a_wrong_type_are_refused() {
        let quark = r#""quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}"#;
        for wrong in [r#""lm_head""#, "3", "true", "[7]"] {
            for (section, key) in [
                (r#""quant_method": "gptq", "bits": 4"#, "dynamic"),
                (r#""quant_method": "gptq", "bits": 4"#, "modules_to_not_convert"),
                (r#""quant_method": "auto-round", "bits": 4"#, "extra_config"),
                (r#""quant_method": "compressed-tensors", "config_groups": {}"#, "config_groups"),
                (r#""quant_method": "fp8""#, "ignored_layers"),
                (quark, "layer_quant_config"),
                (quark, "exclude"),
            ] {
                // The later of two equal keys holds.
                assert_refused(&format!("{{{section}, \"{key}\": {wrong}}}"), key, wrong);
            }
        }
        for wrong in [r#""fp4""#, "4", "[]", "true", "[3]"] {
            let all = format!(r#"{{"quant_method": "quark", "global_quant_config": {{"weight": {wrong}}}}}"#);
            assert_refused(&all, "weight", wrong);
            let layers =
                format!(r#"{{{quark}, "layer_quant_config": {{"*self_attn*": {{"weight": {wrong}}}}}}}"#);
            assert_refused(&layers, "weight", wrong);
        }
        assert_refused(
            &format!(r#"{{{quark}, "layer_quant_config": {{"*attn*": "fp8"}}}}"#),
            "*attn*",
            "fp8",
        );
        assert_refused(
            r#"{"quant_method": "quark", "global_quant_config": "fp4"}"#,
            "global_quant_config",
            "fp4",
        );
    }
}
