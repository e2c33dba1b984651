//! Damage in the weights of files: each tensor is read once, a piece at a time.

use super::{Survey, WeightType};
use crate::gguf::open_regular;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use terrace_model::{FileIndex, ModelFile, Slices, TensorInfo};
use terrace_platform::file::Positioned;

/// Bytes that a thread reads at once.
const UNIT: u64 = 1 << 20;
/// Most slices of a tensor that are told apart; a tensor with more counts as one matrix.
const MAX_SLICES: u64 = 1 << 20;

/// A tensor whose weights are damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The tensor's name.
    pub tensor: String,
    /// The name of its type.
    pub ty: String,
    /// Its damaged slices.
    pub slices: Slices,
    /// The kind of damage.
    pub fault: Fault,
}

/// A kind of damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// All weights of quantised slices are zero.
    Zero,
    /// Weights are NaN or infinite.
    NotFinite {
        /// Number of these weights.
        weights: u64,
        /// The file of the tensor.
        path: PathBuf,
        /// Offset in bytes near the first of them.
        offset: u64,
    },
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tensor `{}` ({}", self.tensor, self.ty)?;
        if !self.slices.is_all() {
            write!(f, ", {}", self.slices)?;
        }
        match &self.fault {
            Fault::Zero => f.write_str("): every weight is zero"),
            Fault::NotFinite { weights, offset, .. } => {
                let are = if *weights == 1 { "weight is" } else { "weights are" };
                write!(f, "): {weights} {are} NaN or infinite, near offset {offset}")
            }
        }
    }
}

/// Why weights could not be checked to the end.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A file cannot be read.
    #[error("{}: tensor `{tensor}` cannot be read at offset {offset}: {source}", path.display())]
    Read {
        path: PathBuf,
        tensor: String,
        /// In bytes.
        offset: u64,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file has changed since its header was read.
    #[error(transparent)]
    Gguf(#[from] crate::gguf::GgufError),
    /// The caller ended it.
    #[error("interrupted")]
    Cancelled,
}

/// The outcome of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Damage in the order of the tensors.
    pub damage: Vec<Damage>,
    /// Tensors that were read.
    pub tensors: usize,
    /// Bytes that were read.
    pub bytes: u64,
    /// Names of tensors of types that hold no weights that ggml converts; they were not read.
    pub skipped: Vec<String>,
}

/// Reads all weights of a model on `threads` threads, which hold a megabyte each, and finds damage.
/// `progress` is called with the bytes read so far.
///
/// # Errors
/// [`CheckError`].
pub fn check(
    model: &ModelFile,
    threads: usize,
    progress: &mut (dyn FnMut(u64) -> ControlFlow<()> + Send),
) -> Result<Checked, CheckError> {
    let state = Mutex::new(State {
        next: Cursor { tensor: 0, block: 0 },
        open: BTreeMap::new(),
        done: Checked::default(),
        found: BTreeMap::new(),
        progress,
        failed: None,
    });
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(|| work(model, &state));
        }
        work(model, &state);
    });
    let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = state.failed {
        return Err(error);
    }
    let mut done = state.done;
    done.damage = state.found.into_values().flatten().collect();
    Ok(done)
}

/// The next piece to read.
#[derive(Clone, Copy)]
struct Cursor {
    tensor: usize,
    block: u64,
}

/// Progress that threads share.
struct State<'p> {
    next: Cursor,
    /// Tensors of which pieces are being read, by their number.
    open: BTreeMap<usize, Pieces>,
    done: Checked,
    found: BTreeMap<usize, Vec<Damage>>,
    progress: &'p mut (dyn FnMut(u64) -> ControlFlow<()> + Send),
    failed: Option<CheckError>,
}

/// Findings in a tensor's pieces.
struct Pieces {
    ty: WeightType,
    /// Elements of a slice.
    slice: u64,
    slices: Vec<Survey>,
    blocks_left: u64,
    /// Offset of the first piece with weights that are not finite.
    offset: Option<u64>,
}

/// Consecutive blocks of a tensor.
struct Piece {
    tensor: usize,
    ty: WeightType,
    first_block: u64,
    blocks: u64,
    slice: u64,
}

impl State<'_> {
    fn take(&mut self, model: &ModelFile) -> Option<Piece> {
        if self.failed.is_some() {
            return None;
        }
        loop {
            let Cursor { tensor, block } = self.next;
            let info = model.tensors.get(tensor)?;
            let ty = WeightType::from_id(info.ty.id);
            let Some(ty) = ty.filter(|_| info.extent.len > 0) else {
                self.done.skipped.extend((info.extent.len > 0).then(|| info.name.clone()));
                self.next = Cursor { tensor: tensor + 1, block: 0 };
                continue;
            };
            let all = info.extent.len / ty.block_bytes();
            let pieces = self.open.entry(tensor).or_insert_with(|| Pieces::of(info, ty, all));
            let blocks = (UNIT / ty.block_bytes()).max(1).min(all - block);
            self.next = match block + blocks < all {
                true => Cursor { tensor, block: block + blocks },
                false => Cursor { tensor: tensor + 1, block: 0 },
            };
            return Some(Piece { tensor, ty, first_block: block, blocks, slice: pieces.slice });
        }
    }

    fn put(&mut self, model: &ModelFile, piece: &Piece, found: &[(u64, Survey)]) {
        let info = &model.tensors[piece.tensor];
        let Some(pieces) = self.open.get_mut(&piece.tensor) else { return };
        for &(slice, survey) in found {
            pieces.slices[slice as usize].add(survey);
            if survey.not_finite > 0 {
                let at = info.extent.offset + piece.first_block * piece.ty.block_bytes();
                pieces.offset = Some(pieces.offset.map_or(at, |first| first.min(at)));
            }
        }
        pieces.blocks_left -= piece.blocks;
        self.done.bytes += piece.blocks * piece.ty.block_bytes();
        if pieces.blocks_left == 0
            && let Some(pieces) = self.open.remove(&piece.tensor)
        {
            self.done.tensors += 1;
            let damage = pieces.damage(model, info);
            if !damage.is_empty() {
                self.found.insert(piece.tensor, damage);
            }
        }
        if (self.progress)(self.done.bytes).is_break() {
            self.failed.get_or_insert(CheckError::Cancelled);
        }
    }
}

impl Pieces {
    fn of(info: &TensorInfo, ty: WeightType, blocks: u64) -> Self {
        let elements = blocks * ty.block_elements();
        let [columns, rows, ..] = info.shape.0;
        let slice = columns.saturating_mul(rows).clamp(1, elements.max(1));
        let slice = if elements / slice > MAX_SLICES { elements } else { slice };
        let slices = vec![Survey::default(); elements.div_ceil(slice) as usize];
        Self { ty, slice, slices, blocks_left: blocks, offset: None }
    }

    fn damage(&self, model: &ModelFile, info: &TensorInfo) -> Vec<Damage> {
        let damage = |is: &dyn Fn(&Survey) -> bool, fault| {
            let numbers = (0..).zip(&self.slices).filter(|(_, survey)| is(survey)).map(|(n, _)| n);
            let mut slices = Slices::of_tensor(info, numbers.collect());
            slices.of = self.slices.len() as u64;
            Damage { tensor: info.name.clone(), ty: info.ty.name.clone(), slices, fault }
        };
        let mut all = Vec::new();
        let is_zero = |survey: &Survey| !survey.any_not_zero && survey.not_finite == 0;
        if self.ty.is_quantized() && self.slices.iter().any(is_zero) {
            all.push(damage(&is_zero, Fault::Zero));
        }
        if let Some(offset) = self.offset {
            let weights = self.slices.iter().map(|survey| survey.not_finite).sum();
            let path = model.shards[info.extent.file.index()].path.clone();
            all.push(damage(&|survey| survey.not_finite > 0, Fault::NotFinite { weights, path, offset }));
        }
        all
    }
}

/// One thread's work.
fn work(model: &ModelFile, state: &Mutex<State<'_>>) {
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let mut file: Option<(FileIndex, File)> = None;
    let mut bytes = Vec::new();
    loop {
        let piece = lock().take(model);
        let Some(piece) = piece else { return };
        match look(model, &piece, &mut file, &mut bytes) {
            Ok(found) => lock().put(model, &piece, &found),
            Err(error) => {
                lock().failed.get_or_insert(error);
            }
        }
    }
}

/// Reads a piece. Returns what its parts of slices are like, by the slices' numbers.
fn look(
    model: &ModelFile,
    piece: &Piece,
    file: &mut Option<(FileIndex, File)>,
    bytes: &mut Vec<u8>,
) -> Result<Vec<(u64, Survey)>, CheckError> {
    let info = &model.tensors[piece.tensor];
    let path = &model.shards[info.extent.file.index()].path;
    let file = match file {
        Some((index, file)) if *index == info.extent.file => file,
        other => &mut other.insert((info.extent.file, open_regular(path)?.0)).1,
    };
    let (size, elements) = (piece.ty.block_bytes(), piece.ty.block_elements());
    let offset = info.extent.offset + piece.first_block * size;
    bytes.resize((piece.blocks * size) as usize, 0);
    file.read_exact_at(bytes, offset).map_err(|source| CheckError::Read {
        path: path.clone(),
        tensor: info.name.clone(),
        offset,
        source,
    })?;
    let mut found = Vec::new();
    let (mut element, mut rest) = (piece.first_block * elements, &bytes[..]);
    while !rest.is_empty() {
        let slice = element / piece.slice;
        // Rows are whole blocks, and slices whole rows.
        let left = ((slice + 1) * piece.slice - element).div_ceil(elements);
        let blocks = left.min(rest.len() as u64 / size);
        let (now, later) = rest.split_at((blocks * size) as usize);
        if let Some(survey) = Survey::of(piece.ty, now) {
            found.push((slice, survey));
        }
        (element, rest) = (element + blocks * elements, later);
    }
    Ok(found)
}
