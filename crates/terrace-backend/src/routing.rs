//! The router's choice: token rows grouped by expert.

use crate::error::BackendError;
use crate::passes::Prompts;
use terrace_ggml::Tensor;
use terrace_store::Use;

/// The pairs (slot within top-k, token) of one ids tensor, grouped by expert in ascending order.
/// Within an expert the pairs keep the order of tokens, as in ggml's MUL_MAT_ID.
#[derive(Debug, Default)]
pub struct Routing {
    ids: Option<usize>,
    tokens: u64,
    top_k: usize,
    touched: Vec<u32>,
    starts: Vec<u32>,
    rows: Vec<[i32; 2]>,
    counts: Vec<u32>,
}

impl Routing {
    /// Forgets the ids, since the next graph has others.
    pub fn reset(&mut self) {
        self.ids = None;
    }

    /// Reads `ids` (I32, `[top_k, tokens]`, any strides), unless they have been read, of all tokens or of
    /// the prompts' own ones. Returns whether it read them, which is so for the first of the nodes that
    /// share them.
    ///
    /// # Errors
    /// [`BackendError::NoSuchExpert`] for an id outside `0..experts`.
    pub fn read(
        &mut self,
        ids: Tensor<'_>,
        experts: u32,
        prompts: Option<&Prompts>,
        tensor: impl Fn() -> String,
    ) -> Result<bool, BackendError> {
        if self.ids == Some(ids.as_ptr() as usize) {
            return Ok(false);
        }
        let [top_k, tokens, ..] = ids.ne();
        let [stride_k, stride_token, ..] = ids.nb();
        let base = ids.data().cast::<u8>();
        let at = |slot: i64, token: i64| -> i32 {
            let offset =
                slot.unsigned_abs() as usize * stride_k + token.unsigned_abs() as usize * stride_token;
            // SAFETY: ids is an allocated I32 tensor that has been computed (it precedes this node
            // in the graph), and slot and token are within its dimensions.
            unsafe { base.add(offset).cast::<i32>().read_unaligned() }
        };
        self.counts.clear();
        self.counts.resize(experts as usize, 0);
        let counts = |token: i64| prompts.is_none_or(|prompts| prompts.is_own(token.unsigned_abs() as usize));
        for token in (0..tokens).filter(|&token| counts(token)) {
            for slot in 0..top_k {
                let id = at(slot, token);
                let expert = usize::try_from(id).ok().filter(|&e| e < experts as usize);
                let Some(expert) = expert else {
                    return Err(BackendError::NoSuchExpert { tensor: tensor(), expert: id, experts });
                };
                self.counts[expert] += 1;
            }
        }
        self.touched.clear();
        self.starts.clear();
        let mut next = 0;
        for (expert, count) in self.counts.iter_mut().enumerate() {
            if *count > 0 {
                self.touched.push(expert as u32);
                self.starts.push(next);
                // From here on, `counts` holds the index of the expert's next pair.
                next += std::mem::replace(count, next);
            }
        }
        self.starts.push(next);
        self.rows.clear();
        self.rows.resize(next as usize, [0; 2]);
        for token in (0..tokens).filter(|&token| counts(token)) {
            for slot in 0..top_k {
                let place = &mut self.counts[at(slot, token).unsigned_abs() as usize];
                self.rows[*place as usize] = [slot as i32, token as i32];
                *place += 1;
            }
        }
        self.ids = Some(ids.as_ptr() as usize);
        self.tokens = tokens.unsigned_abs();
        self.top_k = top_k.unsigned_abs() as usize;
        Ok(true)
    }

    /// Use of the experts: for decoding, or in a sweep.
    pub fn how(&self) -> Use {
        Use::of_tokens(self.tokens)
    }

    /// Number of routed tokens.
    pub fn tokens(&self) -> usize {
        self.tokens as usize
    }

    /// Number of experts of a token.
    pub const fn top_k(&self) -> usize {
        self.top_k
    }

    /// Number of pairs of token and expert.
    pub fn pairs(&self) -> usize {
        self.rows.len()
    }

    /// Experts with at least one row, ascending.
    pub fn touched(&self) -> &[u32] {
        &self.touched
    }

    /// The rows of the `i`-th touched expert.
    pub fn rows(&self, i: usize) -> &[[i32; 2]] {
        &self.rows[self.range(i)]
    }

    /// Range of the rows of the `i`-th touched expert among all rows, which are ordered by expert.
    pub fn range(&self, i: usize) -> std::ops::Range<usize> {
        self.starts[i] as usize..self.starts[i + 1] as usize
    }
}
