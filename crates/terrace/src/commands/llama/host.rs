//! The program that loads the plug-in.

use super::elf;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use terrace_cli::error::CliError;
use terrace_platform::owner;

/// Finds a program by its name in PATH, or by its path, and checks what can be known beforehand: that
/// its ggml is not a hidden part of it.
///
/// # Errors
/// There is no such program, or it cannot load plug-ins.
pub fn find(name: &Path) -> Result<PathBuf, CliError> {
    let path = terrace_cli::environment::var_os("PATH").unwrap_or_default();
    let found = if name.components().count() > 1 || name.is_absolute() {
        Some(name.to_owned()).filter(|path| runs(path))
    } else {
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| runs(path))
    };
    let Some(found) = found else {
        return Err(CliError::Usage {
            message: match name.components().count() {
                1 => format!("there is no {} in PATH", name.display()),
                _ => format!("{} is not a program", name.display()),
            },
            hint: "name a llama.cpp program, by its path if it is not in PATH: terrace llama /path/llama-server -- -m MODEL"
                .into(),
        });
    };
    if elf::hides_ggml(&found).map_err(CliError::io(found.display().to_string()))? {
        return Err(CliError::Usage {
            message: format!("{} has ggml linked in, and cannot load plug-ins", found.display()),
            hint: "use a llama.cpp with ggml in libraries: a release, or a build with BUILD_SHARED_LIBS=ON"
                .into(),
        });
    }
    Ok(found)
}

fn runs(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| owner::is_program(&meta))
}

/// Returns true if the program is llama-bench, whose contexts are as large as its tests need.
pub fn bench(host: &Path) -> bool {
    host.file_name() == Some(OsStr::new("llama-bench"))
}

/// Returns true if the program takes the size of its context by llama.cpp's usual options.
pub fn sizes_context(host: &Path) -> bool {
    let names = ["llama-server", "llama-cli", "llama-completion"];
    names.iter().any(|name| host.file_name() == Some(OsStr::new(name)))
}
