//! A tensor of a model to be made.

use crate::spec::{Routing, Spec};
use terrace_ggml::quantize::WeightType;
use terrace_model::Shape;

/// The values of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fill {
    /// Normally distributed around a mean.
    Normal { mean: f32, std: f32 },
    /// Uniformly distributed between two values.
    Uniform { low: f32, high: f32 },
    /// Token embeddings: a row for each token.
    Embedding { std: f32 },
    /// The head: a row for each token. Those of control tokens are zero, so that greedy text does
    /// not end.
    Output { std: f32 },
    /// A matrix whose products are added to the residual stream.
    Residual { std: f32 },
    /// The router: a row for each expert.
    Router { std: f32 },
    /// Zeros, as a hole in the file.
    Hole,
    /// Factors of proportional RoPE: the first quarter rotates, the rest does not.
    RopeFactors,
}

/// Which of the spec's types a tensor gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// F32, which ggml requires of norms, biases, routers and convolutions.
    Float,
    /// Expert gate and up.
    Expert,
    ExpertDown,
    /// Any other matrix.
    Other,
}

/// A tensor of a model to be made.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub name: String,
    pub shape: Shape,
    pub ty: WeightType,
    pub fill: Fill,
}

impl Tensor {
    pub fn row(&self) -> usize {
        self.shape.0[0] as usize
    }

    /// Returns the rows of one slice of the third dimension: of an expert's matrix, or of a plain
    /// one.
    pub fn slice_rows(&self) -> usize {
        self.shape.0[1] as usize
    }

    /// Returns the number of slices: experts (or heads), 1 for a plain matrix.
    pub fn slices(&self) -> usize {
        (self.shape.0[2] * self.shape.0[3]) as usize
    }

    pub fn row_bytes(&self) -> u64 {
        self.ty.row_bytes(self.shape.0[0]).expect("the type was chosen to fit the row")
    }

    pub fn bytes(&self) -> u64 {
        self.row_bytes() * self.slice_rows() as u64 * self.slices() as u64
    }
}

/// Returns the type for a tensor. If a row is not a multiple of its blocks, this is Q8_0 or F16,
/// similar to llama.cpp's quantiser.
pub(crate) fn choose_type(spec: &Spec, name: &str, class: Class, row: u64) -> WeightType {
    let by_name = spec.overrides.iter().find(|(part, _)| name.contains(part.as_str()));
    let wanted = match (by_name, class) {
        (_, Class::Float) => return WeightType::F32,
        (Some(&(_, ty)), _) => ty,
        (None, Class::Expert) => spec.expert_type,
        (None, Class::ExpertDown) => spec.expert_down_type.unwrap_or(spec.expert_type),
        (None, Class::Other) => spec.other_type,
    };
    let fits = |ty: &WeightType| ty.row_bytes(row).is_some();
    [wanted, WeightType::Q8_0].into_iter().find(fits).unwrap_or(WeightType::F16)
}

/// Collects a model's tensors.
pub(crate) struct Tensors<'a> {
    spec: &'a Spec,
    pub list: Vec<Tensor>,
}

impl<'a> Tensors<'a> {
    pub fn new(spec: &'a Spec) -> Self {
        Self { spec, list: Vec::new() }
    }

    /// Adds a tensor; `shape` lists no trailing dimensions of 1.
    pub fn add(&mut self, name: String, class: Class, shape: &[u32], fill: Fill) {
        let mut ne = [1u64; 4];
        for (to, &from) in ne.iter_mut().zip(shape) {
            *to = u64::from(from);
        }
        let ty = choose_type(self.spec, &name, class, ne[0]);
        self.list.push(Tensor { name, shape: Shape(ne), ty, fill });
    }

    /// Adds a matrix whose inputs and outputs are of about unit size.
    pub fn matrix(&mut self, name: String, class: Class, shape: &[u32]) {
        self.add(name, class, shape, Fill::Normal { mean: 0.0, std: unit(shape[0]) });
    }

    /// Adds a matrix that writes to the residual stream. Deeper models add less in each layer.
    pub fn residual(&mut self, name: String, class: Class, shape: &[u32]) {
        let gain = (2.0 / self.spec.layers as f32).sqrt().min(1.0);
        self.add(name, class, shape, Fill::Residual { std: gain * unit(shape[0]) });
    }

    /// Adds the weights of a norm.
    pub fn norm(&mut self, name: String, n: u32) {
        // With skewed routing the reserved part of the stream must reach the router unchanged.
        let std = if self.spec.routing == Routing::Skewed { 0.0 } else { 0.1 };
        self.add(name, Class::Float, &[n], Fill::Normal { mean: 1.0, std });
    }

    /// Adds a bias, per expert if two dimensions are given.
    pub fn bias(&mut self, name: String, shape: &[u32]) {
        self.add(name, Class::Float, shape, Fill::Normal { mean: 0.0, std: 0.1 });
    }
}

fn unit(inputs: u32) -> f32 {
    1.0 / (inputs as f32).sqrt()
}
