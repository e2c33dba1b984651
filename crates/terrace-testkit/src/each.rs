//! One test for each subject, so that a runner gives each its own process, name and time.

/// Makes tests from a function of one argument: `each!(check: q8_0 = WeightType::Q8_0, ...)`.
#[macro_export]
macro_rules! each {
    ($check:path: $($(#[$attribute:meta])* $name:ident = $subject:expr),* $(,)?) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $name() {
                $check($subject);
            }
        )*
    };
}

/// Makes a test for each [`Arch`](crate::Arch) from a function that takes one.
#[macro_export]
macro_rules! each_architecture {
    ($check:path) => {
        $crate::each_moe_architecture!($check);
        $crate::each!($check: llama = $crate::Arch::Llama);
    };
}

/// Makes a test for each [`Arch`](crate::Arch) that has experts.
#[macro_export]
macro_rules! each_moe_architecture {
    ($check:path) => {
        $crate::each!($check:
            mixtral = $crate::Arch::Mixtral,
            qwen2moe = $crate::Arch::Qwen2Moe,
            qwen3moe = $crate::Arch::Qwen3Moe,
            qwen3next = $crate::Arch::Qwen3Next,
            qwen35moe = $crate::Arch::Qwen35Moe,
            gemma4 = $crate::Arch::Gemma4,
            deepseek2 = $crate::Arch::Deepseek2,
            glm4moe = $crate::Arch::Glm4Moe,
            gpt_oss = $crate::Arch::GptOss,
            bailingmoe2 = $crate::Arch::BailingMoe2,
            qwen4exp = $crate::Arch::Qwen4Exp,
        );
    };
}

#[cfg(test)]
mod tests {
    use crate::Arch;

    /// The lists above are all of [`Arch::ALL`].
    #[test]
    fn no_architecture_is_left_out() {
        let text = include_str!("each.rs");
        let left_out = |arch: &&Arch| !text.contains(&format!("$crate::Arch::{arch:?}"));
        let left_out: Vec<&Arch> = Arch::ALL.iter().filter(left_out).collect();
        assert!(left_out.is_empty(), "{left_out:?}");
    }
}
