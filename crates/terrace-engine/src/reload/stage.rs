//! Opens files and reads what a swap needs: everything that can fail, before anything changes.

use super::budget::Taken;
use super::bytes::Files;
use super::error::ReloadError;
use super::find::{Found, Search, Target, TensorReload};
use super::registry::{Entry, Provenance, Registry, is_streamed};
use std::path::PathBuf;
use terrace_backend::Weights;
use terrace_ggml::DataType;
use terrace_ggml::llama::{Context, Prepared, Weight};
use terrace_ggml::memory::Pages;
use terrace_host::available_memory;
use terrace_model::identity::FileState;
use terrace_model::{ByteSize, Extent};
use terrace_store::identity::file_state;

/// A tensor to swap, with everything that the swap needs.
pub struct Step {
    pub entry: usize,
    pub to: Ready,
}

pub enum Ready {
    /// The loaded bytes return; nothing is needed.
    Original,
    Found {
        found: Box<Found>,
        /// Its type there.
        ty: DataType,
        /// Its extent in the store's files, if it is streamed.
        extent: Option<Extent>,
        /// The bytes for each of llama.cpp's tensors of it that do not stream.
        bytes: Vec<NewBytes>,
    },
}

/// New bytes of a weight.
pub enum NewBytes {
    /// In main memory: the weight's own memory from now on, or on their way to its devices.
    Main(Pages),
    /// On its device.
    Device(Prepared),
}

/// Steps, and the files that were opened for them.
pub struct Staged {
    pub steps: Vec<Step>,
    pub files: Files,
    /// Memory taken from the budget.
    taken: Taken,
    /// States of the changed files that were parsed.
    pub seen: Vec<(PathBuf, FileState)>,
    /// Names of tensors that turned out to have the same bytes.
    pub unchanged: Vec<String>,
}

/// Opens the files, and reads into memory what the swap needs. The context is idle: what was loaded of a
/// replaced tensor is looked at in its place.
pub fn staged(
    registry: &mut Registry,
    weights: Option<&Weights>,
    context: &mut Context,
    Search { wanted, seen, .. }: Search,
) -> Result<Staged, ReloadError> {
    let (files, taken) = (Files::default(), Taken::default());
    let mut staged = Staged { steps: Vec::new(), files, taken, seen, unchanged: Vec::new() };
    match stage_all(registry, weights, context, wanted, &mut staged) {
        Ok(()) => Ok(staged),
        Err(error) => {
            staged.files.close(weights);
            Err(error)
        }
    }
}

fn stage_all(
    registry: &mut Registry,
    weights: Option<&Weights>,
    context: &mut Context,
    wanted: Vec<TensorReload>,
    staged: &mut Staged,
) -> Result<(), ReloadError> {
    check_room(registry, &wanted)?;
    for TensorReload { entry: index, to } in wanted {
        let found = match to {
            Target::Original => {
                staged.steps.push(Step { entry: index, to: Ready::Original });
                continue;
            }
            Target::Found(found) => found,
        };
        let ty = DataType::from_id(found.info.ty.id).expect("the reader accepts known types only");
        staged.files.open(weights, &found)?;
        let files = &staged.files;
        match compared(&mut registry.entries[index], context, &found, |offset, part| {
            files.read(weights, &found, offset as u64, part)
        })? {
            Compared::Same => staged.unchanged.push(found.info.name.clone()),
            Compared::Returned => staged.steps.push(Step { entry: index, to: Ready::Original }),
            Compared::Other => {
                let taken = &mut staged.taken;
                let mut with = Stage { registry, weights, files: &mut staged.files, taken };
                let to = stage(&registry.entries[index], found, ty, &mut with)?;
                staged.steps.push(Step { entry: index, to });
            }
        }
    }
    // The files must not have changed while they were read.
    for step in &staged.steps {
        if let Ready::Found { found, .. } = &step.to
            && !file_state(&found.path).is_ok_and(|now| now.same_bytes(&found.state))
        {
            return Err(ReloadError::Unstable { path: found.path.clone() });
        }
    }
    Ok(())
}

/// Checks that memory holds what is read beside what is there. Tensors named by the caller are all
/// read; in changed files most tensors turn out to be the same, so only the largest one counts. Bytes
/// for a device pass through memory in parts.
fn check_room(registry: &Registry, wanted: &[TensorReload]) -> Result<(), ReloadError> {
    let bytes = |asked: bool| {
        wanted.iter().filter_map(move |TensorReload { entry, to }| match to {
            Target::Found(found) if found.asked == asked => {
                let held = |weight: &&Weight| !is_streamed(weight) && (weight.is_host() || weight.is_split());
                let own = registry.entries[*entry].weights.iter().filter(held).count();
                Some(found.info.extent.len * own as u64)
            }
            _ => None,
        })
    };
    let needed = ByteSize(bytes(true).sum::<u64>() + bytes(false).max().unwrap_or(0));
    let available = available_memory();
    if needed > available { Err(ReloadError::NoRoom { needed, available }) } else { Ok(()) }
}

/// The context of staging a tensor.
struct Stage<'a> {
    registry: &'a Registry,
    weights: Option<&'a Weights>,
    files: &'a mut Files,
    taken: &'a mut Taken,
}

impl Stage<'_> {
    /// Takes this many copies of a tensor's bytes from the budget.
    fn count(&mut self, copies: usize, len: u64) -> Result<(), ReloadError> {
        let bytes = ByteSize(Weight::memory_size(len).bytes() * copies as u64);
        let Registry { budget, .. } = self.registry;
        self.taken.more(budget.as_ref(), self.weights, self.registry.own_memory(), bytes)
    }
}

/// A tensor that was found, compared with what is there.
enum Compared {
    /// The one that is there.
    Same,
    /// The one that was loaded, which is not there now.
    Returned,
    /// Another one, or one that cannot be compared.
    Other,
}

/// Compares a tensor that was found with what its weights hold, and what they held after the load. `read`
/// gets an offset, and writes the bytes that were found there. Read in parts, outside the budget.
fn compared(
    entry: &mut Entry,
    context: &mut Context,
    found: &Found,
    mut read: impl FnMut(usize, &mut [u8]) -> Result<(), ReloadError>,
) -> Result<Compared, ReloadError> {
    // A mapping of a file that was written to shows the new bytes, so there is nothing to compare
    // with.
    let comparable = !(found.in_place && (entry.is_streamed() || entry.is_mapped()));
    if !comparable || found.asked {
        return Ok(Compared::Other);
    }
    let len = as_len(found.info.extent.len);
    let same_as = |known: &Provenance| known.info.ty == found.info.ty;
    if same_as(&entry.current) && all(entry.weights.iter(), |weight| weight.holds(len, &mut read))? {
        return Ok(Compared::Same);
    }
    let returns = entry.intact && !entry.is_streamed() && same_as(&entry.original);
    if returns && all(entry.weights.iter_mut(), |weight| weight.held(context, len, &mut read))? {
        return Ok(Compared::Returned);
    }
    Ok(Compared::Other)
}

/// True if `holds` is true for all weights.
fn all<W>(
    mut weights: impl Iterator<Item = W>,
    mut holds: impl FnMut(W) -> Result<bool, ReloadError>,
) -> Result<bool, ReloadError> {
    weights.try_fold(true, |all, weight| Ok(all && holds(weight)?))
}

/// Stages one tensor with other bytes.
fn stage(entry: &Entry, found: Box<Found>, ty: DataType, with: &mut Stage<'_>) -> Result<Ready, ReloadError> {
    let weights = with.weights;
    let len = found.info.extent.len;
    let name = &entry.original.info.name;
    let own: Vec<&Weight> = entry.weights.iter().filter(|weight| !is_streamed(weight)).collect();
    let extent = entry.is_streamed().then(|| with.files.extent(&found));
    // What goes to devices passes through main memory, and does not stay there.
    with.count(own.iter().filter(|weight| weight.is_host()).count(), len)?;
    let files = &with.files;
    let mut read = |offset: usize, part: &mut [u8]| files.read(weights, &found, offset as u64, part);
    let mut bytes: Vec<NewBytes> = Vec::new();
    for weight in own {
        if let Some(prepared) = weight.prepare(ty, &mut read)? {
            bytes.push(NewBytes::Device(prepared));
            continue;
        }
        // Memory, slices, or a device that has room only once older bytes are gone.
        let mut pages = memory(name, len)?;
        read(0, &mut pages.as_mut_slice()[..as_len(len)])?;
        bytes.push(NewBytes::Main(pages));
    }
    Ok(Ready::Found { found, ty, extent, bytes })
}

fn memory(tensor: &str, len: u64) -> Result<Pages, ReloadError> {
    Weight::memory(as_len(len)).map_err(|source| ReloadError::Memory {
        tensor: tensor.to_owned(),
        len,
        source,
    })
}

fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("a tensor's length fits an address")
}
