//! What the user set: variables of the names that Terrace's own options have, over the configuration
//! file that Terrace has too.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use terrace_backend::HotUpdate;
use terrace_model::SizeChoice;
use terrace_model::configuration::{KEYS, RENAMED};
use terrace_plan::{Budget, ByDevice, HotSize, Manage, ParseHotSizeError, PerDevice};
use terrace_store::{DirectChoice, IoChoice, PolicyKind, UserDirs};

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
    /// `TERRACE_CACHE_POLICY`: the order of eviction.
    pub policy: PolicyKind,
    /// `TERRACE_LOOKAHEAD`: how much may be read ahead on a guess of the next layer's experts.
    pub lookahead: SizeChoice,
    /// `TERRACE_HOT_CACHE`, `TERRACE_HOT_UPDATE`, `TERRACE_HOT_LANES`: copies of experts on devices.
    pub copies: Copies,
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

/// The layers that settings are taken from.
struct Layers<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    path: PathBuf,
    file: BTreeMap<String, String>,
}

impl Settings {
    /// Takes the settings from variables, of which `variable` has the values, and for what these do
    /// not say from the configuration file. Also returns a line for each key of the file that nothing
    /// has.
    ///
    /// # Errors
    /// A line that names the variable or the key, if its value means nothing, or the file, if it
    /// cannot be read.
    pub fn read(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<(Self, Vec<String>), String> {
        let (path, text) = configuration(variable)?;
        let (file, unknown) = values(&path, &text)?;
        let layers = Layers { variable, path, file };
        let path = |name| Ok::<_, String>(layers.get::<PathSetting>(name)?.0);
        let Switch(statistics) = layers.get("TERRACE_WARM_START")?;
        let Sizes(sizes) = layers.get("TERRACE_HOT_CACHE")?;
        let Always(always) = layers.get("TERRACE_HOT_LANES")?;
        let update = layers.get("TERRACE_HOT_UPDATE")?;
        let settings = Self {
            budget: layers.get("TERRACE_RAM_BUDGET")?,
            stream: layers.get("TERRACE_STREAM")?,
            direct: layers.get("TERRACE_DIRECT")?,
            io: layers.get("TERRACE_IO")?,
            policy: layers.get("TERRACE_CACHE_POLICY")?,
            lookahead: layers.get("TERRACE_LOOKAHEAD")?,
            copies: Copies { sizes: ByDevice::of(&sizes, HotSize::Auto), update, always },
            warm_start: statistics
                .then(|| UserDirs::cache_of(variable))
                .flatten()
                .map(|dir| dir.join("experts")),
            trace: path("TERRACE_TRACE")?,
            timeline: path("TERRACE_TIMELINE")?,
            stats: path("TERRACE_STATS")?,
            control: layers.get("TERRACE_CONTROL")?,
        };
        Ok((settings, unknown))
    }
}

/// What is on if nothing is said.
struct Switch(bool);

impl Default for Switch {
    fn default() -> Self {
        Self(true)
    }
}

impl FromStr for Switch {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "on" => Ok(Self(true)),
            "off" => Ok(Self(false)),
            _ => Err("must be on or off"),
        }
    }
}

/// Sizes of copies, separated by commas.
#[derive(Default)]
struct Sizes(Vec<PerDevice<HotSize>>);

impl FromStr for Sizes {
    type Err = ParseHotSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// Whether devices compute experts even where that does not pay.
#[derive(Default)]
struct Always(bool);

impl FromStr for Always {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self(false)),
            "always" => Ok(Self(true)),
            _ => Err("must be auto or always"),
        }
    }
}

/// A path, or none.
#[derive(Default)]
struct PathSetting(Option<PathBuf>);

impl FromStr for PathSetting {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self((!text.is_empty()).then(|| text.into())))
    }
}

impl Layers<'_> {
    fn get<T: FromStr<Err: Display> + Default>(&self, name: &str) -> Result<T, String> {
        if let Some(value) = (self.variable)(name) {
            let value = value.to_string_lossy();
            return value.parse().map_err(|error| format!("{name}={value}: {error}"));
        }
        let key = key_of(name);
        match self.file.get(&key) {
            None => Ok(T::default()),
            Some(value) => value
                .parse()
                .map_err(|error| format!("configuration file {}: key `{key}`: {error}", self.path.display())),
        }
    }
}

/// The key of the file that means the same as a variable.
fn key_of(variable: &str) -> String {
    variable.trim_start_matches("TERRACE_").replace('_', "-").to_lowercase()
}

/// The configuration file with its text, which is empty if the user has none.
fn configuration(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<(PathBuf, String), String> {
    let named = variable("TERRACE_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let by_default = || Some(UserDirs::config_of(variable)?.join("config.toml"));
    let must_exist = named.is_some();
    let Some(path) = named.or_else(by_default) else { return Ok(Default::default()) };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(error) if !must_exist && error.kind() == std::io::ErrorKind::NotFound => {
            Ok((path, String::new()))
        }
        Err(error) => Err(format!("configuration file {}: {error}", path.display())),
    }
}

/// The values of the file by their keys, and a line for each key that nothing has.
fn values(path: &Path, text: &str) -> Result<(BTreeMap<String, String>, Vec<String>), String> {
    let at = format!("configuration file {}", path.display());
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line =
            error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        format!("{at}: line {line}: {}", error.message().lines().next().unwrap_or_default())
    })?;
    let (mut values, mut unknown) = (BTreeMap::new(), Vec::new());
    for (key, value) in table {
        let name = key.replace('_', "-");
        let renamed = RENAMED.iter().find(|(old, _)| *old == name);
        let name = renamed.map_or(name, |(_, new)| (*new).to_owned());
        if !KEYS.contains(&&*name) {
            unknown.push(format!("{at}: unknown key `{key}`"));
            continue;
        }
        let word = match value {
            toml::Value::String(text) => text,
            // Options that may be repeated.
            toml::Value::Array(words) => {
                let words =
                    words.iter().map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned));
                words.collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        };
        values.insert(name, word);
    }
    Ok((values, unknown))
}
