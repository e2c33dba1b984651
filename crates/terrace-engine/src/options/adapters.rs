//! Adapters.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use terrace_platform::names;
use terrace_store::options::separated;

/// Adapters.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Model")]
pub struct AdapterOptions {
    /// Add a LoRA adapter (a GGUF file of llama.cpp's convert_lora_to_gguf.py) to the model, scaled by a
    /// number [default: 1] (repeatable, or separated by commas)
    ///
    /// Adapters are numbered in this order. They stay in RAM, which the budget for weights counts, while
    /// the weights that they are for may be on disk. A comma is part of a name if there is such a file.
    #[arg(long, value_name = "FILE[:SCALE]", env = "TERRACE_LORA", value_parser = OsStringValueParser::new().try_map(Adapters::read))]
    pub lora: Vec<Adapters>,
}

/// An adapter that is loaded with the model.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterOption {
    /// A GGUF file of type `adapter`.
    pub path: PathBuf,
    /// Scale where sessions request nothing else: a finite number.
    pub scale: f32,
}

impl AdapterOptions {
    /// Returns all adapters by their numbers; without `apply`, nothing is added at first.
    pub fn all(&self, apply: bool) -> Vec<AdapterOption> {
        let all = self.lora.iter().flat_map(|Adapters(options)| options.clone());
        all.map(|option| AdapterOption { scale: if apply { option.scale } else { 0.0 }, ..option }).collect()
    }
}

/// The adapters in one value, and how much of each is added.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapters(Vec<AdapterOption>);

/// Why a text is not a list of adapters.
const FORM: &str = "must be a file, or a file and a number as in `adapter.gguf:0.5`";

impl Adapters {
    /// Reads adapters, separated by commas.
    ///
    /// # Errors
    /// A name is missing.
    pub fn read(text: OsString) -> Result<Self, &'static str> {
        adapters_in(&text).iter().map(|name| adapter(name)).collect::<Result<_, _>>().map(Self)
    }
}

/// Splits a value of the option into one name for each adapter, with its scale if it has one.
pub fn adapters_in(text: &OsStr) -> Vec<OsString> {
    separated(text, |name| Path::new(name).exists() || scaled(name).is_some_and(|(path, _)| path.exists()))
}

fn adapter(name: &OsStr) -> Result<AdapterOption, &'static str> {
    // A file may be called so.
    let scaled = scaled(name).filter(|_| !Path::new(name).exists());
    let (path, scale) = scaled.unwrap_or((Path::new(name), 1.0));
    match path.as_os_str().is_empty() {
        true => Err(FORM),
        false => Ok(AdapterOption { path: path.to_owned(), scale }),
    }
}

/// The path and the scale in a name that ends with one.
pub fn scaled(name: &OsStr) -> Option<(&Path, f32)> {
    let (path, scale) = names::rsplit_once(name, b':')?;
    let scale = scale.to_str()?.parse().ok().filter(|scale: &f32| scale.is_finite())?;
    Some((Path::new(path), scale))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn scales_follow_the_file() {
        let read = |text: &str| {
            let options = Adapters::read(text.into())?.0.into_iter();
            Ok::<_, &str>(options.map(|option| (option.path, option.scale)).collect::<Vec<_>>())
        };
        for (text, path, scale) in [
            ("a.gguf", "a.gguf", 1.0),
            ("a.gguf:0.5", "a.gguf", 0.5),
            ("dir:1/a.gguf:-2", "dir:1/a.gguf", -2.0),
            ("a:b.gguf", "a:b.gguf", 1.0),
            ("a.gguf:nan", "a.gguf:nan", 1.0),
        ] {
            assert_eq!(read(text), Ok(vec![(path.into(), scale)]), "{text}");
        }
        assert_eq!(read("a:2,b"), Ok(vec![("a".into(), 2.0), ("b".into(), 1.0)]));
        for wrong in ["", ":0.5", "a,"] {
            assert_eq!(read(wrong), Err(FORM), "{wrong}");
        }
    }

    // Names on Windows are no bytes.
    #[cfg(unix)]
    #[test]
    fn names_may_have_commas_and_need_not_be_utf8() {
        use std::os::unix::ffi::OsStrExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(OsStr::from_bytes(b"a,b\xff.gguf"));
        std::fs::write(&path, "").unwrap();
        let mut text = OsString::from("x,");
        text.push(&path);
        text.push(":2");
        let expected = [("x".into(), 1.0), (path, 2.0)].map(|(path, scale)| AdapterOption { path, scale });
        assert_eq!(Adapters::read(text), Ok(Adapters(expected.into())));
    }
}
