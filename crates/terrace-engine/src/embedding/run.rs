//! Embeds a text, graph by graph.

use crate::adapters::Scales;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::generate::Evaluated;
use std::thread::sleep;
use std::time::Duration;
use terrace_ggml::llama::{Batch, ContextError, Pooling, Token};

/// Interval at which a text that waits for the writer of a file checks for interrupts.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A text being embedded.
#[derive(Debug, Default)]
pub struct Embedding {
    tokens: Vec<i32>,
    /// The adapters to compute with.
    scales: Scales,
    /// Number of tokens that were evaluated.
    done: usize,
    /// Results of the graphs: the embedding, with [`Pooling::None`] one for each token.
    values: Vec<f32>,
    /// The sum over tokens, where the mean is wanted of more tokens than a graph has.
    sum: Vec<f64>,
}

impl Embedding {
    /// Begins with a text.
    pub fn new(tokens: Vec<i32>, scales: Scales) -> Self {
        Self { tokens, scales, ..Self::default() }
    }

    /// Begins again.
    pub fn restart(&mut self) {
        self.done = 0;
        self.values.clear();
        self.sum.clear();
    }

    /// Number of tokens of the text.
    pub const fn count(&self) -> usize {
        self.tokens.len()
    }

    /// The embedding of a text that is evaluated.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }

    /// Takes what a graph of the next `n` tokens has left.
    fn take(&mut self, n: usize, pooling: Pooling, left: &[f32]) {
        self.done += n;
        match pooling {
            Pooling::None => self.values.extend_from_slice(left),
            // The first token is in the first graph, which is the last one then.
            Pooling::Cls => {
                self.values = left.to_vec();
                self.done = self.tokens.len();
            }
            Pooling::Last | Pooling::Rank => self.values = left.to_vec(),
            Pooling::Mean if n == self.tokens.len() => self.values = left.to_vec(),
            Pooling::Mean => {
                self.sum.resize(left.len(), 0.0);
                for (sum, &value) in self.sum.iter_mut().zip(left) {
                    *sum += f64::from(value) * n as f64;
                }
                let count = self.done as f64;
                self.values = self.sum.iter().map(|sum| (sum / count) as f32).collect();
            }
        }
    }
}

impl Engine {
    /// Embeds a text: the values of its embedding, not normalised. Without pooling, those of each
    /// token's, one after another; with [`Pooling::Rank`], the scores.
    ///
    /// # Errors
    /// [`EngineError::EmptyPrompt`], [`EngineError::PromptTooLong`], [`Unfit`](crate::Unfit) if there
    /// is no context for embeddings, and errors of the computation.
    pub fn embed(&mut self, text: &[i32]) -> Result<Vec<f32>, EngineError> {
        self.reload_if_asked();
        let most = self.embedding_facts().map_or(0, |facts| facts.most);
        if text.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if text.len() > most && most > 0 {
            return Err(EngineError::PromptTooLong { prompt: text.len(), used: 0, context: most });
        }
        let work = Embedding::new(text.to_vec(), self.default_scales());
        let (mut work, mut batch) = (work, Batch::default());
        loop {
            match self.embed_some(&mut work, &mut batch)? {
                Evaluated::All => return Ok(work.into_values()),
                Evaluated::Part => {}
                Evaluated::Again => {
                    sleep(self.reload_wait().unwrap_or_default().min(POLL_INTERVAL));
                    if self.reload_if_asked() {
                        work.restart();
                    }
                }
                Evaluated::Interrupted => return Err(EngineError::Cancelled),
            }
        }
    }

    /// Evaluates the next tokens of a text, as many as one graph takes. If that fails, the text begins
    /// again.
    pub fn embed_some(&mut self, work: &mut Embedding, batch: &mut Batch) -> Result<Evaluated, EngineError> {
        if self.awaits_writer() {
            return Ok(Evaluated::Again);
        }
        self.check_files()?;
        let shape = self.make_embedder()?;
        if work.done == 0 {
            self.embedding_context().truncate(0, 0);
        }
        let n = (work.tokens.len() - work.done).min(shape.ubatch as usize);
        batch.clear();
        for (position, &token) in (0..).zip(&work.tokens).skip(work.done).take(n) {
            batch.push(Token(token), position, [0], true);
        }
        match self.decode_embedding(batch, &work.scales) {
            Ok(()) => {}
            Err(error) => {
                work.restart();
                return match error {
                    error if self.is_being_written(&error) => Ok(Evaluated::Again),
                    ContextError::Interrupted => Ok(Evaluated::Interrupted),
                    error => Err(error.into()),
                };
            }
        }
        self.reloads().cut_short = 0;
        let context = self.embedding_context();
        let left = match shape.pooling {
            Pooling::None => context.token_embeddings(),
            _ => context.embedding(0).unwrap_or_default(),
        };
        work.take(n, shape.pooling, left);
        Ok(if work.done == work.tokens.len() { Evaluated::All } else { Evaluated::Part })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rest of a text of three tokens, of which the first graph has two.
    fn taken(pooling: Pooling, first: &[f32], second: &[f32]) -> Vec<f32> {
        let mut work = Embedding::new(vec![1, 2, 3], Scales::default());
        work.take(2, pooling, first);
        if work.done < 3 {
            work.take(1, pooling, second);
        }
        work.into_values()
    }

    #[test]
    fn parts_of_a_text_become_one() {
        assert_eq!(taken(Pooling::None, &[1.0, 2.0], &[3.0]), [1.0, 2.0, 3.0]);
        assert_eq!(taken(Pooling::Last, &[1.0], &[3.0]), [3.0]);
        assert_eq!(taken(Pooling::Cls, &[1.0], &[3.0]), [1.0]);
        assert_eq!(taken(Pooling::Mean, &[1.5, 2.0], &[3.0, 8.0]), [2.0, 4.0]);
    }
}
