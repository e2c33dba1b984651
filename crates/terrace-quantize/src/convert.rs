//! Converts one tensor to another type, on all threads, a few million elements at a time.

use crate::error::QuantizeError;
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use terrace_ggml::quantize::{self, Survey, WeightType};
use terrace_model::{Slices, TensorInfo};
use terrace_platform::file::Positioned;

/// Elements between two writes: a second's work for the slowest types, and enough for all threads.
const SLAB: u64 = 4 << 20;
/// Elements that a thread takes at once.
const CHUNK: u64 = 64 << 10;

/// The conversion of one tensor.
pub struct Conversion<'a> {
    /// The file that it is in.
    pub path: &'a Path,
    /// That file, open.
    pub file: &'a File,
    /// The tensor; its extent lies within the file.
    pub tensor: &'a TensorInfo,
    /// Its new type; `None` copies its bytes.
    pub to: Option<WeightType>,
    /// One importance value per column of each of its matrices.
    pub importance: Option<&'a [f32]>,
    /// Number of threads.
    pub threads: usize,
}

/// A few rows, and the place for their new bytes.
struct Chunk<'b> {
    first_row: u64,
    out: &'b mut [u8],
}

impl Conversion<'_> {
    /// Writes the new bytes to `out`. `progress` is called after every slab with the number of old
    /// bytes done.
    ///
    /// # Errors
    /// [`QuantizeError`] for reading and damaged weights, or what `write_error` makes of a failed
    /// write.
    pub fn run(
        &self,
        out: &mut dyn Write,
        write_error: &dyn Fn(std::io::Error) -> QuantizeError,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), QuantizeError> {
        // Copying goes by blocks: a row may be as long as the file.
        let columns = match self.to {
            Some(_) => self.tensor.shape.0[0],
            None => u64::from(self.tensor.ty.block_elements),
        };
        let rows = self.tensor.shape.elements() / columns;
        let old_row = self.tensor.extent.len / rows;
        let new_row = match self.to {
            Some(ty) => ty.row_bytes(columns).expect("llama.cpp chooses types that rows are whole blocks of"),
            None => old_row,
        };
        let slices = self.to.map_or(0, |_| rows / self.tensor.shape.0[1]);
        let slices: Vec<Content> = (0..slices).map(|_| Content::default()).collect();
        let slab = (SLAB / columns).clamp(1, rows);
        let chunk = (CHUNK / columns).max(1);
        let mut bytes = vec![0; in_memory(slab * new_row)];
        let mut done = 0;
        while done < rows {
            let count = slab.min(rows - done);
            let bytes = &mut bytes[..in_memory(count * new_row)];
            let chunks = bytes.chunks_mut(in_memory(chunk * new_row)).enumerate();
            let chunks = Mutex::new(chunks.map(|(i, out)| Chunk { first_row: done + i as u64 * chunk, out }));
            let failed = Mutex::new(None);
            let work = || {
                let mut worker = Worker {
                    conversion: self,
                    slices: &slices,
                    columns,
                    old_row,
                    new_row,
                    old: Vec::new(),
                    floats: Vec::new(),
                };
                loop {
                    let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(chunk) = next else { break };
                    if let Err(error) = worker.convert(chunk) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        break;
                    }
                }
            };
            std::thread::scope(|scope| {
                for _ in 1..self.threads.min(in_memory(count.div_ceil(chunk))) {
                    scope.spawn(work);
                }
                work();
            });
            if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
                return Err(error);
            }
            out.write_all(bytes).map_err(write_error)?;
            done += count;
            if progress(done * old_row).is_break() {
                return Err(QuantizeError::Cancelled);
            }
        }
        self.check(&slices)
    }

    /// Checks that no slice has lost all of its weights.
    fn check(&self, slices: &[Content]) -> Result<(), QuantizeError> {
        let lost = (0..).zip(slices).filter(|(_, slice)| slice.is_lost()).map(|(number, _)| number);
        let lost = Slices::of_tensor(self.tensor, lost.collect());
        match (lost.numbers.is_empty(), self.to) {
            (false, Some(to)) => Err(QuantizeError::Zeroed {
                tensor: self.tensor.name.clone(),
                slices: lost,
                from: self.tensor.ty.name.clone(),
                to: to.name(),
            }),
            _ => Ok(()),
        }
    }
}

/// Finds weights of the tensor that are not zero, before and after.
#[derive(Default)]
struct Content {
    before: AtomicBool,
    after: AtomicBool,
}

impl Content {
    fn is_lost(&self) -> bool {
        self.before.load(Ordering::Relaxed) && !self.after.load(Ordering::Relaxed)
    }
}

/// A thread's own memory.
struct Worker<'c> {
    conversion: &'c Conversion<'c>,
    slices: &'c [Content],
    columns: u64,
    old_row: u64,
    new_row: u64,
    old: Vec<u8>,
    floats: Vec<f32>,
}

impl Worker<'_> {
    fn convert(&mut self, mut chunk: Chunk<'_>) -> Result<(), QuantizeError> {
        let Conversion { tensor, path, to, .. } = *self.conversion;
        let rows = chunk.out.len() as u64 / self.new_row;
        let offset = tensor.extent.offset + chunk.first_row * self.old_row;
        let damaged = |reason: String| QuantizeError::Weights {
            path: path.into(),
            tensor: tensor.name.clone(),
            offset,
            reason,
        };
        let read = |bytes: &mut [u8]| {
            self.conversion.file.read_exact_at(bytes, offset).map_err(|source| QuantizeError::Read {
                path: path.into(),
                tensor: tensor.name.clone(),
                offset,
                source,
            })
        };
        let from = WeightType::from_id(tensor.ty.id);
        let not_finite = || damaged("weights are not finite".into());
        let (Some(to), Some(from)) = (to, from) else {
            read(chunk.out)?;
            // Other types hold no weights.
            let survey = from.and_then(|from| Survey::of(from, chunk.out)).unwrap_or_default();
            return if survey.not_finite == 0 { Ok(()) } else { Err(not_finite()) };
        };
        let mut old = std::mem::take(&mut self.old);
        old.resize(in_memory(rows * self.old_row), 0);
        read(&mut old)?;
        self.floats.resize(in_memory(rows * self.columns), 0.0);
        if !quantize::dequantize_into(from, &old, &mut self.floats) {
            return Err(damaged(format!("ggml cannot convert {}", from.name())));
        }
        self.old = old;
        if Survey::of_floats(&self.floats).not_finite > 0 {
            return Err(not_finite());
        }
        self.quantize(to, &mut chunk).map_err(|error| damaged(error.to_string()))?.map_err(|slice| {
            QuantizeError::NotFinite {
                tensor: tensor.name.clone(),
                slices: Slices::of_tensor(tensor, vec![slice]),
                from: from.name(),
                to: to.name(),
            }
        })
    }

    /// Quantises matrix by matrix, since each has its own importance values. The inner error is the
    /// number of a slice of which the result is not finite.
    fn quantize(
        &self,
        to: WeightType,
        chunk: &mut Chunk<'_>,
    ) -> Result<Result<(), u64>, quantize::QuantizeError> {
        let columns = in_memory(self.columns);
        let matrix_rows = self.conversion.tensor.shape.0[1];
        let (mut row, mut floats, mut out) = (chunk.first_row, &self.floats[..], &mut *chunk.out);
        while !floats.is_empty() {
            let count = (matrix_rows - row % matrix_rows).min((floats.len() / columns) as u64);
            let (now, later) = floats.split_at(in_memory(count) * columns);
            let (bytes, rest) = out.split_at_mut(in_memory(count * self.new_row));
            let slice = row / matrix_rows;
            let importance = self.conversion.importance.map(|all| {
                let start = in_memory(slice) * columns;
                &all[start..start + columns]
            });
            quantize::quantize_into(to, now, columns, importance, bytes)?;
            let result = Survey::of(to, bytes).unwrap_or_default();
            if result.not_finite > 0 {
                return Ok(Err(slice));
            }
            let content = &self.slices[in_memory(slice)];
            if Survey::of_floats(now).any_not_zero {
                content.before.store(true, Ordering::Relaxed);
            }
            if result.any_not_zero {
                content.after.store(true, Ordering::Relaxed);
            }
            (row, floats, out) = (row + count, later, rest);
        }
        Ok(Ok(()))
    }
}

fn in_memory(n: u64) -> usize {
    usize::try_from(n).expect("a few rows in memory")
}
