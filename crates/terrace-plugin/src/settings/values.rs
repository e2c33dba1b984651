//! Values of settings, as they are written.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use terrace_model::ByteSize;
use terrace_plan::copies::LAYER_CURVE;
use terrace_plan::{HotSize, ParseHotSizeError, PerDevice};

/// What is on if nothing is said.
pub struct Switch(pub bool);

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
pub struct Sizes(pub Vec<PerDevice<HotSize>>);

impl FromStr for Sizes {
    type Err = ParseHotSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// Whether devices compute experts even where that does not pay.
#[derive(Default)]
pub struct Always(pub bool);

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
pub struct PathSetting(pub Option<PathBuf>);

impl FromStr for PathSetting {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self((!text.is_empty()).then(|| text.into())))
    }
}

/// Paths, separated by commas.
#[derive(Default)]
pub struct Paths(pub Vec<PathBuf>);

impl FromStr for Paths {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.split(',').filter(|path| !path.is_empty()).map(PathBuf::from).collect()))
    }
}

/// How strongly times of layers count.
pub struct Curve(pub f64);

impl Default for Curve {
    fn default() -> Self {
        Self(LAYER_CURVE)
    }
}

impl FromStr for Curve {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let curve = text.parse().ok().filter(|curve| (0.0..=1.0).contains(curve));
        curve.map(Self).ok_or("must be a number from 0 to 1")
    }
}

/// Most reads in flight; `None` means as the store decides.
#[derive(Default)]
pub struct Depth(pub Option<u32>);

impl FromStr for Depth {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let depth = text.parse().ok().filter(|depth| (1..=1024).contains(depth));
        depth.map(|depth| Self(Some(depth))).ok_or("must be from 1 to 1024")
    }
}

/// The largest read; `None` means as the store decides.
#[derive(Default)]
pub struct Request(pub Option<ByteSize>);

impl FromStr for Request {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let size = text.parse().ok().filter(|size: &ByteSize| (4096..=1 << 30).contains(&size.bytes()));
        size.map(|size| Self(Some(size))).ok_or("must be from 4KiB to 1GiB")
    }
}
