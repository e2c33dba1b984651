//! A test process without the environment of whoever started it: `use terrace_test_env as _;` at the root of a test is all.
//!
//! llama.cpp and ggml read `LLAMA_*` and `GGML_*` wherever they like, some before `main`; clap reads `TERRACE_*`; clients
//! of HTTP read proxies, which servers on this machine are not behind. All of them go before anything else of the
//! process runs, and so for the processes that a test starts as well. What a test wants to be set, it sets for its own
//! children. Accelerators are not looked for: a test that needs a device starts one.

#![allow(clippy::disallowed_methods, reason = "it is about the environment")]

use std::ffi::OsStr;

/// Variables whose names begin so are the user's.
const FOREIGN: [&str; 6] = ["TERRACE_", "LLAMA_", "GGML_", "HF_", "XDG_", "CLICOLOR"];

/// And these, in any case.
const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];

/// Hides the accelerators of builds that have their backends.
const HIDDEN: [(&str, &str); 3] =
    [("CUDA_VISIBLE_DEVICES", "-1"), ("HIP_VISIBLE_DEVICES", "-1"), ("GGML_DISABLE_VULKAN", "1")];

fn is_foreign(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    FOREIGN.iter().any(|prefix| name.starts_with(prefix)) || PROXIES.contains(&&*name.to_lowercase())
}

extern "C" fn clean() {
    let foreign: Vec<_> = std::env::vars_os().map(|(name, _)| name).filter(|name| is_foreign(name)).collect();
    for name in foreign {
        // SAFETY: the loader calls this before `main`, when the process has one thread.
        unsafe { std::env::remove_var(name) };
    }
    for (name, value) in HIDDEN {
        // SAFETY: as above.
        unsafe { std::env::set_var(name, value) };
    }
}

/// The loader calls it before the constructors of C++ statics, some of which read the environment: on Linux those have no
/// number, on Windows they are called at the beginning of `main`.
#[used]
#[cfg_attr(not(any(windows, target_os = "macos")), unsafe(link_section = ".init_array.00101"))]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(windows, unsafe(link_section = ".CRT$XCU"))]
static CLEAN: extern "C" fn() = clean;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for name in
            ["TERRACE_CTX", "GGML_RPC_DEBUG", "LLAMA_TRACE", "XDG_CONFIG_HOME", "HTTPS_PROXY", "no_proxy"]
        {
            assert!(is_foreign(name.as_ref()), "{name}");
        }
        for name in ["PATH", "HOME", "TMPDIR", "CARGO_BIN_EXE_terrace", "EXACTNESS_SUBJECT", "proxy"] {
            assert!(!is_foreign(name.as_ref()), "{name}");
        }
    }

    /// In another process of this test, which is started with what is not to be there.
    #[test]
    fn a_test_process_has_nothing_of_the_users() {
        const CHILD: &str = "CLEAN_ENVIRONMENT_CHILD";
        let foreign = ["TERRACE_CTX", "LLAMA_TRACE", "GGML_SCHED_DEBUG", "HF_TOKEN", "HTTP_PROXY"];
        if std::env::var_os(CHILD).is_some() {
            assert!(foreign.iter().all(|name| std::env::var_os(name).is_none()));
            assert_eq!(std::env::var_os("CUDA_VISIBLE_DEVICES").as_deref(), Some(OsStr::new("-1")));
            return;
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tests::a_test_process_has_nothing_of_the_users", "--nocapture"]);
        command.env(CHILD, "1").envs(foreign.map(|name| (name, "7")));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}
