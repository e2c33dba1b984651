//! What is wanted, checked against the model, and read: everything that can fail, before anything changes.

use super::budget::Taken;
use super::bytes::Files;
use super::error::{Refusal, ReloadError, all_or_nothing};
use super::find::{Found, Target, Wanted};
use super::registry::{Entry, Registry, is_streamed};
use crate::load::split::{attention_granularity, ffn_granularity, has_parts};
use crate::load::split_devices;
use terrace_backend::Weights;
use terrace_ggml::DataType;
use terrace_ggml::llama::Weight;
use terrace_ggml::memory::Pages;
use terrace_host::available_memory;
use terrace_model::Name;
use terrace_model::{ByteSize, Extent, TensorInfo};
use terrace_plan::TensorClass;
use terrace_store::identity::file_state;

/// A tensor that is to be swapped, with everything that the swap needs.
pub struct Step {
    pub entry: usize,
    pub to: Ready,
}

pub enum Ready {
    /// What was loaded: nothing is needed.
    Original,
    Found {
        found: Box<Found>,
        /// How it is stored there.
        ty: DataType,
        /// Where the store finds it, if it is streamed.
        extent: Option<Extent>,
        /// The bytes for each of the other tensors that llama.cpp has of it.
        bytes: Vec<Pages>,
    },
}

/// Steps, and the files that were opened for them.
pub struct Staged {
    pub steps: Vec<Step>,
    pub files: Files,
    /// Memory that was taken for it.
    taken: Taken,
    /// Tensors that turned out to have the bytes that they had.
    pub unchanged: usize,
}

/// What can be said without reading a byte. Tensors that already are what is wanted are left out.
pub fn checked(registry: &Registry, wanted: Vec<Wanted>) -> Result<Vec<Wanted>, ReloadError> {
    let mut refusals = Vec::new();
    let mut accepted = Vec::new();
    for Wanted { entry: index, to } in wanted {
        let entry = &registry.entries[index];
        let original = entry.current == entry.original;
        let path = match &to {
            Target::Original => &entry.original.path,
            Target::Found(found) => &found.path,
        };
        if let Err(reason) = acceptable(registry, entry, &to) {
            let tensor = entry.original.info.name.clone();
            refusals.push(Refusal { tensor, path: Some(path.clone()), reason });
            continue;
        }
        let to = match to {
            Target::Original if original => continue,
            Target::Found(found) if entry.intact && is_original(entry, &found) => {
                if original {
                    continue;
                }
                Target::Original
            }
            other => other,
        };
        accepted.push(Wanted { entry: index, to });
    }
    all_or_nothing(accepted, refusals)
}

/// Whether the file is the one that was loaded, and as it was then.
fn is_original(entry: &Entry, found: &Found) -> bool {
    let original = &entry.original;
    original.path == found.path
        && original.state.is_some_and(|state| state.same_bytes(&found.state))
        && original.info.extent.offset == found.info.extent.offset
}

/// Whether the tensor can become that, or why not.
fn acceptable(registry: &Registry, entry: &Entry, to: &Target) -> Result<(), String> {
    if let Some(reason) = entry.fixed() {
        return Err(reason);
    }
    let found = match to {
        Target::Original if entry.intact => return Ok(()),
        Target::Original => {
            return Err("what was loaded is gone: its file has been written to in place".into());
        }
        Target::Found(found) => &found.info,
    };
    let original = &entry.original.info;
    if found.shape != original.shape {
        return Err(format!("it is {} there, and {} in the model", found.shape, original.shape));
    }
    if found.ty == original.ty {
        return Ok(());
    }
    let (from, to) = (&original.ty.name, &found.ty.name);
    if !is_matrix(original, entry.class) {
        return Err(format!("it is {to} there, and what it is used for takes {from} only"));
    }
    let ty = DataType::from_id(found.ty.id).ok_or_else(|| format!("type {to} is not known"))?;
    if entry.weights.iter().any(Weight::is_split) {
        cuttable(registry, entry, found)?;
    }
    let rows = entry.class == TensorClass::TokenEmbedding;
    match entry
        .weights
        .iter()
        .find(|weight| !weight.can_be(ty, weight.is_host() || is_streamed(weight), rows))
    {
        Some(weight) => Err(format!("there is no kernel for type {to} where it is ({})", weight.place())),
        None => Ok(()),
    }
}

/// Whether the devices' slices can be cut for the tensor as it is there.
fn cuttable(registry: &Registry, entry: &Entry, found: &TensorInfo) -> Result<(), String> {
    let devices = split_devices();
    match Name::of(&found.name).role {
        "ffn_down" | "ffn_down_exps" => {
            let granularity = ffn_granularity(&found.ty);
            if has_parts(found.shape.0[0], granularity, devices) {
                return Ok(());
            }
            Err(format!(
                "cut in multiples of {granularity}, one of {devices} devices would have nothing of it"
            ))
        }
        "attn_output" | "ssm_out" => {
            let granularity = |ty| registry.head_group.map(|group| attention_granularity(group, devices, ty));
            if granularity(&found.ty).is_some_and(|there| granularity(&entry.original.info.ty) == Some(there))
            {
                return Ok(());
            }
            let (from, to) = (&entry.original.info.ty.name, &found.ty.name);
            Err(format!(
                "the cache of keys and values is cut between devices by its block size: {from}'s, not {to}'s"
            ))
        }
        _ => Ok(()),
    }
}

/// Whether it is a matrix that activations are multiplied with, or a table of rows, which can be of any type.
fn is_matrix(info: &TensorInfo, class: TensorClass) -> bool {
    let Name { role, kind, .. } = Name::of(&info.name);
    // `indexer.attn_q_b` is one of attention's.
    let role = role.rsplit_once('.').map_or(role, |(_, part)| part);
    let matrix = match class {
        TensorClass::Expert
        | TensorClass::SharedExpert
        | TensorClass::DenseFfn
        | TensorClass::Router
        | TensorClass::Output => true,
        TensorClass::TokenEmbedding => role == "token_embd",
        TensorClass::Attention => {
            role.starts_with("attn_") && !role.contains("sinks") && !role.contains("rel_b")
                || ["ssm_in", "ssm_out"].contains(&role)
        }
        TensorClass::Norm | TensorClass::Other => false,
    };
    matrix && info.shape.dims() >= 2 && kind == "weight"
}

/// Opens the files and reads what the swap needs in memory.
pub fn staged(
    registry: &Registry,
    weights: Option<&Weights>,
    wanted: Vec<Wanted>,
) -> Result<Staged, ReloadError> {
    let mut staged =
        Staged { steps: Vec::new(), files: Files::default(), taken: Taken::default(), unchanged: 0 };
    match stage_all(registry, weights, wanted, &mut staged) {
        Ok(()) => Ok(staged),
        Err(error) => {
            staged.files.close(weights);
            Err(error)
        }
    }
}

fn stage_all(
    registry: &Registry,
    weights: Option<&Weights>,
    wanted: Vec<Wanted>,
    staged: &mut Staged,
) -> Result<(), ReloadError> {
    check_room(registry, &wanted)?;
    for Wanted { entry: index, to } in wanted {
        let entry = &registry.entries[index];
        let found = match to {
            Target::Original => {
                staged.steps.push(Step { entry: index, to: Ready::Original });
                continue;
            }
            Target::Found(found) => found,
        };
        let ty = DataType::from_id(found.info.ty.id).expect("the reader accepts known types only");
        staged.files.open(weights, &found)?;
        let taken = &mut staged.taken;
        match stage(entry, found, ty, &mut Stage { registry, weights, files: &mut staged.files, taken })? {
            Some(to) => staged.steps.push(Step { entry: index, to }),
            None => staged.unchanged += 1,
        }
    }
    // What was read is of files that did not change meanwhile.
    for step in &staged.steps {
        if let Ready::Found { found, .. } = &step.to
            && !file_state(&found.path).is_ok_and(|now| now.same_bytes(&found.state))
        {
            return Err(ReloadError::Unstable { path: found.path.clone() });
        }
    }
    Ok(())
}

/// Whether memory holds what is to be read beside what is there. Tensors that are asked for by name are all read; of files
/// that changed, most turn out to be as they were, and the largest at a time counts.
fn check_room(registry: &Registry, wanted: &[Wanted]) -> Result<(), ReloadError> {
    let bytes = |asked: bool| {
        wanted.iter().filter_map(move |Wanted { entry, to }| match to {
            Target::Found(found) if found.asked == asked => {
                let own =
                    registry.entries[*entry].weights.iter().filter(|weight| !is_streamed(weight)).count();
                Some(found.info.extent.len * own as u64)
            }
            _ => None,
        })
    };
    let needed = ByteSize(bytes(true).sum::<u64>() + bytes(false).max().unwrap_or(0));
    let available = available_memory();
    if needed > available { Err(ReloadError::NoRoom { needed, available }) } else { Ok(()) }
}

/// What staging a tensor works with.
struct Stage<'a> {
    registry: &'a Registry,
    weights: Option<&'a Weights>,
    files: &'a mut Files,
    taken: &'a mut Taken,
}

impl Stage<'_> {
    /// So many copies of a tensor's bytes are to stay: within the budget, or not at all.
    fn count(&mut self, copies: usize, len: u64) -> Result<(), ReloadError> {
        let bytes = ByteSize(Weight::memory_size(len).bytes() * copies as u64);
        self.taken.more(self.registry, self.weights, bytes)
    }
}

/// None: the tensor has these bytes already.
fn stage(
    entry: &Entry,
    found: Box<Found>,
    ty: DataType,
    with: &mut Stage<'_>,
) -> Result<Option<Ready>, ReloadError> {
    let weights = with.weights;
    let len = found.info.extent.len;
    let name = &entry.original.info.name;
    let own: Vec<&Weight> = entry.weights.iter().filter(|weight| !is_streamed(weight)).collect();
    // A mapping of a file that was written to shows what is there now: nothing can be compared with it.
    let comparable = !(found.in_place && (entry.is_streamed() || entry.is_mapped()));
    let extent = entry.is_streamed().then(|| with.files.extent(&found));
    let mut bytes: Vec<Pages> = Vec::new();
    // Of a file that has changed most tensors have not: one at a time is read to see that, beside the budget.
    let may_be_known = [&entry.current, &entry.original].iter().any(|known| known.info.ty == found.info.ty);
    let certain = found.asked || !comparable || !may_be_known;
    if certain {
        with.count(own.len(), len)?;
    }
    for _ in &own {
        let mut pages = memory(name, len)?;
        let room = &mut pages.as_mut_slice()[..as_len(len)];
        match bytes.first_mut() {
            Some(first) => room.copy_from_slice(&first.as_mut_slice()[..as_len(len)]),
            None => with.files.read(weights, &found, room, name)?,
        }
        bytes.push(pages);
    }
    if comparable && !found.asked {
        if bytes.is_empty() && found.info.ty == entry.current.info.ty {
            let mut copy = memory(name, len)?;
            with.files.read(weights, &found, &mut copy.as_mut_slice()[..as_len(len)], name)?;
            bytes.push(copy);
        }
        if let Some(first) = bytes.first_mut() {
            let first = &first.as_mut_slice()[..as_len(len)];
            let same = |weight: &&Weight| found.info.ty == entry.current.info.ty && weight.holds(first);
            if entry.weights.iter().all(|weight| same(&weight)) {
                return Ok(None);
            }
            let returns = entry.intact && !entry.is_streamed();
            if returns && entry.weights.iter().all(|weight| weight.held(first)) {
                return Ok(Some(Ready::Original));
            }
        }
        bytes.truncate(own.len());
    }
    if !certain {
        with.count(own.len(), len)?;
    }
    Ok(Some(Ready::Found { found, ty, extent, bytes }))
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
