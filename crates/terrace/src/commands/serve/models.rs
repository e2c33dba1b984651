//! The models of a server with several: files of a directory and sections of the configuration file, each
//! served by a child process.

use super::sections::{Section, Sections};
use super::{ServeArgs, supervised};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use terrace_cli::args::Words;
use terrace_cli::source;
use terrace_engine::KvChoice;
use terrace_engine::options::{ContextOptions, DeviceOptions, MemoryOptions, kept_size};
use terrace_model::{ByteSize, ModelFile};
use terrace_models::{Alive, Models, Needs, Started};
use terrace_plan::{Budget, MachineProfile, Manage, Plan, Wishes};
use terrace_platform::process::Terminator;
use terrace_server::front::ModelFileFacts;

/// Room beside the weights of a model that is not streamed: what its file has besides tensors.
const BESIDES: ByteSize = ByteSize::mib(16);
/// The part of all models' memory that is for the conversations kept by one, unless --cache-ram says how
/// much, and the most of it.
const KEPT: u64 = 20;
const MOST_KEPT: ByteSize = ByteSize::gib(8);

/// Facts about all models.
pub struct Files {
    dir: Option<PathBuf>,
    sections: Sections,
    /// The options that all models share, as words of a command line and from all layers.
    words: Words,
    shared: Shared,
    /// RAM for weights, contexts and kept conversations of all models.
    memory: ByteSize,
    /// Files of models that were downloaded.
    found: Mutex<BTreeMap<String, PathBuf>>,
}

/// Options of which a model's need of memory depends.
#[derive(Clone, Debug, Default)]
struct Shared {
    context: Option<u32>,
    slots: Option<u32>,
    ubatch: Option<u32>,
    kv_type: Option<KvChoice>,
    ram_budget: Budget,
    kept: Budget,
    disk: Option<(PathBuf, ByteSize)>,
}

impl Files {
    /// Models of a directory and of sections, with the options that they share.
    pub fn new(args: &ServeArgs, memory: ByteSize) -> Self {
        let placement = &args.engine.placement;
        let shared = Shared {
            context: placement.context.ctx,
            slots: Some(args.parallel),
            ubatch: placement.context.ubatch,
            kv_type: Some(placement.context.kv_choice()),
            ram_budget: placement.memory.ram_budget,
            kept: args.prompt_cache.cache_ram,
            disk: args.prompt_cache.cache_disk.clone(),
        };
        let (dir, sections, words) = (args.models_dir.clone(), args.sections.clone(), args.words.clone());
        Self { dir, sections, words, shared, memory, found: Mutex::default() }
    }

    /// The files in the directory by name.
    fn files(&self) -> BTreeMap<String, PathBuf> {
        let mut files = BTreeMap::new();
        if let Some(dir) = &self.dir {
            collect(dir, true, &mut files);
        }
        files
    }

    fn section(&self, name: &str) -> Section {
        self.sections.get(name).cloned().unwrap_or_default()
    }

    /// The file of a model, which is downloaded if need be.
    fn resolve(&self, name: &str) -> Result<PathBuf, String> {
        if let Some(file) = self.found.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(file.clone());
        }
        let file = match self.section(name).model {
            Some(model) => source::resolve(Some(model.as_ref())).map_err(|error| error.to_string())?,
            None => {
                self.files().remove(name).ok_or_else(|| format!("the file of `{name}` no longer exists"))?
            }
        };
        self.found.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), file.clone());
        Ok(file)
    }

    /// The header of a model, and its plan on a machine where all of it fits: what the model needs, and no more.
    fn plan(&self, name: &str) -> Result<(ModelFile, Plan), String> {
        let file = self.resolve(name)?;
        let model = terrace_ggml::gguf::read(&file).map_err(|error| error.to_string())?;
        let shared = &self.shared;
        let huge = ByteSize::gib(1 << 20);
        let machine = MachineProfile::unmeasured("models", 2, huge, huge);
        let mut wishes = Wishes {
            context: ContextOptions {
                agents: true,
                ctx: self.own(name, "ctx").or(shared.context),
                sequences: self.own(name, "parallel").or(shared.slots).unwrap_or(1),
                unified: false,
                ubatch: self.own(name, "ubatch").or(shared.ubatch),
                kv_type: self.own(name, "kv-type").or(shared.kv_type).unwrap_or_default(),
                ..ContextOptions::default()
            },
            prompt_cache: Budget::Bytes(self.kept(name)),
            devices: DeviceOptions::none(),
            memory: MemoryOptions {
                ram_budget: Budget::Bytes(huge),
                stream: Manage::All,
                ..MemoryOptions::default()
            },
            mapping: false,
            ..Wishes::default()
        };
        wishes.settle_context(&model, self.memory);
        let plan = terrace_plan::plan(&model, &machine, &wishes).map_err(|error| error.to_string())?;
        Ok((model, plan))
    }

    /// The value of an option in a model's section.
    fn own<T: std::str::FromStr>(&self, name: &str, option: &str) -> Option<T> {
        self.sections.get(name)?.options.get(option)?.parse().ok()
    }

    /// RAM for the conversations that a model keeps.
    fn kept(&self, name: &str) -> ByteSize {
        let own = self.own::<String>(name, "cache-ram").and_then(|size| kept_size(&size).ok());
        match own.unwrap_or(self.shared.kept) {
            Budget::Bytes(bytes) => bytes,
            Budget::Auto => ByteSize(self.memory.bytes() / KEPT).min(MOST_KEPT),
        }
    }

    /// The directory for the conversations that a model keeps on disk, and their size. Processes do not
    /// share one: each expects that what it has written stays.
    fn disk(&self, name: &str) -> Option<String> {
        let (dir, size) = self.shared.disk.as_ref()?;
        let plain = |c: char| if c.is_alphanumeric() || "-_ ".contains(c) { c } else { '_' };
        let dir = dir.join(name.chars().map(plain).collect::<String>());
        Some(format!("{}:{}", dir.display(), size.bytes()))
    }
}

/// Adds the models in a directory, and in directories in it if `deep`. Of a split model, the first shard.
fn collect(dir: &Path, deep: bool, files: &mut BTreeMap<String, PathBuf>) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() {
            if deep {
                collect(&path, false, files);
            }
            continue;
        }
        let is_model = path.extension().is_some_and(|extension| extension == "gguf");
        let (true, Some(stem)) = (is_model, path.file_stem().and_then(|stem| stem.to_str())) else {
            continue;
        };
        if let Some(name) = name_of(stem) {
            files.entry(name.to_owned()).or_insert(path);
        }
    }
}

/// The name of a model by its file's name; `None` for shards but the first, and for what goes with a model.
fn name_of(stem: &str) -> Option<&str> {
    if stem.starts_with("mmproj") {
        return None;
    }
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    match stem.rsplit_once("-of-") {
        Some((first, count)) if digits(count) => match first.rsplit_once('-') {
            Some((name, shard)) if digits(shard) => (shard == "00001").then_some(name),
            _ => Some(stem),
        },
        _ => Some(stem),
    }
}

impl Models for Files {
    fn names(&self) -> Vec<String> {
        let mut names: BTreeMap<String, ()> = self.files().into_keys().map(|name| (name, ())).collect();
        let own = self.sections.iter().filter(|(_, section)| section.model.is_some());
        names.extend(own.map(|(name, _)| (name.clone(), ())));
        names.into_keys().collect()
    }

    fn file(&self, name: &str) -> Option<String> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(name).map(|file| file.display().to_string())
    }

    fn needs(&self, name: &str) -> Result<Needs, String> {
        let (model, plan) = self.plan(name)?;
        let most = match self.own(name, "ram-budget").unwrap_or(self.shared.ram_budget) {
            Budget::Bytes(bytes) => Some(bytes),
            Budget::Auto => None,
        };
        let all = model.size() + BESIDES;
        let least = plan.minimum.min(all);
        let weights = most.map_or(all, |most| all.min(most)).max(least);
        Ok(Needs { weights, least, context: plan.context.ram + self.kept(name) })
    }

    fn described(&self, name: &str) -> Result<ModelFileFacts, String> {
        let (_, plan) = self.plan(name)?;
        let sees = self.section(name).options.contains_key("mmproj");
        let context = plan.context.tokens as usize;
        Ok(ModelFileFacts { name: name.to_owned(), file: self.resolve(name)?, context, sees })
    }

    fn start(&self, name: &str, budget: ByteSize, key: &str) -> Result<Started, String> {
        let file = self.resolve(name)?;
        let mut words = self.words.clone();
        if let Some(disk) = self.disk(name) {
            words.set("cache-disk", disk);
        }
        for (option, value) in self.section(name).options {
            match value.as_str() {
                "true" => words.set_switch(&option),
                "false" => words.forget(&option),
                _ => words.set(&option, value),
            }
        }
        words.set("ram-budget", budget.bytes().to_string());
        words.set("cache-ram", format!("{}B", self.kept(name).bytes()));
        words.set("alias", name);
        let mut arguments: Vec<OsString> = vec!["serve".into(), file.into()];
        arguments.extend(words.arguments());
        spawn(name, arguments, key)
    }
}

/// Starts a process that serves a model, with these arguments, to whoever has the key.
///
/// # Errors
/// Why there is none.
pub fn spawn(name: &str, arguments: Vec<OsString>, key: &str) -> Result<Started, String> {
    let failed = |error: std::io::Error| format!("cannot start the process of `{name}`: {error}");
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let address = socket.local_addr().map_err(failed)?;
    let child = supervised::start_model(&socket, arguments, key).map_err(failed)?;
    let (alive, ended) = Alive::new();
    let stop = Terminator::of(&child).map_err(failed)?;
    wait(name, child, alive).map_err(|error| {
        // Nothing would notice its end.
        stop.terminate();
        failed(error)
    })?;
    Ok(Started { address, ended, stop: Box::new(move || stop.terminate()) })
}

/// Waits for the end of a process on a thread of its own.
fn wait(name: &str, mut child: Child, alive: Alive) -> std::io::Result<()> {
    let name = name.to_owned();
    let wait = move || {
        match child.wait() {
            Ok(status) if !status.success() => {
                tracing::warn!("the process of `{name}` ended ({status})");
            }
            _ => {}
        }
        drop(alive);
    };
    std::thread::Builder::new().name("terrace-model".into()).spawn(wait).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_files_and_first_shards() {
        for (stem, name) in [
            ("tiny-Q4_K", Some("tiny-Q4_K")),
            ("big-00001-of-00003", Some("big")),
            ("big-00002-of-00003", None),
            ("one-of-12345", Some("one-of-12345")),
            ("mmproj-tiny", None),
        ] {
            assert_eq!(name_of(stem), name, "{stem}");
        }
    }

    fn of(dir: &Path, sections: Sections, memory: ByteSize, shared: Shared) -> Files {
        let (dir, words, found) = (Some(dir.to_owned()), Words::default(), Mutex::default());
        Files { dir, sections, words, shared, memory, found }
    }

    #[test]
    fn kept_conversations_are_part_of_the_memory() {
        let own = Section { options: [("cache-ram".into(), "100".into())].into(), ..Section::default() };
        let shared = Shared { disk: Some(("/kept".into(), ByteSize::gib(1))), ..Shared::default() };
        let dir = tempfile::tempdir().unwrap();
        let files = of(dir.path(), Sections::from([("own".into(), own)]), ByteSize::gib(40), shared);
        assert_eq!(files.kept("own"), ByteSize::mib(100));
        assert_eq!(files.kept("other"), ByteSize::gib(2));
        assert_eq!(files.disk("a/../b.1").unwrap(), "/kept/a____b_1:1073741824");
    }

    #[test]
    fn directories_and_sections_are_listed_together() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        for file in ["b.gguf", "sub/a-00001-of-00002.gguf", "sub/a-00002-of-00002.gguf", "notes.txt"] {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        let named = Section { model: Some("/elsewhere/c.gguf".into()), ..Section::default() };
        let sections = Sections::from([("c".into(), named), ("b".into(), Section::default())]);
        let files = of(dir.path(), sections, ByteSize::gib(4), Shared::default());
        assert_eq!(files.names(), ["a", "b", "c"]);
        assert_eq!(files.resolve("a").unwrap(), dir.path().join("sub/a-00001-of-00002.gguf"));
        assert_eq!(files.resolve("c").unwrap(), Path::new("/elsewhere/c.gguf"));
        assert!(files.needs("c").is_err());
    }
}
