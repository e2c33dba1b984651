//! The rows of a prompt's job: each row of the input that its pairs need, once.

/// Marks input rows that are not part of the job.
const NOT_THERE: u32 = u32::MAX;

/// For each row of the input, its place among the job's. Reused for its buffer.
#[derive(Default)]
pub struct Places(Vec<u32>);

impl Places {
    /// Starts a job from an input of `rows` rows, none of which it has yet.
    pub fn clear(&mut self, rows: usize) {
        self.0.clear();
        self.0.resize(rows, NOT_THERE);
    }

    /// The place of the input's row `row` among `job`, to which its `values` are added if it is not
    /// there.
    pub fn of(&mut self, row: usize, values: &[f32], job: &mut Vec<f32>) -> u32 {
        let place = &mut self.0[row];
        if *place == NOT_THERE {
            *place = u32::try_from(job.len() / values.len()).expect("rows of a batch");
            job.extend_from_slice(values);
        }
        *place
    }
}
