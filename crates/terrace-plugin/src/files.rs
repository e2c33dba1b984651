//! The model files that this process has open.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use terrace_ggml::gguf;
use terrace_model::ModelFile;
use terrace_model::identity::FileState;
use terrace_platform::file::{FileId, Positioned};
use terrace_platform::input_file;
use terrace_platform::open_files::Descriptor;
pub use terrace_platform::open_files::Identity;
use terrace_store::identity::file_state;

/// An open file that begins like a GGUF file.
#[derive(Clone, Debug)]
pub struct OpenFile {
    pub fd: Descriptor,
    /// Which file it is.
    pub identity: Identity,
}

/// A model, by its header.
pub struct Header {
    /// The model. Paths of its files can be opened.
    pub model: ModelFile,
    /// Its files, in the order of the model's file indices, with what the files are.
    pub files: Vec<(File, FileId)>,
    /// The files' states when they were opened.
    pub states: Vec<FileState>,
    /// Its first file.
    pub identity: Identity,
}

/// Headers that were read.
#[derive(Default)]
pub struct Headers(HashMap<Identity, Option<Arc<Header>>>);

/// The regular files of this process that begin like GGUF files, by descriptor.
pub fn open_files() -> Vec<OpenFile> {
    let all = Descriptor::all().into_iter();
    all.filter_map(|fd| Some(OpenFile { fd, identity: fd.identity()? })).collect()
}

impl Header {
    /// Which files these are now.
    pub fn identities(&self) -> Vec<Identity> {
        self.files.iter().filter_map(|(file, _)| Descriptor::of(file).identity()).collect()
    }

    /// Its descriptors, which are not the program's.
    pub fn descriptors(&self) -> impl Iterator<Item = Descriptor> {
        self.files.iter().map(|(file, _)| Descriptor::of(file))
    }
}

impl Headers {
    /// The headers that were read and are still kept.
    pub fn kept(&self) -> impl Iterator<Item = &Arc<Header>> {
        self.0.values().flatten()
    }

    /// The model that begins in an open file; `None` if it is no GGUF file, damaged, or not the first
    /// of its model's files.
    pub fn of(&mut self, file: &OpenFile) -> Option<Arc<Header>> {
        // A directory of the file's descriptors grows with the models that a process ever loaded.
        const MAX_HEADERS: usize = 256;
        if self.0.len() >= MAX_HEADERS {
            self.0.clear();
        }
        self.0.entry(file.identity).or_insert_with(|| read(file).map(Arc::new)).clone()
    }
}

fn read(file: &OpenFile) -> Option<Header> {
    let link = file.fd.path();
    let (own, _) = input_file::open(&link).ok()?;
    let mut magic = [0; 4];
    own.read_exact_at(&mut magic, 0).ok()?;
    if &magic != b"GGUF" {
        return None;
    }
    // A file that was renamed or deleted is still found through its descriptor.
    let named = fs::read_link(&link).ok().filter(|path| is_there(path, file.identity));
    let path = named.unwrap_or_else(|| Descriptor::of(&own).path());
    let mut header = open(&path, file.identity)?;
    if let Some(first) = header.files.first_mut() {
        // The path may lead through this descriptor, which has to stay.
        first.0 = own;
    }
    Some(header)
}

/// The model whose first file is at `path`; `None` if there is none.
pub fn open_path(path: &Path) -> Option<Header> {
    let identity = Descriptor::of(&input_file::open(path).ok()?.0).identity()?;
    open(path, identity)
}

fn open(path: &Path, identity: Identity) -> Option<Header> {
    let model = gguf::read(path).ok()?;
    let (mut files, mut states) = (Vec::new(), Vec::new());
    for shard in &model.shards {
        let (file, _) = input_file::open(&shard.path).ok()?;
        let id = FileId::of(&file).ok()?;
        files.push((file, id));
        states.push(file_state(&shard.path).ok()?);
    }
    Some(Header { model, files, states, identity })
}

fn is_there(path: &Path, identity: Identity) -> bool {
    FileId::at(path) == Some(identity.id)
}
