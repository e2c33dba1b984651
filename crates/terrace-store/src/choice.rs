//! Settings with a few named choices: which engine reads, and whether reads bypass the page cache.

use clap::ValueEnum;

/// Which I/O engine reads the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum IoChoice {
    /// io_uring if the kernel allows it, a pool of `pread` threads otherwise.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// A pool of threads that call `pread`.
    Pread,
}

/// Choice of the page cache for reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DirectChoice {
    /// If a trial read works.
    #[default]
    Auto,
    /// Yes, or an error.
    On,
    /// No.
    Off,
}

terrace_model::by_name!(IoChoice, DirectChoice);
