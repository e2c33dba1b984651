//! Quantisation types of whole model files, by the names that llama.cpp's tools use.

use crate::tensor::WeightType;
use llama_cpp_sys_2 as sys;
use std::fmt;
use std::str::FromStr;

/// A file type: a mixture of tensor types that llama.cpp chooses by the tensors' roles, one float
/// type for all matrices, or a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileType {
    name: &'static str,
    /// `None`: a copy.
    id: Option<sys::llama_ftype>,
}

macro_rules! file_types {
    ($($name:literal = $id:ident),* $(,)?) => {
        /// The types of llama.cpp's `quantize`, in its order. `Q3_K`, `Q4_K` and `Q5_K` stand for
        /// the medium mixtures.
        const NAMED: &[FileType] = &[$(FileType { name: $name, id: Some(sys::$id) }),*];
    };
}

file_types! {
    "Q1_0" = LLAMA_FTYPE_MOSTLY_Q1_0, "Q2_0" = LLAMA_FTYPE_MOSTLY_Q2_0,
    "Q4_0" = LLAMA_FTYPE_MOSTLY_Q4_0, "Q4_1" = LLAMA_FTYPE_MOSTLY_Q4_1,
    "MXFP4_MOE" = LLAMA_FTYPE_MOSTLY_MXFP4_MOE,
    "Q5_0" = LLAMA_FTYPE_MOSTLY_Q5_0, "Q5_1" = LLAMA_FTYPE_MOSTLY_Q5_1,
    "IQ2_XXS" = LLAMA_FTYPE_MOSTLY_IQ2_XXS, "IQ2_XS" = LLAMA_FTYPE_MOSTLY_IQ2_XS,
    "IQ2_S" = LLAMA_FTYPE_MOSTLY_IQ2_S, "IQ2_M" = LLAMA_FTYPE_MOSTLY_IQ2_M,
    "IQ1_S" = LLAMA_FTYPE_MOSTLY_IQ1_S, "IQ1_M" = LLAMA_FTYPE_MOSTLY_IQ1_M,
    "TQ1_0" = LLAMA_FTYPE_MOSTLY_TQ1_0, "TQ2_0" = LLAMA_FTYPE_MOSTLY_TQ2_0,
    "Q2_K" = LLAMA_FTYPE_MOSTLY_Q2_K, "Q2_K_S" = LLAMA_FTYPE_MOSTLY_Q2_K_S,
    "IQ3_XXS" = LLAMA_FTYPE_MOSTLY_IQ3_XXS, "IQ3_S" = LLAMA_FTYPE_MOSTLY_IQ3_S,
    "IQ3_M" = LLAMA_FTYPE_MOSTLY_IQ3_M, "IQ3_XS" = LLAMA_FTYPE_MOSTLY_IQ3_XS,
    "Q3_K" = LLAMA_FTYPE_MOSTLY_Q3_K_M, "Q3_K_S" = LLAMA_FTYPE_MOSTLY_Q3_K_S,
    "Q3_K_M" = LLAMA_FTYPE_MOSTLY_Q3_K_M, "Q3_K_L" = LLAMA_FTYPE_MOSTLY_Q3_K_L,
    "IQ4_NL" = LLAMA_FTYPE_MOSTLY_IQ4_NL, "IQ4_XS" = LLAMA_FTYPE_MOSTLY_IQ4_XS,
    "Q4_K" = LLAMA_FTYPE_MOSTLY_Q4_K_M, "Q4_K_S" = LLAMA_FTYPE_MOSTLY_Q4_K_S,
    "Q4_K_M" = LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "Q5_K" = LLAMA_FTYPE_MOSTLY_Q5_K_M, "Q5_K_S" = LLAMA_FTYPE_MOSTLY_Q5_K_S,
    "Q5_K_M" = LLAMA_FTYPE_MOSTLY_Q5_K_M,
    "Q6_K" = LLAMA_FTYPE_MOSTLY_Q6_K, "Q8_0" = LLAMA_FTYPE_MOSTLY_Q8_0,
    "F16" = LLAMA_FTYPE_MOSTLY_F16, "BF16" = LLAMA_FTYPE_MOSTLY_BF16, "F32" = LLAMA_FTYPE_ALL_F32,
}

impl FileType {
    /// All tensors unchanged.
    pub const COPY: Self = Self { name: "COPY", id: None };

    /// All file types, the copy last.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMED.iter().copied().chain([Self::COPY])
    }

    /// llama.cpp's name of the type.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// `general.file_type` of such files; `None` for copies, which keep theirs.
    pub const fn id(self) -> Option<u32> {
        self.id
    }

    /// The type of all matrices, if it is a float type.
    pub fn float(self) -> Option<WeightType> {
        match self.id? {
            sys::LLAMA_FTYPE_ALL_F32 => Some(WeightType::F32),
            sys::LLAMA_FTYPE_MOSTLY_F16 => Some(WeightType::F16),
            sys::LLAMA_FTYPE_MOSTLY_BF16 => Some(WeightType::BF16),
            _ => None,
        }
    }
}

impl fmt::Display for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// The text is not the name of a file type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a file type; available: {}", FileType::all().map(FileType::name).collect::<Vec<_>>().join(", "))]
pub struct ParseFileTypeError {
    given: String,
}

impl FromStr for FileType {
    type Err = ParseFileTypeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::all().find(|ty| ty.name.eq_ignore_ascii_case(text));
        // llama.cpp's number of the type.
        let found =
            named.or_else(|| text.parse().ok().and_then(|id| Self::all().find(|ty| ty.id == Some(id))));
        found.ok_or_else(|| ParseFileTypeError { given: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for ty in FileType::all() {
            assert_eq!(ty.name().to_lowercase().parse(), Ok(ty));
            assert_eq!(ty.id().is_none(), ty == FileType::COPY);
        }
        assert_eq!("Q4_K".parse::<FileType>().unwrap().id(), "Q4_K_M".parse::<FileType>().unwrap().id());
        assert!("Q4_K_XL".parse::<FileType>().unwrap_err().to_string().contains("Q4_K_M"));
    }
}
