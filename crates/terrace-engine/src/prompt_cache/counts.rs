//! Reports about kept conversations.

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub kept: u64,
    pub restored: u64,
    pub restored_tokens: u64,
    pub copied_bytes: u64,
    pub copy_seconds: f64,
    pub disk_read: u64,
}

/// The state of the kept conversations, and totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromptCacheStatus {
    /// Most bytes in RAM.
    pub limit: u64,
    /// Bytes in RAM, with those of checkpoints.
    pub bytes: u64,
    /// Number of conversations in RAM.
    pub conversations: usize,
    /// Number of conversations that made room in RAM for others.
    pub evicted: u64,
    /// Number of conversations that were copied out of the context.
    pub kept: u64,
    /// Number of conversations that were put back for a prompt.
    pub restored: u64,
    /// Number of tokens that need not be evaluated because of that.
    pub restored_tokens: u64,
    /// Bytes that were copied, in both directions.
    pub copied_bytes: u64,
    /// Seconds that this took. Nothing is computed meanwhile.
    pub copy_seconds: f64,
    /// Most bytes on disk; 0 if there is no directory.
    pub disk_limit: u64,
    /// Bytes on disk, also of other models.
    pub disk_bytes: u64,
    /// Number of this model's conversations on disk.
    pub disk_conversations: usize,
    /// Number of conversations written to disk.
    pub disk_written: u64,
    /// Number of conversations read from disk.
    pub disk_read: u64,
    /// Number of files that were removed because they could not be used.
    pub disk_refused: u64,
}
