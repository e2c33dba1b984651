//! `terrace experts learn`.

use super::args::LearnArgs;
use indicatif::{ProgressBar, ProgressStyle};
use terrace_cli::error::CliError;
use terrace_cli::loading;
use terrace_cli::term::say;
use terrace_cli::term::{input, progress, signals};
use terrace_engine::{Engine, Logits, learn as files};
use terrace_lab::perplexity::chunk_options;

/// Evaluates the text, and writes the uses of its experts.
///
/// # Errors
/// Errors of the text, the engine or the output file; nothing was counted.
pub fn learn(args: &LearnArgs, verbose: bool) -> Result<(), CliError> {
    // Before the load, so that bad input costs no load.
    let text = input::file(&args.file)?;
    let (adjust, chunks) = chunk_options(&args.engine, None);
    let mut engine = loading::load(
        args.model.as_deref(),
        &args.engine,
        &args.testing,
        loading::Announce::of(verbose, false),
        |options| {
            adjust(options);
            // Written by this command; opened before the load all the same.
            options.learn.learn_to.get_or_insert_with(|| args.out.clone());
        },
    )?;
    let mut tokens = engine.tokenize(&text, true, false)?;
    tokens.truncate(args.tokens.map_or(usize::MAX, |n| n as usize));
    if tokens.is_empty() {
        return Err(CliError::Usage {
            message: "the text is empty".into(),
            hint: "use another --file".into(),
        });
    }
    let result = evaluate(&mut engine, &tokens, chunks.context);
    let learned = engine.learned(args.engine.learn.learn_mode);
    result?;
    let Some(learned) = learned.filter(|file| !file.layers.is_empty()) else {
        return Err(CliError::Usage {
            message: "nothing was counted: devices compute all experts of every layer".into(),
            hint: "add --cpu-moe".into(),
        });
    };
    files::write(&args.out, &learned)?;
    say!(
        "{} tokens, {} uses of experts in {} layers: {}",
        tokens.len(),
        learned.pairs(),
        learned.layers.len(),
        args.out.display()
    );
    Ok(())
}

/// Evaluates the tokens in texts of `context` tokens each. The logits of all of them are computed, as
/// the last layer computes only tokens whose logits are wanted.
fn evaluate(engine: &mut Engine, tokens: &[i32], context: usize) -> Result<(), CliError> {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} tokens, {eta} left")
        .expect("a constant template");
    let bar = ProgressBar::with_draw_target(Some(tokens.len() as u64), progress::target()).with_style(style);
    let result = signals::busy(|| {
        for text in tokens.chunks(context.max(1)) {
            Logits::new(engine).of_text(text, 0, &mut |_| match signals::interrupted() {
                true => Err(CliError::Interrupted),
                false => Ok(()),
            })?;
            bar.inc(text.len() as u64);
        }
        Ok(())
    });
    bar.finish_and_clear();
    result
}
