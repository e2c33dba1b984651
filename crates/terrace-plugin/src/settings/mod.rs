//! Settings of the user: variables of the names that Terrace's own options have, over the configuration
//! file that Terrace has too.

mod layers;

use clap::{CommandFactory, Parser};
use layers::Layers;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use terrace_kernels::KernelOptions;
use terrace_plan::options::{HotOptions, MemoryOptions};
use terrace_store::UserDirs;
use terrace_store::options::{CacheOptions, IoOptions, ReplicaOptions};

/// The settings: those of Terrace's own options that have an effect here, and the plug-in's.
#[derive(Clone, Debug, Default, clap::Parser)]
#[command(no_binary_name = true)]
pub struct Settings {
    /// RAM for the weights of all models together, and which of them may be streamed.
    #[command(flatten)]
    pub memory: MemoryOptions,
    /// Ways to read weights.
    #[command(flatten)]
    pub io: IoOptions,
    /// Copies of models on other disks.
    #[command(flatten)]
    pub replicas: ReplicaOptions,
    /// The order of eviction, and how much is read ahead on a guess.
    #[command(flatten)]
    pub cache: CacheOptions,
    /// Copies of experts on devices.
    #[command(flatten)]
    pub hot: HotOptions,
    /// Whose kernels compute what is streamed.
    #[command(flatten)]
    pub kernels: KernelOptions,
    /// The learn file of uses to start from.
    #[arg(long, env = "TERRACE_LEARNED")]
    pub learned: Option<PathBuf>,
    /// The file for which experts are used; `None` means that it is not recorded.
    #[arg(long, env = "TERRACE_TRACE")]
    pub trace: Option<PathBuf>,
    /// The file for reads and waits; `None` means that they are not recorded.
    #[arg(long, env = "TERRACE_TIMELINE")]
    pub timeline: Option<PathBuf>,
    /// The file for what models have done; `None` means that it is not written.
    #[arg(long, env = "TERRACE_STATS")]
    pub stats: Option<PathBuf>,
    /// Socket for `terrace attach`.
    #[arg(long, env = "TERRACE_CONTROL", default_value = "auto")]
    pub control: Control,
    /// The folder for what is remembered of models, unless that is switched off.
    #[arg(skip)]
    pub records: Option<PathBuf>,
}

/// Socket of a process with models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// In the user's own folder, under the number of the process.
    #[default]
    Auto,
    /// Nowhere.
    Off,
    /// At this path.
    At(PathBuf),
}

impl FromStr for Control {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" | "on" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            path if path.contains('/') => Ok(Self::At(path.into())),
            _ => Err("must be auto, off or a path"),
        }
    }
}

impl Settings {
    /// Takes the settings from variables, of which `variable` has the values, and for what these do
    /// not say from the configuration file. Also returns a line for each key of the file that nothing
    /// has, and for what has no effect in the plug-in.
    ///
    /// # Errors
    /// A line that names the variable or the key, if its value means nothing, or the file, if it
    /// cannot be read.
    pub fn read(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<(Self, Vec<String>), String> {
        let (layers, mut lines) = Layers::read(variable)?;
        let command = Self::command();
        let mut settings =
            Self::try_parse_from(layers.words(&command)?).map_err(|error| error.to_string())?;
        let cache = UserDirs::cache_of(variable).filter(|_| settings.cache.warm_start != Some(false));
        settings.records = cache.map(|dir| dir.join("records"));
        lines.extend(layers.without_effect(&command));
        Ok((settings, lines))
    }
}
