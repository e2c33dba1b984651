//! Operations of ggml's graph language.

use llama_cpp_sys_2 as sys;
use std::ffi::CStr;
use std::sync::OnceLock;

/// An operation of ggml's graph language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op(pub(crate) sys::ggml_op);

impl Op {
    /// No operation: the node is skipped.
    pub const NONE: Self = Self(sys::GGML_OP_NONE);
    /// `dst = src0ᵀ · src1`.
    pub const MUL_MAT: Self = Self(sys::GGML_OP_MUL_MAT);
    /// `dst = src0ᵀ · src1` with a matrix per row, chosen by ids (`src2`).
    pub const MUL_MAT_ID: Self = Self(sys::GGML_OP_MUL_MAT_ID);
    /// Rows of `src0` at the indices in `src1`, as F32.
    pub const GET_ROWS: Self = Self(sys::GGML_OP_GET_ROWS);
    /// The order of a row's elements, as I32.
    pub const ARGSORT: Self = Self(sys::GGML_OP_ARGSORT);
    /// Sum, with rows or elements repeated where `src1` is smaller.
    pub const ADD: Self = Self(sys::GGML_OP_ADD);
    /// Rows divided by their root mean square.
    pub const RMS_NORM: Self = Self(sys::GGML_OP_RMS_NORM);
    pub const SOFT_MAX: Self = Self(sys::GGML_OP_SOFT_MAX);
    /// A gated activation (SwiGLU and the like).
    pub const GLU: Self = Self(sys::GGML_OP_GLU);
    /// An activation (SiLU, GELU and the like).
    pub const UNARY: Self = Self(sys::GGML_OP_UNARY);
    /// Element-wise square.
    pub const SQR: Self = Self(sys::GGML_OP_SQR);
    /// Element-wise limits.
    pub const CLAMP: Self = Self(sys::GGML_OP_CLAMP);
    /// Product with a constant.
    pub const SCALE: Self = Self(sys::GGML_OP_SCALE);
    /// Element-wise product.
    pub const MUL: Self = Self(sys::GGML_OP_MUL);
    /// Sum with the row of `src1` that an id (`src2`) selects: an expert's bias.
    pub const ADD_ID: Self = Self(sys::GGML_OP_ADD_ID);
    /// Attention: queries, keys, values, a mask and sinks.
    pub const FLASH_ATTN_EXT: Self = Self(sys::GGML_OP_FLASH_ATTN_EXT);
    /// A custom function, run on all threads.
    pub const CUSTOM: Self = Self(sys::GGML_OP_CUSTOM);

    /// Returns true if the node computes nothing (views, reshapes and the like).
    pub const fn is_view(self) -> bool {
        matches!(
            self.0,
            sys::GGML_OP_NONE
                | sys::GGML_OP_RESHAPE
                | sys::GGML_OP_VIEW
                | sys::GGML_OP_PERMUTE
                | sys::GGML_OP_TRANSPOSE
        )
    }

    /// Returns true if the node copies what is computed elsewhere.
    pub const fn is_copy(self) -> bool {
        matches!(
            self.0,
            sys::GGML_OP_DUP
                | sys::GGML_OP_CPY
                | sys::GGML_OP_CONT
                | sys::GGML_OP_GET_ROWS
                | sys::GGML_OP_SET_ROWS
        )
    }

    /// ggml's name of the operation.
    pub fn name(self) -> &'static str {
        // SAFETY: any value that ggml puts into a node's `op` is below GGML_OP_COUNT, and the names
        // are static strings.
        unsafe { CStr::from_ptr(sys::ggml_op_name(self.in_host())) }.to_str().unwrap_or("?")
    }

    /// The operation that has this number in this process's ggml.
    pub(crate) fn of_host(number: sys::ggml_op) -> Self {
        Self(NUMBERS.get().map_or(number, |numbers| numbers.ours(number)))
    }

    /// The operation's number in this process's ggml.
    pub(crate) fn in_host(self) -> sys::ggml_op {
        NUMBERS.get().map_or(self.0, |numbers| numbers.theirs(self.0))
    }
}

/// A kind of gated linear unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GluOp(pub(crate) sys::ggml_glu_op);

impl GluOp {
    /// GELU by a hyperbolic tangent, which ggml reads from a table.
    pub const GEGLU: Self = Self(sys::GGML_GLU_OP_GEGLU);
    /// GELU by a sigmoid, which ggml reads from a table.
    pub const GEGLU_QUICK: Self = Self(sys::GGML_GLU_OP_GEGLU_QUICK);
    /// A gate by its own sigmoid, which ggml computes by vectors.
    pub const SWIGLU: Self = Self(sys::GGML_GLU_OP_SWIGLU);
    /// gpt-oss's.
    pub const SWIGLU_OAI: Self = Self(sys::GGML_GLU_OP_SWIGLU_OAI);
}

/// Marks numbers of a host's operations that have no name here.
const FOREIGN: sys::ggml_op = 1 << 16;

/// Numbers of operations in a host that counts them otherwise. Not set if it does not.
static NUMBERS: OnceLock<Numbers> = OnceLock::new();

struct Numbers {
    /// By the host's number.
    ours: Vec<sys::ggml_op>,
    /// Numbers here, with the host's.
    theirs: Vec<(sys::ggml_op, sys::ggml_op)>,
}

/// The operations that have a name here.
const NAMED: [(Op, &str); 20] = [
    (Op::NONE, "NONE"),
    (Op::MUL_MAT, "MUL_MAT"),
    (Op::MUL_MAT_ID, "MUL_MAT_ID"),
    (Op::GET_ROWS, "GET_ROWS"),
    (Op::ADD, "ADD"),
    (Op::RMS_NORM, "RMS_NORM"),
    (Op::SOFT_MAX, "SOFT_MAX"),
    (Op::GLU, "GLU"),
    (Op::UNARY, "UNARY"),
    (Op::SQR, "SQR"),
    (Op::CLAMP, "CLAMP"),
    (Op::SCALE, "SCALE"),
    (Op::MUL, "MUL"),
    (Op::ADD_ID, "ADD_ID"),
    (Op::FLASH_ATTN_EXT, "FLASH_ATTN_EXT"),
    (Op::CUSTOM, "CUSTOM"),
    (Op(sys::GGML_OP_RESHAPE), "RESHAPE"),
    (Op(sys::GGML_OP_VIEW), "VIEW"),
    (Op(sys::GGML_OP_PERMUTE), "PERMUTE"),
    (Op(sys::GGML_OP_TRANSPOSE), "TRANSPOSE"),
];

/// More operations than any release has.
const MAX_OPS: sys::ggml_op = 256;

/// Takes over the numbers that operations have in a host, of which `name_of` returns the names.
///
/// # Errors
/// The operation that it does not have.
pub(crate) fn adopt_numbers<'n>(name_of: impl Fn(sys::ggml_op) -> &'n [u8]) -> Result<(), &'static str> {
    if let Some(numbers) = Numbers::of(name_of)? {
        NUMBERS.get_or_init(|| numbers);
    }
    Ok(())
}

impl Numbers {
    /// The numbers of a host; `None` if they are those here. The last operation of every release that
    /// is known here is GLU: numbers after it are not asked for.
    fn of<'n>(name_of: impl Fn(sys::ggml_op) -> &'n [u8]) -> Result<Option<Self>, &'static str> {
        let count = (0..MAX_OPS).find(|&number| name_of(number) == b"GLU").ok_or("GLU")? + 1;
        let number_of = |name: &str| (0..count).find(|&number| name_of(number) == name.as_bytes());
        let mut theirs = Vec::new();
        for (op, name) in NAMED {
            theirs.push((op.0, number_of(name).ok_or(name)?));
        }
        if theirs.iter().all(|(ours, theirs)| ours == theirs) {
            return Ok(None);
        }
        let ours = |number: sys::ggml_op| {
            let known = theirs.iter().find(|(_, theirs)| *theirs == number);
            known.map_or(FOREIGN | number, |(ours, _)| *ours)
        };
        Ok(Some(Self { ours: (0..count).map(ours).collect(), theirs }))
    }

    fn ours(&self, number: sys::ggml_op) -> sys::ggml_op {
        self.ours.get(number as usize).copied().unwrap_or(FOREIGN | number)
    }

    fn theirs(&self, op: sys::ggml_op) -> sys::ggml_op {
        self.theirs.iter().find(|(ours, _)| *ours == op).map_or(op & !FOREIGN, |(_, theirs)| *theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_a_host_that_counts_otherwise_are_known_by_their_names() {
        let mut names: Vec<&str> =
            NAMED.iter().map(|(_, name)| *name).filter(|name| *name != "GLU").collect();
        names.insert(3, "SOMETHING_NEW");
        names.push("GLU");
        let name_of =
            |number: sys::ggml_op| names.get(number as usize).map_or(&b"?"[..], |name| name.as_bytes());
        let refused = |without: &str| {
            Numbers::of(|n| if name_of(n) == without.as_bytes() { &b"?"[..] } else { name_of(n) }).err()
        };
        assert_eq!((refused("GLU"), refused("MUL_MAT_ID")), (Some("GLU"), Some("MUL_MAT_ID")));
        let numbers = Numbers::of(name_of).unwrap().expect("others than here");
        for (op, name) in NAMED {
            let theirs = numbers.theirs(op.0);
            assert_eq!((names[theirs as usize], numbers.ours(theirs)), (name, op.0));
        }
        let new = numbers.ours(3);
        assert!(NAMED.iter().all(|(op, _)| op.0 != new) && numbers.theirs(new) == 3);
    }

    #[test]
    fn the_linked_ggml_has_the_numbers_here() {
        // SAFETY: GLU is the last one, and names are static strings.
        let name_of = |number| unsafe { CStr::from_ptr(sys::ggml_op_name(number)) }.to_bytes();
        assert!(Numbers::of(name_of).unwrap().is_none());
    }
}
