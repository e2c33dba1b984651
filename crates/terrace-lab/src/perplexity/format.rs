//! The form in which running values are printed.

use clap::ValueEnum;
use std::io::IsTerminal;
use terrace_cli::error::CliError;
use terrace_cli::term::{print, print_part, say};

/// The form in which a measurement is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One running value per line
    Lines,
    /// As llama-perplexity prints it: all running values in one line
    Llama,
}

impl Format {
    /// The form that is asked for. Without an option, programs get the form that they know, and people at a
    /// terminal get lines.
    pub fn of(asked: Option<Self>, in_loop: bool) -> Self {
        let people = std::io::stdout().is_terminal() && !in_loop;
        asked.unwrap_or(if people { Self::Lines } else { Self::Llama })
    }

    /// Says what is about to be measured.
    pub fn begin(self, chunks: usize, context: usize, batch: u32) {
        if self == Self::Llama {
            say!(
                "perplexity: calculating perplexity over {chunks} chunks, n_ctx={context}, batch_size={batch}, n_seq=1"
            );
        }
    }

    /// Prints the perplexity after a chunk.
    pub fn running(self, done: usize, perplexity: f64) -> Result<(), CliError> {
        match self {
            Self::Lines => print(&format!("[{done}] {perplexity:.4}")),
            Self::Llama => print_part(&format!("[{done}]{perplexity:.4},")),
        }
    }

    /// Ends the line of running values, if there is one.
    pub fn end_running(self, any: bool) -> Result<(), CliError> {
        if self == Self::Llama && any { print_part("\n") } else { Ok(()) }
    }

    /// Says how long the rest will take, after the first chunk or task.
    pub fn time_left(self, of: usize, seconds: f64) {
        match self {
            Self::Lines => {
                let left = std::time::Duration::from_secs_f64(seconds * (of - 1) as f64);
                say!("1 of {of} in {seconds:.2} s, about {} left", indicatif::HumanDuration(left));
            }
            Self::Llama => {
                let all = seconds * of as f64;
                let hours = (all / 3600.0).floor();
                let hours_text = if hours > 0.0 { format!("{hours} hours ") } else { String::new() };
                let minutes = (all - hours * 3600.0) / 60.0;
                say!("perplexity: {seconds:.2} seconds per pass - ETA {hours_text}{minutes:.2} minutes");
            }
        }
    }
}
