//! Variables of adrianhoehne/llama.cpp's hot cache that no option stands for. What they switch does
//! not exist in Terrace, so each one that is set is reported, with the reason.

use super::truth::truth;

/// The beginning of all their names.
const PREFIX: &str = "LLAMA_MOE_HOT_CACHE_";

/// The reason for switches of that program's graphs.
const GRAPHS: &str = "it chooses among graphs of that program, and Terrace has others";
const PROMPTS: &str = "whether copies take part in prompts follows from measured times";

/// A switch: its name without [`PREFIX`], why it has no effect, and whether no is what Terrace does.
struct Switch(&'static str, &'static str, bool);

const SWITCHES: &[Switch] = &[
    Switch("BRANCH_REDUCE_MERGE", GRAPHS, false),
    Switch("COLD_FIRST_ROW_INPUT", GRAPHS, false),
    Switch("COLD_PREFIX_SUM", GRAPHS, false),
    Switch("COLD_PREFIX_WEIGHTED_SUM", GRAPHS, false),
    Switch("CPU_DECODE_ROUTING", GRAPHS, false),
    Switch("DECODE_DIRECT_MERGE", GRAPHS, false),
    Switch("DECODE_REPEAT_HOT_INPUT", GRAPHS, false),
    Switch("DECODE_STRIDED_SUM_ROWS", GRAPHS, false),
    Switch("HOT_DUMMY_PADDING", GRAPHS, true),
    Switch("MERGE_SUM_ROWS", GRAPHS, false),
    Switch("PREFIX_REDUCE_TASKS", GRAPHS, false),
    Switch("SHARED_INPUT_ROW", GRAPHS, false),
    Switch("PP_COLD_BACKEND", GRAPHS, false),
    Switch("PP_FUSED_COLD_DOWN_REDUCE", GRAPHS, false),
    Switch("PP_HOT_DUMMY_PADDING", GRAPHS, true),
    Switch("PP_HOT_LANE_CAPACITY_DIVISOR", GRAPHS, false),
    Switch("PP_INDIRECT_COLD_INPUTS", GRAPHS, false),
    Switch("PP_WEIGHTED_COLD_REDUCE", GRAPHS, false),
    Switch("PP_WORKLIST_ORDER", GRAPHS, false),
    Switch("PP_REDUCE_MERGE", "rows are added up in the model's own order, which results depend on", true),
    Switch("PP_BYPASS", PROMPTS, false),
    Switch("PP_BYPASS_MIN_TOKENS", PROMPTS, false),
    Switch("PP_DENSE", PROMPTS, false),
    Switch("PP_DENSE_MIN_TOKENS", PROMPTS, false),
    Switch("PP_MIN_HOT_EXPERT_RATIO", PROMPTS, false),
    Switch("PARALLEL_MIN_SLOTS", "measured times decide where a device is used; see --hot-lanes", false),
    Switch("FILL_RANDOM", "slots hold experts that were used, and stay empty until then", true),
    Switch("GEMMA4_LAYER_CURVE", "use LLAMA_MOE_HOT_CACHE_LAYER_CURVE, which is for all models", false),
];

/// Message to the user about a variable that no option stands for; `None` if it is none of that
/// program's, or asks for what Terrace does anyway.
pub fn report(name: &str, value: &str) -> Option<String> {
    let rest = name.strip_prefix(PREFIX);
    let Some(Switch(_, why, no_is_right)) = SWITCHES.iter().find(|switch| Some(switch.0) == rest) else {
        let theirs = rest.is_some() || name.starts_with("LLAMA_ARG_MOE_");
        return theirs.then(|| format!("{name} is ignored: unknown variable"));
    };
    let agreed = *no_is_right && truth(value) == Some(false);
    (!agreed).then(|| format!("{name} has no effect: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_reported_unless_it_asks_for_what_is_done() {
        let said = report("LLAMA_MOE_HOT_CACHE_MERGE_SUM_ROWS", "0").unwrap();
        assert!(said.starts_with("LLAMA_MOE_HOT_CACHE_MERGE_SUM_ROWS has no effect: it chooses"), "{said}");
        assert!(report("LLAMA_MOE_HOT_CACHE_FILL_RANDOM", "1").unwrap().contains("slots hold"));
        assert_eq!(report("LLAMA_MOE_HOT_CACHE_FILL_RANDOM", "off"), None);
        assert!(report("LLAMA_MOE_HOT_CACHE_FASTER", "1").unwrap().contains("unknown variable"));
        assert!(report("LLAMA_ARG_MOE_HOT_CASHE", "x").unwrap().contains("unknown variable"));
        assert_eq!(report("LLAMA_ARG_CTX_SIZE", "5"), None);
    }
}
