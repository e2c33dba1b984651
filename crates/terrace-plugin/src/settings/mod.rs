//! What the user set: variables of the names that Terrace's own options have, over the configuration
//! file that Terrace has too.

mod layers;
mod values;

use layers::Layers;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use terrace_backend::HotUpdate;
use terrace_model::{ByteSize, SizeChoice};
use terrace_plan::copies::Weighting;
use terrace_plan::{Budget, ByDevice, HotSize, HotSplit, Manage};
use terrace_store::{DirectChoice, IoChoice, PolicyKind, UserDirs};
use values::{Always, Curve, Depth, PathSetting, Paths, Request, Sizes, Switch};

/// The settings.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `TERRACE_RAM_BUDGET`: RAM for the weights of all models together.
    pub budget: Budget,
    /// `TERRACE_STREAM`: which weights may be streamed.
    pub stream: Manage,
    /// `TERRACE_DIRECT`: whether reads bypass the page cache.
    pub direct: DirectChoice,
    /// `TERRACE_IO`: which engine reads.
    pub io: IoChoice,
    /// `TERRACE_QUEUE_DEPTH`: most reads in flight; `None` means as the store decides.
    pub queue_depth: Option<u32>,
    /// `TERRACE_REQUEST_SIZE`: the largest read; `None` means as the store decides.
    pub request_size: Option<ByteSize>,
    /// `TERRACE_REPLICA`: copies of models on other disks.
    pub replicas: Vec<PathBuf>,
    /// `TERRACE_CACHE_POLICY`: the order of eviction.
    pub policy: PolicyKind,
    /// `TERRACE_LOOKAHEAD`: how much may be read ahead on a guess of the next layer's experts.
    pub lookahead: SizeChoice,
    /// `TERRACE_HOT_...`: copies of experts on devices.
    pub copies: Copies,
    /// `TERRACE_LEARNED`: the learn file of uses to start from.
    pub learned: Option<PathBuf>,
    /// The folder for statistics of experts, unless `TERRACE_WARM_START` is off.
    pub warm_start: Option<PathBuf>,
    /// `TERRACE_TRACE`: the file for which experts are used; `None` means that it is not recorded.
    pub trace: Option<PathBuf>,
    /// `TERRACE_TIMELINE`: the file for reads and waits; `None` means that they are not recorded.
    pub timeline: Option<PathBuf>,
    /// `TERRACE_STATS`: the file for what models have done; `None` means that it is not written.
    pub stats: Option<PathBuf>,
    /// `TERRACE_CONTROL`: where `terrace attach` finds this process.
    pub control: Control,
}

/// Copies of experts on devices.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    /// `TERRACE_HOT_CACHE`: memory of each device.
    pub sizes: ByDevice<HotSize>,
    /// `TERRACE_HOT_UPDATE`: how much may be exchanged between two tokens.
    pub update: HotUpdate,
    /// `TERRACE_HOT_LANES`: whether devices compute experts even where that does not pay.
    pub always: bool,
    /// `TERRACE_HOT_SPLIT`: how several devices share the copies.
    pub split: HotSplit,
    /// `TERRACE_HOT_WEIGHTING`: how slots are divided among layers, once uses are known.
    pub weighting: Weighting,
    /// `TERRACE_HOT_LAYER_CURVE`: how strongly times of layers count in that.
    pub layer_curve: f64,
}

impl Copies {
    /// Whether any device is to hold copies.
    pub fn any(&self) -> bool {
        self.sizes.is_given()
    }
}

/// Where a process with models listens.
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
        let path = |name| Ok::<_, String>(layers.get::<PathSetting>(name)?.0);
        let Switch(statistics) = layers.get("TERRACE_WARM_START")?;
        let Sizes(sizes) = layers.get("TERRACE_HOT_CACHE")?;
        let Always(always) = layers.get("TERRACE_HOT_LANES")?;
        let Curve(layer_curve) = layers.get("TERRACE_HOT_LAYER_CURVE")?;
        let copies = Copies {
            sizes: ByDevice::of(&sizes, HotSize::Auto),
            update: layers.get("TERRACE_HOT_UPDATE")?,
            always,
            split: layers.get("TERRACE_HOT_SPLIT")?,
            weighting: layers.get("TERRACE_HOT_WEIGHTING")?,
            layer_curve,
        };
        let settings = Self {
            budget: layers.get("TERRACE_RAM_BUDGET")?,
            stream: layers.get("TERRACE_STREAM")?,
            direct: layers.get("TERRACE_DIRECT")?,
            io: layers.get("TERRACE_IO")?,
            queue_depth: layers.get::<Depth>("TERRACE_QUEUE_DEPTH")?.0,
            request_size: layers.get::<Request>("TERRACE_REQUEST_SIZE")?.0,
            replicas: layers.get::<Paths>("TERRACE_REPLICA")?.0,
            policy: layers.get("TERRACE_CACHE_POLICY")?,
            lookahead: layers.get("TERRACE_LOOKAHEAD")?,
            copies,
            learned: path("TERRACE_LEARNED")?,
            warm_start: statistics
                .then(|| UserDirs::cache_of(variable))
                .flatten()
                .map(|dir| dir.join("experts")),
            trace: path("TERRACE_TRACE")?,
            timeline: path("TERRACE_TIMELINE")?,
            stats: path("TERRACE_STATS")?,
            control: layers.get("TERRACE_CONTROL")?,
        };
        lines.extend(layers.without_effect());
        Ok((settings, lines))
    }
}
