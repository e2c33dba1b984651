//! Which tensors are streamed.

use crate::model::class::{TensorClass, classify_all};
use crate::options::manage::Manage;
use serde::Serialize;
use terrace_model::Name;
use terrace_model::{ByteSize, ModelFile, TensorInfo};

/// Smaller matrices stay resident with [`Manage::All`]: they take little RAM, and reading one would
/// take as long as reading one ten times its size.
pub const MATRIX_MIN: ByteSize = ByteSize::kib(64);

/// A streamed tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Managed {
    /// Index in [`ModelFile::tensors`].
    pub tensor: usize,
    /// Number of slices in which the tensor is read and evicted, one per expert; `None` means as a
    /// whole.
    pub experts: Option<u32>,
}

/// The streamed tensors, in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Selection {
    pub tensors: Vec<Managed>,
}

impl Selection {
    /// Returns whether nothing is streamed.
    pub const fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Adds tensors that are not there yet, in order.
    pub fn insert(&mut self, tensors: impl IntoIterator<Item = Managed>) {
        for managed in tensors {
            if let Err(at) = self.tensors.binary_search_by_key(&managed.tensor, |m| m.tensor) {
                self.tensors.insert(at, managed);
            }
        }
    }

    pub fn remove(&mut self, tensor: usize) {
        if let Ok(at) = self.tensors.binary_search_by_key(&tensor, |m| m.tensor) {
            self.tensors.remove(at);
        }
    }

    /// Returns the descriptions of the tensors with their numbers of slices. `model` must be the
    /// one that the selection was made from.
    pub fn infos<'a>(
        &'a self,
        model: &'a ModelFile,
    ) -> impl Iterator<Item = (&'a TensorInfo, Option<u32>)> + 'a {
        self.tensors.iter().map(|m| (&model.tensors[m.tensor], m.experts))
    }

    /// Returns the narrowest [`Manage`] that names all of the tensors.
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

    /// Returns the bytes of the tensors.
    pub fn bytes(&self, model: &ModelFile) -> ByteSize {
        self.infos(model).map(|(tensor, _)| tensor.size()).sum()
    }
}

/// Returns the tensors that `manage` names. [`Manage::Auto`] depends on a budget, which only
/// [`plan`](crate::plan) knows. Here it means the first set that a plan tries for a model that does
/// not fit: the experts if there are any, otherwise what [`Manage::Ffn`] names.
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

/// Parts of the names of roles with two or more dimensions that are not operands of matrix products
/// or row look-ups, but of convolutions, scans, sums and element-wise products. These operations
/// read their weights directly.
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

/// Returns whether the tensor is a matrix that operations on streamed weights support, and large
/// enough to stream.
pub fn is_matrix(tensor: &TensorInfo) -> bool {
    let name = Name::of(&tensor.name);
    let role = name.role;
    // Index tables are integers; a vector may have an additional dimension in front.
    let integer = matches!(tensor.ty.name.as_str(), "i8" | "i16" | "i32" | "i64");
    let rows = tensor.shape.0[1..].iter().product::<u64>();
    name.kind == "weight"
        && !integer
        && tensor.shape.0[0] > 1
        && rows > 1
        && tensor.size() >= MATRIX_MIN
        && !ELEMENTWISE.iter().any(|part| role.contains(part))
        // Experts are selected by their class; other tensors with such a name have an unknown
        // structure.
        && !role.ends_with("exps")
}
