//! Rows of large tables, which files otherwise have as holes.

use crate::error::Error;
use crate::fill;
use crate::layout::{self, TABLE};
use crate::random::stream;
use crate::spec::Spec;
use rand_distr::{Distribution, StandardNormal};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

/// Writes these rows of the per-layer embeddings ([`Spec::per_layer`], [`Spec::hashed_rows`]) to the model's file, which has
/// been written and has the table as a hole: all other rows are zero.
///
/// # Errors
/// [`Error::Io`]; [`Error::Spec`] for a model without such a table.
///
/// # Panics
/// If the file is not the model's.
pub fn write_table_rows(spec: &Spec, path: &Path, rows: impl IntoIterator<Item = u64>) -> Result<(), Error> {
    let none = || Error::Spec { arch: spec.arch.name(), reason: format!("it has no {TABLE}") };
    let table = layout::tensors(spec).into_iter().find(|tensor| tensor.name == TABLE).ok_or_else(none)?;
    let model = terrace_ggml::gguf::read(path).expect("a model that this kit has written");
    let extent = model.tensor(TABLE).expect("the file of this model").extent;
    let mut file = File::options().write(true).open(path).map_err(Error::io(path))?;
    for row in rows {
        let values: Vec<f32> =
            StandardNormal.sample_iter(stream(spec.seed, TABLE, row)).take(table.row()).collect();
        let bytes = fill::encode(TABLE, table.ty, &values, table.row())?;
        let at = row * table.row_bytes();
        assert!(at + bytes.len() as u64 <= extent.len, "row {row} of {TABLE}");
        file.seek(SeekFrom::Start(extent.offset + at)).map_err(Error::io(path))?;
        file.write_all(&bytes).map_err(Error::io(path))?;
    }
    Ok(())
}
