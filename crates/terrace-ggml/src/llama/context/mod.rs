//! A context: KV cache, scheduler and backends.

mod error;
mod hidden;
mod params;

pub use error::ContextError;
pub use hidden::Hidden;
pub use params::{CacheType, ContextParams, FlashAttention};

use super::load::Model;
use super::observer::{Observer, Observing};
use super::pooling::Pooling;
use super::token::Token;
use crate::backend::parked;
use crate::cxx::{CxxError, calls, guard, guard_assertions};
use crate::devices::registry::Turn;
use crate::log;
use llama_cpp_sys_2 as sys;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use terrace_model::ByteSize;

/// A context over a model.
pub struct Context {
    ptr: NonNull<sys::llama_context>,
    pool: Option<NonNull<sys::ggml_threadpool>>,
    vocab: usize,
    /// Maximum number of logits rows per call.
    most_outputs: usize,
    /// Rows of logits that the last call left, and its tokens.
    outputs: usize,
    tokens: usize,
    /// Which hidden states calls leave, if any.
    pub(super) hidden: Option<Hidden>,
    /// True if it computes the model's MTP layers, not the others.
    of_mtp: bool,
    /// Pooling of embeddings, if there are any, and the number of their values.
    embeddings: Option<(Pooling, usize)>,
    /// Reused: which tokens of a call leave logits.
    wanted: Vec<i8>,
    /// Reused: pointers to the sequences of each token of a batch.
    pub(super) places: Vec<*mut i32>,
    /// Exception of llama.cpp in a function that returns no error; the next computation returns it.
    thrown: Option<CxxError>,
    /// A driver threw while it computed. Freeing the context waits for its devices, where the same
    /// is thrown again, out of a destructor.
    stuck: bool,
    /// llama.cpp keeps its address.
    ends: Box<Ends>,
    /// Keeps the flag whose address `ends` has.
    caller: Option<Arc<AtomicBool>>,
    /// llama.cpp keeps its address.
    _observer: Option<Box<Observing>>,
    model: Arc<Model>,
}

// SAFETY: a context has no thread affinity; `&mut self` makes its use exclusive.
unsafe impl Send for Context {}

unsafe extern "C" {
    /// `outputs.cpp`.
    fn terrace_context_allow_outputs(context: *mut sys::llama_context, most: u32);
}

/// The code that `llama_decode` returns if the abort callback has ended it (`llama.h`).
const ABORTED: i32 = 2;

/// The flags that end a context's computations early.
struct Ends {
    interrupt: Arc<AtomicBool>,
    /// The flag of whoever is computed for at the moment; null if there is none.
    caller: AtomicPtr<AtomicBool>,
}

unsafe extern "C" fn is_to_end(data: *mut c_void) -> bool {
    // SAFETY: `data` is what the context holds; it keeps the caller's flag for as long as its address is there.
    unsafe {
        let ends = &*data.cast::<Ends>();
        let caller = ends.caller.load(Ordering::Acquire).as_ref();
        ends.interrupt.load(Ordering::Relaxed) || caller.is_some_and(|left| left.load(Ordering::Relaxed))
    }
}

impl Context {
    /// Makes a context. Setting `interrupt` ends computations.
    ///
    /// # Errors
    /// [`ContextError::Create`] with llama.cpp's reason (usually lack of memory), or a backend's
    /// error.
    pub fn new(
        model: Arc<Model>,
        params: &ContextParams,
        interrupt: Arc<AtomicBool>,
    ) -> Result<Self, ContextError> {
        Self::observed(model, params, interrupt, None)
    }

    /// Like [`Context::new`], with an observer that is shown tensors of the context's graphs during
    /// the computation.
    ///
    /// # Errors
    /// As [`Context::new`].
    pub fn observed(
        model: Arc<Model>,
        params: &ContextParams,
        interrupt: Arc<AtomicBool>,
        observer: Option<Box<dyn Observer>>,
    ) -> Result<Self, ContextError> {
        Self::make(model, params, interrupt, observer, false)
    }

    /// `of_mtp`: whether it is to compute the model's MTP layers.
    pub(super) fn make(
        model: Arc<Model>,
        params: &ContextParams,
        interrupt: Arc<AtomicBool>,
        observer: Option<Box<dyn Observer>>,
        of_mtp: bool,
    ) -> Result<Self, ContextError> {
        let mut raw = params.raw();
        if of_mtp {
            raw.ctx_type = sys::LLAMA_CONTEXT_TYPE_MTP;
        }
        let ends = Box::new(Ends { interrupt, caller: AtomicPtr::default() });
        raw.abort_callback = Some(is_to_end);
        raw.abort_callback_data = (&raw const *ends).cast_mut().cast();
        let mut observer = observer.map(|observer| Box::new(Observing::new(observer)));
        if let Some(observer) = &mut observer {
            raw.cb_eval = Some(Observing::call);
            raw.cb_eval_user_data = (&raw mut **observer).cast();
        }
        drop(parked::take());
        let turn = Turn::take(model.processor()).ok_or(ContextError::NotFirst)?;
        let (ptr, lines) = log::capture(|| {
            // SAFETY: the model is alive and outlives the context (the Arc).
            guard_assertions(|| unsafe { calls::llama_init_from_model(model.as_ptr(), raw) })
        });
        drop(turn);
        let (ptr, reason) = match ptr {
            Ok(ptr) => (NonNull::new(ptr), why_not_made(&lines)),
            Err(thrown) => (None, thrown.to_string()),
        };
        let Some(ptr) = ptr else {
            return Err(match parked::take() {
                Some(error) => ContextError::Backend(error),
                None => ContextError::Create { tokens: params.context, reason },
            });
        };
        Ok(Self {
            ptr,
            pool: None,
            vocab: model.vocab().len(),
            most_outputs: raw.n_outputs_max as usize,
            outputs: 0,
            tokens: 0,
            hidden: None,
            of_mtp,
            embeddings: params.embeddings.map(|pooling| match pooling {
                Pooling::Rank => (pooling, model.classes()),
                _ => (pooling, model.embedding_width()),
            }),
            wanted: Vec::new(),
            places: Vec::new(),
            thrown: None,
            stuck: false,
            ends,
            caller: None,
            _observer: observer,
            model,
        })
    }

    /// Has this flag end computations, too, from now on; `None`: the interrupt alone does.
    pub fn end_with(&mut self, caller: Option<Arc<AtomicBool>>) {
        let address = caller.as_ref().map_or(std::ptr::null(), Arc::as_ptr);
        self.ends.caller.store(address.cast_mut(), Ordering::Release);
        // Only now is the flag before it not known to llama.cpp any more.
        self.caller = caller;
    }

    /// Gives the context's CPU backend a persistent thread pool, as llama.cpp's own programs do.
    /// Without one, ggml starts threads for every graph. Not needed if a backend of Terrace
    /// computes everything: that has its own.
    pub fn attach_threads(&mut self, threads: usize) {
        self.attach(threads, None);
    }

    /// Like [`Context::attach_threads`], with threads that sleep while nothing is computed, and leave the
    /// cores to another pool.
    pub fn attach_sleeping_threads(&mut self, threads: usize) {
        self.attach(threads, Some(0));
    }

    /// `poll`: how long idle threads wait for work at full speed; `None`: ggml's default.
    fn attach(&mut self, threads: usize, poll: Option<u32>) {
        let n = i32::try_from(threads.clamp(1, 512)).expect("clamped");
        // SAFETY: default parameters for n threads; the pool is detached before it is freed (Drop).
        unsafe {
            let mut params = sys::ggml_threadpool_params_default(n);
            params.poll = poll.unwrap_or(params.poll);
            self.pool = NonNull::new(sys::ggml_threadpool_new(&raw mut params));
            if let Some(pool) = self.pool {
                sys::llama_attach_threadpool(self.ptr.as_ptr(), pool.as_ptr(), std::ptr::null_mut());
            }
        }
    }

    /// Sets the numbers of threads for passes of one token and of several.
    pub fn set_threads(&mut self, one: usize, several: usize) {
        let threads = |threads: usize| i32::try_from(threads.clamp(1, 512)).expect("clamped");
        // SAFETY: the context is alive.
        unsafe { sys::llama_set_n_threads(self.ptr.as_ptr(), threads(one), threads(several)) };
    }

    /// Sizes of the context's cache (keys, values, states) and of its graphs' activations, as
    /// llama.cpp reports them.
    ///
    /// # Panics
    /// If llama.cpp cannot allocate a few hundred bytes.
    pub fn memory(&self) -> (ByteSize, ByteSize) {
        let (mut cache, mut compute) = (0, 0);
        // SAFETY: the context is alive; both pointers are to valid integers
        // (`memory_breakdown.cpp`).
        let counted = guard(|| unsafe {
            calls::terrace_context_memory(self.ptr.as_ptr(), &raw mut cache, &raw mut compute);
        });
        counted.expect("memory for a map of buffer types");
        (ByteSize(cache as u64), ByteSize(compute as u64))
    }

    /// Returns true if it is a context of this model.
    pub(super) fn is_of(&self, model: &Arc<Model>) -> bool {
        Arc::ptr_eq(&self.model, model)
    }

    /// Has the next computation fail with what llama.cpp threw.
    pub(super) fn fail_next(&mut self, thrown: CxxError) {
        self.thrown = Some(thrown);
    }

    pub(crate) fn as_ptr(&mut self) -> *mut sys::llama_context {
        self.ptr.as_ptr()
    }

    pub(crate) const fn as_const_ptr(&self) -> *const sys::llama_context {
        self.ptr.as_ptr()
    }

    /// Number of values of an embedding, or of scores.
    pub(super) fn embedding_width(&self) -> usize {
        self.embeddings.map_or(0, |(_, width)| width)
    }

    /// Returns true if each token has an embedding of its own.
    pub(super) fn keeps_token_embeddings(&self) -> bool {
        self.embeddings.is_some_and(|(pooling, _)| pooling == Pooling::None)
    }

    /// Number of values of a hidden state.
    pub(super) fn hidden_width(&self) -> usize {
        self.model.embedding_width()
    }

    /// Number of MTP layers of its model.
    pub(super) fn layers_of_mtp(&self) -> u32 {
        self.model.mtp_layers()
    }

    /// Returns true if it computes the model's MTP layers.
    pub(super) const fn is_of_mtp(&self) -> bool {
        self.of_mtp
    }

    /// Number of tokens of the last call.
    pub(super) const fn last_tokens(&self) -> usize {
        self.tokens
    }

    /// Rows of logits that the last call left.
    pub(super) const fn output_rows(&self) -> usize {
        self.outputs
    }

    /// Maximum number of tokens of a sequence.
    pub fn size(&self) -> u32 {
        // SAFETY: the context is alive.
        unsafe { sys::llama_n_ctx_seq(self.ptr.as_ptr()) }
    }

    /// Returns true if the context keeps what it has computed of a sequence. Without that, as with models that
    /// embed or refine whole texts, llama.cpp asserts that each call is one graph.
    pub fn keeps_sequences(&self) -> bool {
        // SAFETY: the context is alive.
        !unsafe { sys::llama_get_memory(self.ptr.as_ptr()) }.is_null()
    }

    /// Maximum number of sequences.
    pub fn sequences(&self) -> u32 {
        // SAFETY: the context is alive.
        unsafe { sys::llama_n_seq_max(self.ptr.as_ptr()) }
    }

    /// Appends `tokens` (at most a batch) to sequence 0 and computes them. The logits of the last
    /// one are kept.
    ///
    /// # Errors
    /// [`ContextError`]. After [`ContextError::Full`] nothing has changed; after any other error,
    /// some of the call's tokens may be in the cache.
    pub fn decode(&mut self, tokens: &mut [Token]) -> Result<(), ContextError> {
        self.decode_keeping(tokens, tokens.len().saturating_sub(1))
    }

    /// Like [`Context::decode`], but keeps the logits of all tokens of the call from the `first`
    /// (0-based) on, for [`Context::outputs`]. Keeps none if `first` is past the last token.
    ///
    /// # Errors
    /// As [`Context::decode`].
    pub fn decode_keeping(&mut self, tokens: &mut [Token], first: usize) -> Result<(), ContextError> {
        let n = i32::try_from(tokens.len()).expect("at most a batch");
        self.wanted.clear();
        self.wanted.extend((0..tokens.len()).map(|i| i8::from(i >= first)));
        let wanted = self.wanted.as_mut_ptr();
        // Token is repr(transparent) over llama_token; llama.cpp does not write through the
        // pointers.
        let ptr = tokens.as_mut_ptr().cast::<i32>();
        // SAFETY: the batch borrows `tokens` and `wanted`, equally long, for the call; positions
        // follow the cache.
        unsafe {
            let batch = sys::llama_batch { logits: wanted, ..sys::llama_batch_get_one(ptr, n) };
            self.submit(batch, tokens.len().saturating_sub(first))
        }
    }

    /// Waits until everything that was submitted has been computed. A device that throws meanwhile fails
    /// the next call.
    pub fn synchronize(&mut self) {
        // SAFETY: a live context.
        let waited = guard(|| unsafe { calls::llama_synchronize(self.ptr.as_ptr()) });
        if let Err(thrown) = waited {
            self.stuck = true;
            self.thrown = Some(thrown);
        }
    }

    /// Computes a batch that leaves `outputs` rows of logits.
    ///
    /// # Safety
    /// The batch's arrays have the length that it states and are live during the call; `outputs` of
    /// its tokens request logits.
    pub(super) unsafe fn submit(
        &mut self,
        batch: sys::llama_batch,
        outputs: usize,
    ) -> Result<(), ContextError> {
        (self.outputs, self.tokens) = (0, 0);
        if outputs > self.most_outputs {
            return Err(ContextError::Outputs { asked: outputs, most: self.most_outputs });
        }
        if let Some(thrown) = self.thrown.take() {
            return Err(thrown.into());
        }
        drop(parked::take());
        let tokens = usize::try_from(batch.n_tokens).unwrap_or(0);
        // SAFETY: by contract. Rows of logits are waited for here, where a device may throw.
        let decode = || unsafe {
            let code = calls::llama_decode(self.ptr.as_ptr(), batch);
            if code == 0 && outputs > 0 {
                calls::llama_synchronize(self.ptr.as_ptr());
            }
            code
        };
        let (code, lines) = log::capture(|| guard(decode));
        let code = match code {
            Ok(code) => code,
            // A failure of ours may be the cause.
            Err(thrown) => {
                self.stuck = true;
                return Err(parked::take().map_or_else(|| thrown.into(), ContextError::Backend));
            }
        };
        match code {
            // llama.cpp does not always pass a failure on: a graph that an observer ends early
            // counts as computed.
            0 => match parked::take() {
                Some(error) => Err(ContextError::Backend(error)),
                None => {
                    (self.outputs, self.tokens) = (outputs, tokens);
                    Ok(())
                }
            },
            _ if self.ends.interrupt.load(Ordering::Relaxed) => Err(ContextError::Interrupted),
            1 => Err(ContextError::Full),
            code => Err(match parked::take() {
                Some(error) => ContextError::Backend(error),
                None if code == ABORTED => ContextError::Interrupted,
                None => ContextError::Decode { tokens, code, reason: first_line(&lines) },
            }),
        }
    }

    /// Allows calls that leave up to `most` rows of logits. The buffers of llama.cpp and of its graphs
    /// grow with the first such call, by a row each for each row.
    pub fn allow_outputs(&mut self, most: usize) {
        let rows = u32::try_from(most).unwrap_or(u32::MAX);
        // SAFETY: the context is alive; a number is compared and stored (`outputs.cpp`).
        unsafe { terrace_context_allow_outputs(self.ptr.as_ptr(), rows) };
        self.most_outputs = self.most_outputs.max(most);
    }

    /// llama.cpp's number for a row of logits that the last call left: negative ones count from the
    /// last row.
    ///
    /// # Panics
    /// If the last call has left no such row.
    pub(super) fn index_from_end(&self, row: usize) -> i32 {
        let index_from_end =
            self.outputs.checked_sub(row).filter(|&n| n > 0).expect("a row of the last call");
        -i32::try_from(index_from_end).expect("at most a batch of rows")
    }

    /// Logits that the last call kept: one row per token, with one value per vocabulary entry.
    pub fn outputs(&mut self) -> &[f32] {
        if self.outputs == 0 {
            return &[];
        }
        // SAFETY: the context is alive; the rows are in the order of the batch.
        let rows = unsafe { sys::llama_get_logits(self.ptr.as_ptr()) };
        assert!(!rows.is_null(), "logits were requested");
        // SAFETY: there are `self.outputs` rows of one float per vocabulary entry, which live until
        // the next decode (&mut self).
        unsafe { std::slice::from_raw_parts(rows, self.outputs * self.vocab) }
    }

    /// A row of logits that the last call left (0-based), one value per vocabulary entry.
    ///
    /// # Panics
    /// If the last call has left no such row.
    pub fn row(&mut self, row: usize) -> &[f32] {
        self.row_mut(row)
    }

    /// As [`Context::row`], to be changed before a token is chosen from it.
    ///
    /// # Panics
    /// If the last call has left no such row.
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        let index = self.index_from_end(row);
        // SAFETY: the context is alive, and the row exists.
        let values = unsafe { sys::llama_get_logits_ith(self.ptr.as_ptr(), index) };
        assert!(!values.is_null(), "logits were requested");
        // SAFETY: a row has one float per vocabulary entry, which lives until the next decode, and
        // nothing else uses it meanwhile (&mut self).
        unsafe { std::slice::from_raw_parts_mut(values, self.vocab) }
    }

    /// Logits of the last computed token, one per vocabulary entry.
    pub fn logits(&mut self) -> Option<&[f32]> {
        // SAFETY: the context is alive; -1 is the last output row.
        let row = unsafe { sys::llama_get_logits_ith(self.ptr.as_ptr(), -1) };
        // SAFETY: a row has one float per vocabulary entry and lives until the next decode (&mut
        // self).
        (!row.is_null()).then(|| unsafe { std::slice::from_raw_parts(row, self.vocab) })
    }

    /// Makes the next call build its graph, and allocate its memory, again. Needed after a change
    /// of how weights are stored.
    pub fn forget_graphs(&mut self) {
        // No control vector is ever set. Unsetting it makes llama.cpp drop the graphs and schedules
        // that it keeps, which nothing else in its interface does. SAFETY: the context is alive;
        // without data, nothing is read.
        unsafe { sys::llama_set_adapter_cvec(self.ptr.as_ptr(), std::ptr::null(), 0, 0, 0, 0) };
    }

    /// Removes all tokens. If llama.cpp throws, the next computation fails with that.
    pub fn clear(&mut self) {
        // SAFETY: the context is alive.
        let cleared = guard(|| unsafe {
            calls::llama_memory_clear(sys::llama_get_memory(self.ptr.as_ptr()), true);
        });
        self.thrown = cleared.err();
    }

    /// Removes the tokens of a sequence from position `from` on. Returns false if this kind of
    /// memory cannot (recurrent models, unless all tokens are removed). If llama.cpp throws, the
    /// next computation fails with that.
    pub fn truncate(&mut self, sequence: u32, from: u32) -> bool {
        let int = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        // SAFETY: the context is alive; -1 means to the end. llama.cpp refuses sequences that the
        // context does not have.
        let removed = guard(|| unsafe {
            let memory = sys::llama_get_memory(self.ptr.as_ptr());
            calls::llama_memory_seq_rm(memory, int(sequence), int(from), -1)
        });
        removed.unwrap_or_else(|thrown| {
            self.thrown = Some(thrown);
            false
        })
    }

    /// The first position of a sequence whose keys and values are present in all layers; `None` if
    /// the sequence has no tokens, or llama.cpp throws. With sliding windows, earlier positions may
    /// have been overwritten.
    pub fn first_position(&self, sequence: u32) -> Option<u32> {
        let sequence = i32::try_from(sequence).unwrap_or(i32::MAX);
        // SAFETY: the context is alive. The result is -1 for sequences without tokens.
        let first = guard(|| unsafe {
            calls::llama_memory_seq_pos_min(sys::llama_get_memory(self.ptr.as_ptr()), sequence)
        });
        u32::try_from(first.ok()?).ok()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: owned; the pool is detached before both are freed, or the pool alone.
        unsafe {
            sys::llama_detach_threadpool(self.ptr.as_ptr());
            if !self.stuck {
                sys::llama_free(self.ptr.as_ptr());
            }
            if let Some(pool) = self.pool {
                sys::ggml_threadpool_free(pool.as_ptr());
            }
        }
    }
}

/// Why a context was not made: after other lines, llama.cpp says what it caught.
fn why_not_made(lines: &[String]) -> String {
    const CAUGHT: &str = "failed to initialize the context: ";
    let caught = lines.iter().find_map(|line| line.split_once(CAUGHT));
    caught.map_or_else(|| first_line(lines), |(_, reason)| reason.trim_end().to_owned())
}

fn first_line(lines: &[String]) -> String {
    lines.first().map_or_else(
        || "no reason given".into(),
        |l| l.split_once(": ").map_or(l.as_str(), |(_, rest)| rest).to_owned(),
    )
}
