//! Results of calls.

/// Version of this interface. It changes where programs that were built for an earlier one would not work.
pub const ABI_VERSION: u32 = 0;

/// The result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    TerraceOk = 0,
    /// An argument is null, not UTF-8, not JSON, or names no option or value.
    TerraceArgument = 1,
    /// The model, or a file beside it, cannot be read or used.
    TerraceModel = 2,
    /// This machine, or its memory, cannot do what was asked.
    TerraceUnfit = 3,
    /// The prompt is empty, or does not fit the context.
    TerracePrompt = 4,
    /// The chat template is missing, refuses the conversation, or cannot be applied.
    TerraceTemplate = 5,
    /// The computation, or a read for it, failed. The session is as it was before.
    TerraceCompute = 6,
    /// Tensors could not be replaced. The model is unchanged.
    TerraceReload = 7,
    /// terrace_model_interrupt ended the call.
    TerraceCancelled = 8,
    /// The buffer is too small. The count says how much there is.
    TerraceBuffer = 9,
    /// A callback used its own model.
    TerraceBusy = 10,
    /// A defect of Terrace, now or in an earlier call on this model, which can only be freed.
    TerracePanic = 11,
}
