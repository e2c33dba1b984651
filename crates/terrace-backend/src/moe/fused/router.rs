//! Guesses the next block's experts by applying its router to the hidden state that this block
//! starts from.
//!
//! The residual stream changes little from layer to layer, so most of the next router's choice can
//! be predicted before the layers in between have run ("router lookahead"; 81-89 % recall reported
//! for trained models). The router is found by structure: chosen ids come from sorted scores, and
//! scores from a product with the normalised hidden state.
//!
//! Models with several residual streams (hyper-connections) mix these in a way of each layer's own. There the next router is
//! applied to what this block's router was, and how often that is right has to be seen first
//! ([`Lookahead`](super::lookahead::Lookahead)).

use std::ffi::c_int;
use terrace_ggml::cpu::{Kernels, RawTensor, custom_node};
use terrace_ggml::{DataType, Op, Tensor};

/// Maximum number of nodes between a router's product and its ids.
const DEPTH: usize = 12;

/// A block's router. Its tensors belong to the graph and are valid for the call that lends it.
pub struct Router {
    /// The residual stream before the norm, or what the router and its block start from, F32 `[n_embd, tokens]`.
    hidden: *mut RawTensor,
    /// The norm; `None` if `hidden` is not normalised any more.
    norm: Option<Norm>,
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

/// The norm before a router.
#[derive(Clone, Copy)]
struct Norm {
    eps: f32,
    /// F32 `[n_embd]`.
    weights: *const f32,
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
    /// Finds the router that computes `ids` for a block with this input, if its structure is recognised. `is_there` tells
    /// whether a weight can be read at its address.
    pub fn find<'g>(
        ids: Tensor<'g>,
        input: Tensor<'g>,
        is_there: impl Fn(Tensor<'g>) -> bool,
    ) -> Option<Self> {
        let mut at = ids;
        let (mut added, mut choice_bias) = (std::ptr::null(), std::ptr::null());
        for _ in 0..DEPTH {
            match at.op() {
                Op::MUL_MAT => return Self::new(at, input, added, choice_bias, is_there),
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
        block_input: Tensor<'g>,
        bias: *const f32,
        choice_bias: *const f32,
        is_there: impl Fn(Tensor<'g>) -> bool,
    ) -> Option<Self> {
        let (weights, input) = (product.src(0)?, product.src(1)?);
        let [width, experts, ..] = weights.ne();
        let (norm, hidden) = match Norm::before(input, width, &is_there) {
            Some((norm, hidden)) => (Some(norm), hidden),
            // It stays in memory while its block is computed.
            None if input.storage() == block_input.storage() && input.data() == block_input.data() => {
                (None, input)
            }
            None => return None,
        };
        let is_known = hidden.ty() == DataType::F32 && hidden.ne()[0] == width && is_there(weights);
        let kernels = Kernels::of(weights.ty())?;
        is_known.then(|| Self {
            hidden: hidden.as_ptr(),
            norm,
            weights: weights.data().cast(),
            stride: weights.nb()[1],
            kernels,
            width: width.unsigned_abs() as usize,
            experts: experts.unsigned_abs() as usize,
            bias,
            choice_bias,
        })
    }

    /// Returns true if the residual stream itself is known, which changes little from layer to layer.
    pub const fn knows_stream(&self) -> bool {
        self.norm.is_some()
    }

    /// The scores that this router would give all experts for a token of the hidden state of `like`;
    /// none if the two routers' hidden states differ in width or kind, or there is no such token.
    pub fn scores<'a>(&self, like: &Self, token: usize, memory: &'a mut Guess) -> &'a [f32] {
        memory.scores.clear();
        if like.width != self.width || like.norm.is_some() != self.norm.is_some() {
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
        memory.hidden.clear();
        match self.norm {
            Some(Norm { eps, weights }) => {
                // SAFETY: `Norm::before` checked that these are `width` floats.
                let weights = unsafe { std::slice::from_raw_parts(weights, self.width) };
                let mean = hidden.iter().map(|x| x * x).sum::<f32>() / self.width as f32;
                let scale = 1.0 / (mean + eps).sqrt();
                memory.hidden.extend(hidden.iter().zip(weights).map(|(x, weight)| x * scale * weight));
            }
            None => memory.hidden.extend_from_slice(hidden),
        }
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

impl Norm {
    /// The norm that `input` comes from, and what it normalises.
    fn before<'g>(
        input: Tensor<'g>,
        width: i64,
        is_there: impl Fn(Tensor<'g>) -> bool,
    ) -> Option<(Self, Tensor<'g>)> {
        let mut scaled = input;
        while scaled.op().is_view() {
            scaled = scaled.src(0)?;
        }
        let normed = scaled.src(0)?;
        let (weights, hidden) = (scaled.src(1)?, normed.src(0)?);
        let known = scaled.op() == Op::MUL
            && normed.op() == Op::RMS_NORM
            && weights.ty() == DataType::F32
            && weights.ne() == [width, 1, 1, 1]
            && is_there(weights);
        known.then(|| (Self { eps: normed.float_param(0), weights: weights.data().cast() }, hidden))
    }
}

/// Number of times that an expert is chosen.
#[derive(Clone, Copy, Default)]
struct Votes {
    tokens: u32,
    /// The sum of its places among the chosen ones.
    places: u32,
}
