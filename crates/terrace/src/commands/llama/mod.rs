//! `terrace llama`: becomes another llama.cpp, which Terrace is a plug-in of.

mod args;
mod elf;
mod host;
mod model;
mod plan;
mod plugin;

pub use args::LlamaArgs;

use std::path::Path;
use std::process::Command;
use terrace_cli::error::CliError;
use terrace_cli::term::say;
use terrace_platform::process::become_program;

/// ggml's variable for the one library that it is to load.
const BACKEND_PATH: &str = "GGML_BACKEND_PATH";

/// Becomes the program. Returns only with what was wrong. `config` is the configuration file that the
/// user named.
///
/// # Errors
/// There is no such program, plug-in or model, the program cannot load plug-ins, or the machine has
/// too little room.
pub fn llama(args: &LlamaArgs, config: Option<&Path>) -> Result<(), CliError> {
    let host = host::find(&args.host)?;
    let plugin = plugin::find(args.plugin.as_deref())?;
    let other =
        terrace_cli::environment::var_os(BACKEND_PATH).filter(|path| !path.is_empty() && *path != plugin);
    if let Some(other) = other {
        return Err(CliError::Usage {
            message: format!(
                "{BACKEND_PATH} is {}, and ggml loads one library only from there",
                other.display()
            ),
            hint: "unset it, or put that library into the program's own folder, where ggml finds it".into(),
        });
    }
    let named =
        model::Named::of(&args.arguments, |name| terrace_cli::environment::var_os(name), host::bench(&host));
    let planned = plan::plan(args, &host, named)?;
    if !args.quiet {
        say!("{}", planned.text);
    }
    let mut command = Command::new(&host);
    command.args(&args.arguments).args(planned.more);
    command.env(BACKEND_PATH, &plugin).envs(args.variables(planned.budget, config));
    let error = become_program(&mut command);
    Err(CliError::io(host.display().to_string())(error))
}
