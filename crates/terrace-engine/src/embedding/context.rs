//! Makes the context for embeddings, and computes with it.

use super::{Embedder, EmbeddingFacts, Shape};
use crate::adapters::Scales;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::unfit::Unfit;
use std::sync::Arc;
use terrace_backend::PassKind;
use terrace_ggml::llama::{Batch, Context, ContextError};
use terrace_host::available_memory;
use terrace_model::ByteSize;

impl Engine {
    /// Facts about embeddings; `None` if there are to be none.
    pub fn embedding_facts(&self) -> Option<EmbeddingFacts> {
        let shape = self.embedder().as_ref()?.shape;
        Some(EmbeddingFacts {
            pooling: shape.pooling,
            width: self.model().embedding_width(),
            most: shape.tokens as usize,
            encoder: shape.encoder,
            rank_template: self.model().rank_template(),
            pair: self.vocab().pair(),
        })
    }

    /// Makes the context for embeddings, if there is none yet.
    pub(crate) fn make_embedder(&mut self) -> Result<Shape, EngineError> {
        let Some(embedder) = self.embedder() else { return Err(Unfit::NoEmbeddings.into()) };
        let (shape, params, stock) = (embedder.shape, embedder.params, embedder.stock);
        if shape.encoder || embedder.context.is_some() {
            return Ok(shape);
        }
        if let Some(needed) = embedder.uncounted {
            self.make_room(shape, needed)?;
        }
        let made = Context::new(Arc::clone(self.model()), &params, self.interrupt_flag());
        let mut context = match made {
            Ok(context) => context,
            Err(error) => {
                self.lend_beside(ByteSize::ZERO);
                return Err(error.into());
            }
        };
        if stock {
            context.attach_threads(params.threads.max(params.threads_batch));
        }
        let (cache, compute) = context.memory();
        tracing::info!(tokens = shape.tokens, pooling = %shape.pooling, %cache, %compute, "context for embeddings");
        if let Some(embedder) = self.embedder_mut() {
            (embedder.context, embedder.scales) = (Some(context), Scales::default());
        }
        Ok(shape)
    }

    /// Has the slots of an automatic budget make room, and checks that there is memory for the rest.
    fn make_room(&mut self, shape: Shape, needed: ByteSize) -> Result<(), Unfit> {
        let lent = self.lend_beside(needed);
        let available = available_memory();
        if needed.saturating_sub(lent) <= available {
            return Ok(());
        }
        self.lend_beside(ByteSize::ZERO);
        Err(Unfit::EmbeddingsTooLarge { tokens: shape.tokens, needed, available: available + lent })
    }

    /// Frees the context for embeddings, whose graphs were made for other weights.
    pub(crate) fn drop_embedder(&mut self) {
        if let Some(embedder) = self.embedder_mut() {
            embedder.context = None;
        }
    }

    /// The context for embeddings.
    pub(super) fn embedding_context(&mut self) -> &mut Context {
        let (embedder, context, _) = self.contexts();
        embedder.and_then(|embedder| embedder.context.as_mut()).unwrap_or(context)
    }

    /// Has the context for embeddings compute with these adapters from now on.
    fn embed_with(&mut self, scales: &Scales) {
        let (embedder, _, adapters) = self.contexts();
        match embedder.filter(|embedder| embedder.context.is_some()) {
            Some(Embedder { context: Some(context), scales: applied, .. }) if applied != scales => {
                adapters.apply(context, scales);
                applied.clone_from(scales);
            }
            Some(_) => {}
            None => self.use_scales(scales),
        }
    }

    pub(super) fn decode_embedding(
        &mut self,
        batch: &mut Batch,
        scales: &Scales,
    ) -> Result<(), ContextError> {
        self.embed_with(scales);
        self.set_pass_kind(Some(PassKind::Prefill));
        let computed = self.embedding_context().decode_batch(batch);
        self.set_pass_kind(None);
        self.note_decoded(computed.is_ok() && batch.outputs() > 0);
        computed
    }
}
