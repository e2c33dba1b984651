//! `terrace perplexity --reload-from`: what each tensor of other files costs in place of the model's own.

use super::PerplexityArgs;
use super::measure::{Figure, Measure};
use super::reload_lines::{say_refusal, say_swapped, say_unused};
use regex::Regex;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_cli::error::CliError;
use terrace_cli::term::{one_line, print_failure, say, signals};
use terrace_engine::{Engine, EngineError, Refusal, ReloadError, ReloadReport, Replacement, Source};
use terrace_ggml::gguf;
use terrace_ggml::llama::FileType;
use terrace_quantize::{QuantizeOptions, QuantizePlan};

/// A tensor of a file in the folder.
struct Ready {
    tensor: String,
    file: PathBuf,
}

/// The tensors to try, and a copy of the first one.
pub struct ReloadFrom {
    ready: Vec<Ready>,
    /// A file with the model's own bytes of the first tensor.
    control: PathBuf,
    /// The folder of that file, which is deleted at the end.
    _folder: tempfile::TempDir,
}

impl ReloadFrom {
    /// Finds the tensors that the options ask for; `None` if they ask for none. `model` is the model's file.
    ///
    /// # Errors
    /// The folder cannot be read, nothing in it matches, or the copy cannot be written.
    pub fn asked(args: &PerplexityArgs, model: &Path) -> Result<Option<Self>, CliError> {
        let Some(dir) = &args.reload_from else { return Ok(None) };
        let own = gguf::read(model)?;
        let mut ready = tensors_in(dir, args.tensor.as_ref())?;
        ready.retain(|ready| {
            let known = own.tensor(&ready.tensor).is_some();
            if !known {
                refuse(&ready.tensor, Some(&ready.file), "the model has no such tensor");
            }
            known
        });
        let Some(first) = ready.first() else {
            return Err(CliError::Usage {
                message: format!("{}: no file has a tensor of the model that matches", dir.display()),
                hint: "`terrace quantize MODEL DIR/ --type T --split-tensors` makes such files".into(),
            });
        };
        let folder = tempfile::TempDir::new().map_err(CliError::io("a temporary folder"))?;
        let control = folder.path().join("control.gguf");
        let mut options = QuantizeOptions::new(model, FileType::COPY);
        options.only = Some([first.tensor.clone()].into());
        QuantizePlan::new(&options)?.write(&control, &mut |_| ControlFlow::Continue(()))?;
        Ok(Some(Self { ready, control, _folder: folder }))
    }

    /// Measures the model, the model with the copy, and the model with each of the tensors. What is refused
    /// is said and left out.
    ///
    /// # Errors
    /// The copy gives another figure, a measurement fails, or a tensor does not return.
    pub fn run(self, engine: &mut Engine, model: &Path, measure: &mut Measure<'_>) -> Result<(), CliError> {
        say_unused(engine, model)?;
        let alone = measure(engine, 0, &ReloadReport::default())?;
        let first = &self.ready[0].tensor;
        say!("control: tensor '{first}' with its own bytes from another file");
        let control = Ready { tensor: first.clone(), file: self.control.clone() };
        match swapped(engine, &control, 1, measure)? {
            Some(figure) if figure.is(&alone) => say!("control: the figure is the model's own"),
            Some(figure) => return Err(CliError::Control { alone: alone.value, copied: figure.value }),
            // Refused: nothing is shown about the others.
            None => say!("control: none"),
        }
        let (mut measured, mut refused) = (0, 0);
        for (pass, ready) in (2..).zip(&self.ready) {
            match swapped(engine, ready, pass, measure)? {
                Some(Figure { .. }) => measured += 1,
                None => refused += 1,
            }
        }
        say!("{measured} tensors measured, {refused} refused");
        Ok(())
    }
}

/// Measures with a tensor in place, and returns the original. `None` if it is refused.
fn swapped(
    engine: &mut Engine,
    ready: &Ready,
    pass: usize,
    measure: &mut Measure<'_>,
) -> Result<Option<Figure>, CliError> {
    let replacement = |from| [Replacement { tensor: ready.tensor.clone(), from }];
    let report = match signals::busy(|| engine.swap(&replacement(Source::File(ready.file.clone())))) {
        Ok(report) => report,
        Err(ReloadError::Refused(refusals)) => {
            refusals.iter().for_each(say_refusal);
            return Ok(None);
        }
        Err(error) => {
            refuse(&ready.tensor, Some(&ready.file), &error.to_string());
            return Ok(None);
        }
    };
    say_swapped(&report);
    let figure = measure(engine, pass, &report);
    if let Err(error) = &figure
        && !matches!(error, CliError::Interrupted)
    {
        print_failure(error);
    }
    engine.swap(&replacement(Source::Original)).map_err(EngineError::from)?;
    match figure {
        Ok(figure) => Ok(Some(figure)),
        Err(CliError::Interrupted) => Err(CliError::Interrupted),
        Err(_) => Ok(None),
    }
}

/// The tensors of the GGUF files in a folder, in the order of the files' names.
fn tensors_in(dir: &Path, pattern: Option<&Regex>) -> Result<Vec<Ready>, CliError> {
    let failed = CliError::io(dir.display().to_string());
    let entries = std::fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(failed)?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "gguf"));
    files.sort();
    let mut ready = Vec::new();
    for file in files {
        match gguf::read_one(&file) {
            Ok(header) => {
                let names = header.tensors.into_iter().map(|tensor| tensor.name);
                let names = names.filter(|name| pattern.is_none_or(|pattern| pattern.is_match(name)));
                ready.extend(names.map(|tensor| Ready { tensor, file: file.clone() }));
            }
            Err(error) => say!("hotswap: a file cannot be read: {}", one_line(&error.to_string())),
        }
    }
    Ok(ready)
}

fn refuse(tensor: &str, path: Option<&Path>, reason: &str) {
    let (tensor, path, reason) = (tensor.to_owned(), path.map(Path::to_owned), reason.to_owned());
    say_refusal(&Refusal { tensor, path, reason });
}
