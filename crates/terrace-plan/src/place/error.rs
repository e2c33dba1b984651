//! Why there is no placement.

use super::assignment::Assignment;
use super::costs::Costs;
use super::workload::Workload;
use crate::machine::{MachineProfile, ProfileError};
use terrace_model::ByteSize;

/// Why a model cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The machine's description.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Nothing that a token would pass through.
    #[error("the model has no layers: none of its {tensors} tensors is named blk.N")]
    NoLayers {
        /// How many it has.
        tensors: usize,
    },
    /// A tensor that is asked about and not there.
    #[error("the model has no tensor `{name}`{}", nearest.as_ref().map_or_else(String::new, |n| format!("; did you mean `{n}`?")))]
    NoTensor {
        /// What was asked for.
        name: String,
        /// One that is there.
        nearest: Option<String>,
    },
    /// A device that is not there.
    #[error("the machine has no device `{name}` with memory of its own{}", if known.is_empty() { String::new() } else { format!("; it has {}", known.join(", ")) })]
    NoDevice {
        /// What was asked for.
        name: String,
        /// What it has.
        known: Vec<String>,
    },
    /// Too little memory on devices for the layers that were asked for.
    #[error("{layers} layers do not fit on {} with {} free", names.join(", "), room)]
    NoDeviceRoom {
        /// Layers asked for.
        layers: usize,
        /// The devices.
        names: Vec<String>,
        /// What may be used of all of them.
        room: ByteSize,
    },
    /// Too little memory.
    #[error(
        "too little RAM: {room} are there for weights beside {context} of context; the least is {least} with every \
         matrix streamed"
    )]
    NoRoom {
        /// For weights.
        room: ByteSize,
        /// For the context.
        context: ByteSize,
        /// What would do.
        least: ByteSize,
    },
}

/// The reason, from the assignment that needs the least RAM without devices.
pub fn no_room(work: &Workload, machine: &MachineProfile, costs: &Costs) -> PlaceError {
    let names = costs.devices.iter().map(|device| machine.devices[device.index].name.clone()).collect();
    let room = ByteSize(costs.devices.iter().map(|device| device.room).sum());
    let mut assignment = Assignment::resident(work);
    assignment.streamed.fill(true);
    assignment.tables_streamed = true;
    assignment.arena = assignment.least_arena(work);
    if let Some(layers) = costs.device_layers.filter(|&layers| layers > 0)
        && assignment.fits(work, costs)
    {
        return PlaceError::NoDeviceRoom { layers, names, room };
    }
    let used = assignment.uses(work, costs)[0];
    PlaceError::NoRoom {
        room: ByteSize(costs.weight_room(used.context())),
        context: ByteSize(used.context()),
        least: ByteSize(used.weights()),
    }
}
