//! Which tensors Terrace manages.

use crate::model::class::{TensorClass, classify_all};
use crate::wishes::manage::Manage;
use serde::Serialize;
use terrace_model::Name;
use terrace_model::{ByteSize, ModelFile, TensorInfo};

/// Matrices below this size stay resident under [`Manage::All`]: a page fault's worth of RAM each, and a read of
/// them would cost as long as one ten times their size.
pub const MATRIX_MIN: ByteSize = ByteSize::kib(64);

/// A tensor that Terrace manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Managed {
    /// Index in [`ModelFile::tensors`].
    pub tensor: usize,
    /// The tensor is loaded and evicted in this many slices, one per expert; `None`: as a whole.
    pub experts: Option<u32>,
}

/// The tensors that Terrace manages, in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Selection {
    /// The tensors.
    pub tensors: Vec<Managed>,
}

impl Selection {
    /// Whether nothing is managed.
    pub const fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The tensors' descriptions with their cuts. `model` is the one that the selection was made from.
    pub fn infos<'a>(
        &'a self,
        model: &'a ModelFile,
    ) -> impl Iterator<Item = (&'a TensorInfo, Option<u32>)> + 'a {
        self.tensors.iter().map(|m| (&model.tensors[m.tensor], m.experts))
    }

    /// The narrowest [`Manage`] that names all of them.
    pub fn kind(&self, model: &ModelFile, classes: &[TensorClass]) -> Manage {
        let class = |managed: &Managed| match classes[managed.tensor] {
            TensorClass::Expert => Manage::Experts,
            TensorClass::DenseFfn | TensorClass::SharedExpert
                if is_matrix(&model.tensors[managed.tensor]) =>
            {
                Manage::Ffn
            }
            _ => Manage::All,
        };
        let rank =
            |manage: &Manage| [Manage::Experts, Manage::Ffn].iter().position(|m| m == manage).unwrap_or(2);
        self.tensors.iter().map(class).max_by_key(rank).unwrap_or(Manage::None)
    }

    /// Bytes of the managed tensors.
    pub fn bytes(&self, model: &ModelFile) -> ByteSize {
        self.infos(model).map(|(tensor, _)| tensor.size()).sum()
    }
}

/// The tensors that `manage` names. [`Manage::Auto`] depends on a budget, which [`plan`](crate::plan) knows; here
/// it means the first set that a plan tries for a model that does not fit: the experts if there are any, else
/// what [`Manage::Ffn`] names.
pub fn managed(model: &ModelFile, manage: Manage) -> Selection {
    select(model, &classify_all(model), manage)
}

pub fn select(model: &ModelFile, classes: &[TensorClass], manage: Manage) -> Selection {
    let manage = match manage {
        Manage::Auto if classes.contains(&TensorClass::Expert) => Manage::Experts,
        Manage::Auto => Manage::Ffn,
        given => given,
    };
    let wanted = |tensor: &TensorInfo, class| match manage {
        Manage::Experts => class == TensorClass::Expert,
        Manage::Ffn => match class {
            TensorClass::Expert => true,
            TensorClass::DenseFfn | TensorClass::SharedExpert => is_matrix(tensor),
            _ => false,
        },
        Manage::All => class == TensorClass::Expert || is_matrix(tensor),
        Manage::None | Manage::Mapped | Manage::Auto => false,
    };
    let tensors = model.tensors.iter().zip(classes).enumerate();
    let tensors =
        tensors.filter(|(_, (tensor, class))| wanted(tensor, **class)).map(|(index, (tensor, class))| {
            let slices = u32::try_from(tensor.shape.0[2]).ok();
            Managed { tensor: index, experts: slices.filter(|_| *class == TensorClass::Expert) }
        });
    Selection { tensors: tensors.collect() }
}

/// Roles with two or more dimensions that are not operands of a matrix product or a row look-up, but of
/// convolutions, scans, sums and element-wise products: these operations read their weight directly.
const ELEMENTWISE: [&str; 12] = [
    "norm",
    "conv",
    "lerp",
    "decay",
    "time_mix_first",
    "res_score",
    "scale",
    "_base",
    "rel_b",
    "_ape",
    "rope_",
    "sinks",
];

/// Whether the tensor is a matrix that operations on managed weights take, and large enough to care.
pub fn is_matrix(tensor: &TensorInfo) -> bool {
    let name = Name::of(&tensor.name);
    let role = name.role;
    // Index tables are integers; a single vector's extra dimension may be in front.
    let integer = matches!(tensor.ty.name.as_str(), "i8" | "i16" | "i32" | "i64");
    let rows = tensor.shape.0[1..].iter().product::<u64>();
    name.kind == "weight"
        && !integer
        && tensor.shape.0[0] > 1
        && rows > 1
        && tensor.size() >= MATRIX_MIN
        && !ELEMENTWISE.iter().any(|part| role.contains(part))
        // Whole experts are selected by their class; what only looks like them is not understood.
        && !role.ends_with("exps")
}
