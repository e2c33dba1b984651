//! `terrace calibrate --skip-layers`: which layers change little.

use super::args::CalibrateArgs;
use crate::perplexity::{ChunkBar, chunk_options};
use std::fmt::Write;
use std::ops::ControlFlow;
use terrace_cli::error::CliError;
use terrace_cli::loading;
use terrace_cli::source;
use terrace_cli::term::say;
use terrace_cli::term::{input, print, signals};
use terrace_cli::user_dirs::user_dirs;
use terrace_engine::{LayerSkip, Measured};
use terrace_eval::{CalibrationPass, Calibrator};

/// Measures which layers change less than `threshold` allows, and the cost of skipping them.
///
/// # Errors
/// Errors of the text, the engine or the output file.
pub fn calibrate(args: &CalibrateArgs, threshold: f64, verbose: bool) -> Result<(), CliError> {
    // Before the load, so that bad input costs no load.
    let text = input::file(&args.file)?;
    let (adjust, options) = chunk_options(&args.engine, args.chunks);
    let model = args.model.as_deref();
    let mut calibrator = loading::load_with(model, &args.engine, &args.testing, adjust, Calibrator::load)?;
    loading::loaded(calibrator.engine(), loading::Announce::of(verbose, args.json));
    let tokens = calibrator.engine().tokenize(&text, true, false)?;
    let streamed = calibrator.engine().streamed_layers();
    if streamed.is_empty() {
        say!("warning: no layer streams with these options, so none will be skipped");
        say!("hint: calibrate with the --ram-budget and --stream of later runs");
    }
    let mut bar = ChunkBar::new();
    let measured = signals::busy(|| {
        calibrator.calibrate(&tokens, &options, threshold, &mut |pass, progress| {
            bar.show(
                progress,
                match pass {
                    CalibrationPass::Similarity => "all layers",
                    CalibrationPass::Skipping => "skipping",
                },
            );
            if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    bar.end();
    let skip = measured?;
    if let Some(path) = &args.out {
        skip.write(path)?;
    }
    keep(args, &skip)?;
    print(&if args.json {
        serde_json::to_string(&skip).expect("numbers and names")
    } else {
        table(&skip, &streamed)
    })
}

/// Keeps the calibration for runs with `--layer-skip` alone.
fn keep(args: &CalibrateArgs, skip: &LayerSkip) -> Result<(), CliError> {
    let model = terrace_ggml::gguf::read(&source::resolve(args.model.as_deref())?)?;
    if let Some(path) = LayerSkip::kept(&user_dirs(), &model)? {
        let dir = path.parent().unwrap_or(&path);
        std::fs::create_dir_all(dir).map_err(CliError::io(dir.display().to_string()))?;
        skip.write(&path)?;
    }
    Ok(())
}

/// A table with a line per layer, then the perplexities.
fn table(skip: &LayerSkip, streamed: &[u32]) -> String {
    let mut text = String::from("layer  similarity\n");
    for (layer, similarity) in (0..).zip(&skip.similarity) {
        let value = similarity.map_or_else(|| "-".to_owned(), |s| format!("{s:.5}"));
        let note = match (skip.skip.contains(&layer), streamed.contains(&layer)) {
            (true, _) => "  skip",
            (false, true) => "",
            (false, false) => "  resident",
        };
        let _ = writeln!(text, "{layer:>5}  {value:>10}{note}");
    }
    let show = |m: &Measured| match m.error {
        Some(error) => format!("{:.4} +/- {error:.5}", m.perplexity),
        None => format!("{:.4}", m.perplexity),
    };
    let _ = writeln!(text, "all layers: perplexity {}", show(&skip.without));
    if skip.skip.is_empty() {
        let _ = writeln!(text, "no streamed layer has a similarity above {}", skip.threshold);
    } else {
        let layers: Vec<String> = skip.skip.iter().map(u32::to_string).collect();
        let _ = writeln!(text, "without {}: perplexity {}", layers.join(", "), show(&skip.with));
    }
    text
}
