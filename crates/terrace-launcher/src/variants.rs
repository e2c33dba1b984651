//! The binaries of a distribution, and which of them a processor can run.

/// Chooses a binary by name, for comparisons: `TERRACE_VARIANT=x86-64-v3`.
pub const VARIABLE: &str = "TERRACE_VARIANT";

/// A binary for a level of the x86-64 architecture.
pub struct Variant {
    /// The level, as compilers name it; `scripts/dist` builds it under this name.
    pub name: &'static str,
    /// True if this processor, and the system that it runs, have all that is in the level.
    pub runs_here: fn() -> bool,
}

/// The best first.
pub const VARIANTS: [Variant; 3] = [
    Variant { name: "x86-64-v4", runs_here: v4 },
    Variant { name: "x86-64-v3", runs_here: v3 },
    Variant { name: "x86-64-v2", runs_here: v2 },
];

/// Chooses the best variant for this processor, or the one that is `wanted` by name. Of those that nobody named, the ones
/// that are `there` come first: an archive may have been built for some levels only.
///
/// # Errors
/// One line: no variant has that name, or none runs here.
pub fn choose(wanted: Option<&str>, there: impl Fn(&str) -> bool) -> Result<&'static str, String> {
    let names = || VARIANTS.map(|variant| variant.name).join(", ");
    let running = || VARIANTS.iter().filter(|variant| (variant.runs_here)());
    let found = match wanted {
        None => running().find(|variant| there(variant.name)).or_else(|| running().next()),
        Some(name) => match VARIANTS.iter().find(|variant| variant.name == name) {
            None => return Err(format!("{VARIABLE}: there is no {name}, only {}", names())),
            Some(variant) if !(variant.runs_here)() => {
                return Err(format!("{VARIABLE}: this processor does not have all of {name}"));
            }
            found => found,
        },
    };
    found.map(|variant| variant.name).ok_or_else(|| {
        "this processor is older than x86-64-v2 (SSE4.2, since about 2009), which Terrace needs".to_owned()
    })
}

fn v2() -> bool {
    is_x86_feature_detected!("cmpxchg16b")
        && is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("sse3")
        && is_x86_feature_detected!("ssse3")
        && is_x86_feature_detected!("sse4.1")
        && is_x86_feature_detected!("sse4.2")
}

fn v3() -> bool {
    v2() && is_x86_feature_detected!("avx")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("movbe")
}

fn v4() -> bool {
    v3() && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_better_variant_needs_all_of_the_lesser_ones() {
        let runs = VARIANTS.map(|variant| (variant.runs_here)());
        assert!(runs.is_sorted(), "{runs:?}");
        assert_eq!(choose(None, |_| true).is_ok(), runs.contains(&true));
    }

    #[test]
    fn a_variant_that_is_there_comes_before_a_better_one() {
        let running = VARIANTS.iter().filter(|variant| (variant.runs_here)()).map(|variant| variant.name);
        for name in running.clone() {
            assert_eq!(choose(None, |there| there == name), Ok(name));
        }
        assert_eq!(choose(None, |_| false).ok(), running.clone().next());
    }

    #[test]
    fn a_name_chooses_if_it_can() {
        for variant in VARIANTS {
            let chosen = choose(Some(variant.name), |_| true);
            assert_eq!(chosen.is_ok(), (variant.runs_here)(), "{}: {chosen:?}", variant.name);
        }
        let error = choose(Some("x86-64-v9"), |_| true).unwrap_err();
        assert!(error.contains("x86-64-v9") && error.contains("x86-64-v3"), "{error}");
    }
}
