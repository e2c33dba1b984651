//! The plug-in's plan for the model in the arguments.

use super::args::LlamaArgs;
use super::host;
use super::model::Named;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use terrace_cli::advice;
use terrace_cli::error::CliError;
use terrace_cli::user_dirs::user_dirs;
use terrace_engine::options::{ContextOptions, DeviceOptions, MemoryOptions};
use terrace_engine::{HeaderModel, KvChoice, measured_contexts};
use terrace_model::{ByteSize, KvType, KvTypes, ModelFile};
use terrace_plan::TEXT_WIDTH;
use terrace_plan::machine::Kernels;
use terrace_plan::{Budget, MachineProfile, Plan, PlanError, Wishes};

/// The plan.
pub struct Planned {
    /// For the user.
    pub text: String,
    /// The plug-in's budget.
    pub budget: Budget,
    /// More arguments for the program.
    pub more: Vec<OsString>,
}

/// Plans as the plug-in does, and with the context that the program will have, which the plug-in
/// cannot know.
///
/// # Errors
/// The model cannot be read, or the machine has too little room for it.
pub fn plan(args: &LlamaArgs, host: &Path, named: Named) -> Result<Planned, CliError> {
    let unplanned = |why: &str| Planned {
        text: format!("terrace: {why}: the plug-in plans when the program loads a model\n"),
        budget: args.ram_budget,
        more: Vec::new(),
    };
    let (path, model) = match (&named.file, &named.repo) {
        (Some(path), _) => (path.clone(), terrace_ggml::gguf::read(path)?),
        (None, None) => return Ok(unplanned("the arguments name no model that can be planned for")),
        (None, Some(repo)) => {
            match named.cached().and_then(|path| Some((terrace_ggml::gguf::read(&path).ok()?, path))) {
                Some((model, path)) => (path, model),
                None => {
                    let repo = terrace_model::printable(repo);
                    return Ok(unplanned(&format!(
                        "it is not known which file of {repo} the program will load"
                    )));
                }
            }
        }
    };
    let machine = terrace_host::machine::machine_profile(&model, &user_dirs(), Kernels::Exact);
    let made = |context| made(args, &named, &path, &model, &machine, context);
    let (plan, more) = match (host::sizes_context(host), named.context) {
        // llama.cpp takes the length that the model was trained with, and the memory for it.
        (true, None) => {
            let trained = model.arch_u64("context_length").and_then(|tokens| u32::try_from(tokens).ok());
            let (own, usual) = (made(trained), made(None)?);
            match own.ok().filter(|own| costs_nothing(own, &usual, machine.memory.available)) {
                Some(own) => (own, Vec::new()),
                None => {
                    let tokens = usual.context.tokens.to_string();
                    (usual, vec!["-c".into(), tokens.into()])
                }
            }
        }
        (_, context) => (made(context)?, Vec::new()),
    };
    let budget = match (args.ram_budget, plan.managed_tensors) {
        (Budget::Auto, 1..) => Budget::Bytes(plan.budget),
        (given, _) => given,
    };
    Ok(Planned { text: text(&plan, &more), budget, more })
}

/// Returns true if a plan with a longer context than the usual one fits, and streams no more.
fn costs_nothing(own: &Plan, usual: &Plan, available: ByteSize) -> bool {
    let weights = own.budget.min(own.model.bytes);
    own.managed_bytes <= usual.managed_bytes && own.context.ram + weights <= available
}

fn made(
    args: &LlamaArgs,
    named: &Named,
    path: &Path,
    model: &ModelFile,
    machine: &MachineProfile,
    context: Option<u32>,
) -> Result<Plan, PlanError> {
    let [keys, values] = named.types.each_ref().map(|name| {
        // The program refuses others.
        name.as_deref().and_then(|name| name.parse().ok()).unwrap_or(KvType::F16)
    });
    let wishes = Wishes {
        memory: MemoryOptions {
            stream: args.stream,
            ram_budget: args.ram_budget,
            ..MemoryOptions::default()
        },
        devices: DeviceOptions::none(),
        context: ContextOptions {
            ctx: context,
            ubatch: named.ubatch,
            kv_type: KvChoice::Types(KvTypes { keys, values }),
            ..ContextOptions::default()
        },
        ..Wishes::default()
    };
    let header = HeaderModel::read(path);
    let measured = header
        .map_or_else(Vec::new, |header| measured_contexts(&header, model, &wishes, machine.memory.available));
    terrace_plan::plan(model, machine, &Wishes { measured, ..wishes })
}

/// The first lines of the plan, and its warnings.
fn text(plan: &Plan, more: &[OsString]) -> String {
    let tables = plan.tables(TEXT_WIDTH).to_string();
    let mut text = String::new();
    if plan.managed_tensors == 0 {
        let size = plan.model.bytes;
        let _ = writeln!(text, "terrace: nothing streams: the program holds all weights ({size})");
    } else {
        let _ = writeln!(text, "{}", tables.split("\n\n").next().unwrap_or_default());
    }
    for warning in &plan.warnings {
        let _ = writeln!(text, "warning: {}", advice::warning(warning));
    }
    if let [_, tokens] = more {
        let room: ByteSize = plan.context.ram;
        let _ = writeln!(
            text,
            "terrace: the context gets {} tokens ({room}): the model's full length would take memory that weights need; -c sets another size",
            tokens.display()
        );
    }
    text
}
