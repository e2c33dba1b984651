//! Why a tensor lives where it does.

use crate::error::PlanError;
use crate::machine::MachineProfile;
use crate::model::class::{TensorClass, classify};
use crate::place::assignment::Assignment;
use crate::place::costs::Costs;
use crate::place::workload::Workload;
use crate::planning::Planning;
use crate::wishes::Wishes;
use std::fmt::Write;
use terrace_model::{ByteSize, ModelFile};

/// Describes a tensor in a few lines: what it is, where it lives, what that costs, and what the
/// alternatives would cost.
///
/// # Errors
/// The errors of [`plan`](crate::plan()), and [`PlanError::NoTensor`] for a tensor that the model
/// does not have, with the most similar name.
pub fn explain(
    model: &ModelFile,
    machine: &MachineProfile,
    wishes: &Wishes,
    tensor: &str,
) -> Result<String, PlanError> {
    let Some(index) = model.tensors.iter().position(|t| t.name == tensor) else {
        return Err(PlanError::NoTensor { name: tensor.into(), nearest: nearest(model, tensor) });
    };
    let planning = Planning::of(model, machine, wishes)?;
    let (_, assignment) = planning.run()?;
    let (work, costs) = (&planning.work, &planning.costs);
    let now = assignment.decode(work, costs).total;
    let scene = Explainer { model, machine: &planning.machine, work, costs, now };
    Ok(scene.explain(index, &assignment))
}

struct Explainer<'a> {
    model: &'a ModelFile,
    machine: &'a MachineProfile,
    work: &'a Workload,
    costs: &'a Costs,
    /// Seconds per token.
    now: f64,
}

impl Explainer<'_> {
    fn explain(&self, index: usize, assignment: &Assignment) -> String {
        let tensor = &self.model.tensors[index];
        let class = classify(tensor, self.model);
        let mut out =
            format!("{}: {class}, {}, {}, {}\n", tensor.name, tensor.shape, tensor.ty.name, tensor.size());
        let layer = self.work.layers.iter().position(|layer| layer.id == tensor.layer()).unwrap_or(0);
        if let Some(table) = self.work.tables.iter().find(|table| table.tensor == index) {
            self.table(&mut out, assignment, table.row);
        } else if class == TensorClass::Expert {
            self.experts(&mut out, assignment, layer, tensor.extent.len);
        } else {
            let matrix = self.work.matrices.iter().position(|matrix| matrix.tensor == index);
            self.dense(&mut out, assignment, layer, matrix);
        }
        out
    }

    fn place(&self, place: usize) -> String {
        match place {
            0 => "in RAM".into(),
            place => format!("on {}", self.machine.devices[self.costs.devices[place - 1].index].name),
        }
    }

    /// Writes what a token would cost with a changed assignment.
    fn otherwise(&self, out: &mut String, what: &str, changed: Assignment) {
        let line = match changed.with_leftover(self.work, self.costs) {
            None => format!("{what}: does not fit"),
            Some(changed) => {
                let seconds = changed.decode(self.work, self.costs).total;
                let (ms, more) = (seconds * 1e3, (seconds - self.now) * 1e3);
                match more {
                    more if more.abs() < 1e-6 => format!("{what}: {ms:.2} ms per token, no difference"),
                    more if more > 0.0 => format!("{what}: {ms:.2} ms per token, {more:.3} ms slower"),
                    more => format!("{what}: {ms:.2} ms per token, {:.3} ms faster", -more),
                }
            }
        };
        let _ = writeln!(out, "  {line}");
    }

    fn table(&self, out: &mut String, assignment: &Assignment, row: u64) {
        let row = ByteSize(row);
        let _ = match assignment.tables_streamed {
            true => writeln!(out, "  on disk: a token needs one row of {row}, which is read by itself"),
            false => writeln!(out, "  in RAM: a token needs one row of {row}; the whole table has room"),
        };
        let other = if assignment.tables_streamed { "the whole table in RAM" } else { "rows from disk" };
        let tables_streamed = !assignment.tables_streamed;
        self.otherwise(out, other, Assignment { tables_streamed, ..assignment.clone() });
    }

    fn dense(&self, out: &mut String, assignment: &Assignment, layer: usize, matrix: Option<usize>) {
        let home = assignment.homes[layer];
        let streamed = matrix.is_some_and(|matrix| assignment.streamed[matrix]);
        let _ = match (streamed, matrix) {
            (true, Some(matrix)) => writeln!(
                out,
                "  on disk: every token reads all of it, ahead of its use, in {:.2} ms",
                self.costs.stream[matrix] * 1e3
            ),
            _ => writeln!(out, "  {}: every token uses all of it", self.place(home)),
        };
        if matrix.is_none() {
            let _ = writeln!(
                out,
                "  not streamable, because it is too small or not a matrix: it stays with its layer"
            );
        }
        if let Some(matrix) = matrix.filter(|_| home == 0) {
            let mut other = assignment.clone();
            other.streamed[matrix] = !streamed;
            self.otherwise(out, if streamed { "in RAM" } else { "streamed from disk" }, other);
        }
        self.other_homes(out, assignment, layer);
    }

    fn experts(&self, out: &mut String, assignment: &Assignment, layer: usize, bytes: u64) {
        let Some(experts) = &self.work.layers[layer].experts else { return };
        let home = assignment.homes[layer];
        let hot = if home > 0 { assignment.hot[layer] } else { 0 };
        let cold = assignment.cold_experts(self.work);
        let cached = if cold == 0 { 1.0 } else { (assignment.arena as f64 / cold as f64).min(1.0) };
        let share = f64::from(hot) / f64::from(experts.count);
        let in_ram = cached * (1.0 - share);
        let hits = self.costs.hits(share, cached);
        if hot > 0 {
            let _ = writeln!(
                out,
                "  the {hot} hottest of {} experts {}: {:.0} % of the uses",
                experts.count,
                self.place(home),
                self.costs.curve.hits(share) * 100.0
            );
        }
        let _ = writeln!(
            out,
            "  {:.0} % of the experts in RAM, {:.0} % on disk only; {:.0} % of uses read nothing",
            in_ram * 100.0,
            (1.0 - share - in_ram).max(0.0) * 100.0,
            hits * 100.0
        );
        let used = bytes as f64 * experts.used();
        let _ = writeln!(
            out,
            "  a token uses {} of it ({} of {} experts), and reads {} on average",
            ByteSize(used as u64),
            experts.top_k,
            experts.count,
            ByteSize((used * (1.0 - hits)) as u64)
        );
        let more = cached + 0.01 / (1.0 - share).max(0.01);
        let density = experts.used() * (self.costs.hits(share, more) - hits) / 0.01;
        if share + in_ram + 0.01 < 1.0 {
            let _ = writeln!(
                out,
                "  one more byte of cache saves reading {density:.3} bytes per token; a byte for a dense matrix saves 1"
            );
        }
        self.other_homes(out, assignment, layer);
    }

    fn other_homes(&self, out: &mut String, assignment: &Assignment, layer: usize) {
        for home in (0..=self.costs.devices.len()).filter(|&home| home != assignment.homes[layer]) {
            let mut other = assignment.clone();
            other.homes[layer] = home;
            other.hot[layer] = 0;
            for (matrix, streamed) in self.work.matrices.iter().zip(&mut other.streamed) {
                *streamed &= home == 0 || matrix.layer != layer;
            }
            let what = format!("its layer {}", self.place(home));
            self.otherwise(out, &what, other);
        }
    }
}

/// Finds the tensor whose name shares the longest beginning and end with `name`.
fn nearest(model: &ModelFile, name: &str) -> Option<String> {
    let common = |other: &str| {
        let same = |a: &mut dyn Iterator<Item = char>, b: &mut dyn Iterator<Item = char>| {
            a.zip(b).take_while(|(a, b)| a == b).count()
        };
        same(&mut name.chars(), &mut other.chars()) + same(&mut name.chars().rev(), &mut other.chars().rev())
    };
    let best = model.tensors.iter().rev().max_by_key(|tensor| common(&tensor.name))?;
    (common(&best.name) > 0).then(|| best.name.clone())
}
