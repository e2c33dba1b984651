//! Guesses the next block's experts by applying its router to the hidden state that this block
//! starts from.
//!
//! The residual stream changes little from layer to layer, so most of the next router's choice can
//! be predicted before the layers in between have run ("router lookahead"; 81-89 % recall reported
//! for trained models). The router is found by structure: chosen ids come from sorted scores, and
//! scores from a product with the normalised hidden state.

use std::ffi::c_int;
use terrace_ggml::cpu::{Kernels, RawTensor, custom_node};
use terrace_ggml::{DataType, Op, Tensor};

/// Maximum number of nodes between a router's product and its ids.
const DEPTH: usize = 12;

/// A block's router. Its tensors belong to the graph and are valid for the call that lends it.
pub struct Router {
    /// The residual stream before the norm, F32 `[n_embd, tokens]`.
    hidden: *mut RawTensor,
    eps: f32,
    /// Weights of the norm, F32 `[n_embd]`.
    norm: *const f32,
    /// The router's matrix `[n_embd, experts]`.
    weights: *const u8,
    stride: usize,
    kernels: Kernels,
    width: usize,
    experts: usize,
    /// Bias added to the product, F32 `[experts]`; null if there is none.
    bias: *const f32,
    /// Bias added to the sigmoid of the product, only for choosing; null if there is none.
    choice_bias: *const f32,
}

/// Buffers for guesses, reused.
#[derive(Default)]
pub struct Guess {
    hidden: Vec<f32>,
    converted: Vec<u8>,
    scores: Vec<f32>,
    votes: Vec<Votes>,
    order: Vec<u32>,
}

impl Router {
    /// Finds the router that computes `ids`, if its structure is recognised. `is_there` tells
    /// whether a weight can be read at its address.
    pub fn find<'g>(ids: Tensor<'g>, is_there: impl Fn(Tensor<'g>) -> bool) -> Option<Self> {
        let mut at = ids;
        let (mut added, mut choice_bias) = (std::ptr::null(), std::ptr::null());
        for _ in 0..DEPTH {
            match at.op() {
                Op::MUL_MAT => return Self::new(at, added, choice_bias, is_there),
                Op::ADD => {
                    let operand = at.src(1)?;
                    let parameter =
                        operand.op() == Op::NONE && operand.ty() == DataType::F32 && is_there(operand);
                    if !parameter || !added.is_null() {
                        return None;
                    }
                    added = operand.data().cast::<f32>().cast_const();
                }
                // Walking backwards, a bias added to the activation's result only affects the
                // choice.
                Op::UNARY => choice_bias = std::mem::replace(&mut added, std::ptr::null()),
                Op::SOFT_MAX if !added.is_null() => return None,
                _ => {}
            }
            at = at.src(0)?;
        }
        None
    }

    fn new<'g>(
        product: Tensor<'g>,
        bias: *const f32,
        choice_bias: *const f32,
        is_there: impl Fn(Tensor<'g>) -> bool,
    ) -> Option<Self> {
        let (weights, input) = (product.src(0)?, product.src(1)?);
        let mut scaled = input;
        while scaled.op().is_view() {
            scaled = scaled.src(0)?;
        }
        let normed = scaled.src(0)?;
        let (norm, hidden) = (scaled.src(1)?, normed.src(0)?);
        let [width, experts, ..] = weights.ne();
        let plain = scaled.op() == Op::MUL
            && normed.op() == Op::RMS_NORM
            && norm.ty() == DataType::F32
            && norm.ne() == [width, 1, 1, 1]
            && hidden.ty() == DataType::F32
            && hidden.ne()[0] == width
            && is_there(weights)
            && is_there(norm);
        let kernels = Kernels::of(weights.ty())?;
        plain.then(|| Self {
            hidden: hidden.as_ptr(),
            eps: normed.float_param(0),
            norm: norm.data().cast(),
            weights: weights.data().cast(),
            stride: weights.nb()[1],
            kernels,
            width: width.unsigned_abs() as usize,
            experts: experts.unsigned_abs() as usize,
            bias,
            choice_bias,
        })
    }

    /// The scores that this router would give all experts for a token of the hidden state of `like`;
    /// none if the two routers' hidden states differ in width, or there is no such token.
    pub fn scores<'a>(&self, like: &Self, token: usize, memory: &'a mut Guess) -> &'a [f32] {
        memory.scores.clear();
        if like.width != self.width {
            return &memory.scores;
        }
        // SAFETY: the graph's tensors are alive during the run, and `like`'s hidden state was
        // computed: its block is running.
        let hidden = unsafe { custom_node(like.hidden) };
        if token as u64 >= hidden.ne()[1].unsigned_abs() {
            return &memory.scores;
        }
        // SAFETY: a row of an F32 tensor of `width` columns.
        let hidden = unsafe {
            let row = hidden.data().cast::<u8>().add(token * hidden.nb()[1]);
            std::slice::from_raw_parts(row.cast::<f32>(), self.width)
        };
        // SAFETY: `new` checked that these are `width` floats.
        let norm = unsafe { std::slice::from_raw_parts(self.norm, self.width) };
        let mean = hidden.iter().map(|x| x * x).sum::<f32>() / self.width as f32;
        let scale = 1.0 / (mean + self.eps).sqrt();
        memory.hidden.clear();
        memory.hidden.extend(hidden.iter().zip(norm).map(|(x, weight)| x * scale * weight));
        memory.converted.resize(self.kernels.activation_bytes(self.width), 0);
        let length = c_int::try_from(self.width).unwrap_or(0);
        // SAFETY: rows of `width` elements in the matrix's type, the converted row in its
        // activation type; biases have a float for each expert.
        unsafe {
            self.kernels.convert(memory.hidden.as_ptr(), memory.converted.as_mut_ptr().cast(), self.width);
            for expert in 0..self.experts {
                let row = self.weights.add(expert * self.stride);
                let mut score = self.kernels.dot(length, row.cast(), memory.converted.as_ptr().cast());
                if !self.bias.is_null() {
                    score += *self.bias.add(expert);
                }
                if !self.choice_bias.is_null() {
                    score = 1.0 / (1.0 + (-score).exp()) + *self.choice_bias.add(expert);
                }
                memory.scores.push(score);
            }
        }
        &memory.scores
    }

    /// The experts that this router would choose for `tokens` of the hidden state of `like`, `top` for
    /// each: those of most tokens first, and of these the best placed ones.
    pub fn guess<'a>(
        &self,
        like: &Self,
        tokens: impl Iterator<Item = usize>,
        top: usize,
        memory: &'a mut Guess,
    ) -> &'a [u32] {
        memory.votes.clear();
        memory.votes.resize(self.experts, Votes::default());
        for token in tokens {
            let known = self.scores(like, token, memory).len();
            memory.order.clear();
            memory.order.extend(0..known as u32);
            let scores = &memory.scores;
            let likelier =
                |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
            if top < memory.order.len() {
                memory.order.select_nth_unstable_by(top, likelier);
                memory.order.truncate(top);
            }
            memory.order.sort_unstable_by(likelier);
            for (place, &expert) in memory.order.iter().enumerate() {
                let votes = &mut memory.votes[expert as usize];
                votes.tokens += 1;
                votes.places += place as u32;
            }
        }
        let votes = &memory.votes;
        memory.order.clear();
        memory.order.extend((0..self.experts as u32).filter(|&expert| votes[expert as usize].tokens > 0));
        memory.order.sort_unstable_by_key(|&expert| {
            let Votes { tokens, places } = votes[expert as usize];
            (std::cmp::Reverse(tokens), places, expert)
        });
        &memory.order
    }
}

/// Number of times that an expert is chosen.
#[derive(Clone, Copy, Default)]
struct Votes {
    tokens: u32,
    /// The sum of its places among the chosen ones.
    places: u32,
}
