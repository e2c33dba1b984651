//! The program: its variables and constraints.

use super::phase::Phase;
use super::variables::{BYTES, Lanes, TIME, Variant, count, sum};
use crate::hits::HotClass;
use crate::model::working_set::slot_size;
use crate::place::costs::Costs;
use crate::place::workload::Workload;
use crate::planners::kinds::Group;
use good_lp::solvers::microlp::microlp;
use good_lp::{
    Constraint, Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable, constraint,
    variable,
};

/// A program that is being built.
pub(super) struct Program {
    pub vars: ProblemVariables,
    pub rows: Vec<Constraint>,
    /// The objective: the totals of all phases.
    pub total: Expression,
    /// By group and place.
    pub home: Vec<Vec<Variable>>,
    /// By group and class of matrices.
    pub away: Vec<Vec<Variable>>,
    /// Layers' worth of experts, by device.
    pub on_device: Vec<Expression>,
    /// Number of layers with experts, by device.
    pub expert_layers: Vec<Expression>,
    pub arena: Expression,
    pub tables: Variable,
}

impl Program {
    pub fn new(work: &Workload, costs: &Costs, groups: &[Group], variant: Variant, whole: bool) -> Self {
        let mut vars = ProblemVariables::new();
        let tables = vars.add(count(1.0, whole));
        let devices = costs.devices.len();
        let zero = || Expression::from(0.0);
        let in_use = vars.add(variable().min(0.0));
        let mut program = Self {
            vars,
            rows: Vec::new(),
            total: zero(),
            home: Vec::new(),
            away: Vec::new(),
            on_device: vec![zero(); devices],
            expert_layers: vec![zero(); devices],
            arena: zero(),
            tables,
        };
        // Times of a whole phase are in milliseconds, sizes at each place in GiB.
        let mut phases = Phase::all(costs, tables);
        let mut weights = vec![zero(); devices + 1];
        let mut context = vec![zero(); devices + 1];
        let shared = program.shared_cache(costs);
        for group in groups {
            let load = &work.layers[group.layer];
            let layers = group.count as f64;
            let home: Vec<Variable> = (0..=devices).map(|_| program.vars.add(count(layers, whole))).collect();
            program.rows.push(constraint!(sum(&home) == layers));
            for (place, &n) in home.iter().enumerate() {
                for phase in &mut phases {
                    phase.computing += phase.dense(costs, group.layer, place) * TIME * n;
                }
                weights[place] += load.dense as f64 * BYTES * n;
                context[work.context.cache_home(place)] += load.cache as f64 * BYTES * n;
            }
            if group.layer + 1 == work.layers.len() {
                let token = phases.iter_mut().filter(|phase| phase.of.is_none());
                let idle: f64 = costs.idle.iter().sum();
                token.for_each(|phase| phase.reading += idle * TIME * home[0]);
            }
            let mut away = Vec::new();
            for item in group.items.iter().filter(|_| variant.streams) {
                let n = program.vars.add(count(layers, whole));
                program.rows.push(constraint!(n <= home[0]));
                weights[0] -= item.bytes as f64 * BYTES * n;
                for phase in &mut phases {
                    phase.reading += item.seconds * TIME * n;
                    if phase.of.is_none() {
                        phase.reading -= item.idle * TIME * n;
                    }
                    if variant.misses && phase.of.is_none() {
                        phase.computing += item.seconds * TIME * n;
                    }
                }
                let slot = slot_size(item.largest).bytes() as f64 * BYTES;
                program.rows.push(constraint!(in_use >= slot / layers * n));
                away.push(n);
            }
            if let Some(experts) = &load.experts {
                for (place, &n) in home.iter().enumerate() {
                    let bytes = experts.bytes as f64 * BYTES;
                    let count = f64::from(experts.count);
                    let lanes = Lanes {
                        layer: group.layer,
                        place,
                        n,
                        most: layers,
                        count: layers,
                        bytes,
                        experts: count,
                    };
                    let held = program.held(costs, &lanes, &shared, &mut weights, variant);
                    for phase in &mut phases {
                        program.experts(costs, &lanes, &held, phase, variant);
                    }
                }
            }
            program.home.push(home);
            program.away.push(away);
        }
        if whole {
            program.runs(devices);
        }
        for phase in phases {
            let mut computing = phase.computing.clone();
            if whole {
                computing += program.crossings(groups.len(), &phase, devices);
            }
            let total = program.vars.add(variable().min(0.0));
            program.rows.push(constraint!(total >= computing));
            program.rows.push(constraint!(total >= phase.reading));
            program.total += phase.times * total;
        }
        program.capacities(work, costs, variant, &weights, &context, in_use);
        program
    }

    /// Adds the variables of a cache that all layers share, if there are no devices: the share of
    /// each class of experts.
    fn shared_cache(&mut self, costs: &Costs) -> Option<Vec<Variable>> {
        let classes = costs.curve.classes();
        let add = |class: &HotClass| self.vars.add(variable().min(0.0).max(class.experts));
        costs.devices.is_empty().then(|| classes.iter().map(add).collect())
    }

    /// Has devices hold the last layers, each an uninterrupted run of them, as llama.cpp can be told, if each layer is
    /// a group.
    fn runs(&mut self, devices: usize) {
        for pair in self.home.windows(2) {
            self.rows.push(constraint!(pair[0][0] >= pair[1][0]));
        }
        for device in 1..=devices {
            let mut starts = Expression::from(self.home[0][device]);
            for pair in self.home.windows(2) {
                let start = self.vars.add(variable().min(0.0));
                self.rows.push(constraint!(start >= pair[1][device] - pair[0][device]));
                starts += start;
            }
            self.rows.push(constraint!(starts <= 1.0));
        }
    }

    /// Returns the time of transfers between consecutive layers, if each layer is a group; both
    /// ends of the model are in RAM.
    fn crossings(&mut self, layers: usize, phase: &Phase<'_>, devices: usize) -> Expression {
        let mut all = Expression::from(0.0);
        for device in 0..devices {
            let at = |layer: usize| Expression::from(self.home[layer][device + 1]);
            let mut chain: Vec<Expression> = vec![Expression::from(0.0)];
            chain.extend((0..layers).map(at));
            let transfers = phase.transfers[device];
            let used = self.vars.add(variable().min(0.0));
            for layer in &chain[1..] {
                self.rows.push(constraint!(used >= layer.clone()));
            }
            all += transfers.inputs * TIME * used;
            all += transfers.logits * TIME * chain[layers].clone();
            for pair in chain.windows(2) {
                let crossed = self.vars.add(variable().min(0.0));
                self.rows.push(constraint!(crossed >= pair[0].clone() - pair[1].clone()));
                self.rows.push(constraint!(crossed >= pair[1].clone() - pair[0].clone()));
                all += transfers.hop * TIME * crossed;
            }
        }
        all
    }

    fn capacities(
        &mut self,
        work: &Workload,
        costs: &Costs,
        variant: Variant,
        weights: &[Expression],
        context: &[Expression],
        in_use: Variable,
    ) {
        let tables: f64 = work.tables.iter().map(|table| table.bytes as f64 * BYTES).sum();
        let held = weights[0].clone() + self.arena.clone() + tables * (1.0 - self.tables);
        let ring = if variant.streams { work.read_ahead() as f64 * BYTES } else { 0.0 };
        let held = held + in_use + ring;
        let compute = work.context.compute as f64 * BYTES;
        if let Some(budget) = costs.ram_budget {
            self.rows.push(constraint!(held.clone() <= budget as f64 * BYTES));
        }
        let sharing = || (0..costs.devices.len()).filter(|&device| costs.devices[device].shares);
        if costs.ram_budget.is_none() || sharing().next().is_some() {
            let room = costs.ram as f64 * BYTES - compute;
            let shared = |device: usize| weights[device + 1].clone() + context[device + 1].clone();
            let all = sharing().fold(held + context[0].clone(), |all, device| all + shared(device));
            self.rows.push(constraint!(all <= room));
        }
        for (device, cost) in costs.devices.iter().enumerate() {
            let room = (cost.room as f64 * BYTES - compute).max(0.0);
            let used = weights[device + 1].clone() + context[device + 1].clone();
            self.rows.push(constraint!(used <= room));
        }
        let least = work.layers.iter().filter_map(|l| l.experts.as_ref()).map(|e| e.least).max();
        if variant.misses && costs.devices.is_empty() {
            let least = least.unwrap_or(0).min(work.expert_bytes()) as f64 * BYTES;
            self.rows.push(constraint!(self.arena.clone() >= least));
        }
    }

    pub fn solve(self) -> Option<(impl Solution, Read)> {
        let Self { vars, rows, total, .. } = self;
        let solve = |rows: &mut dyn Iterator<Item = &Constraint>| {
            let mut model = vars.clone().minimise(total.clone()).using(microlp);
            for row in rows {
                model.add_constraint(row.clone());
            }
            model.solve()
        };
        // The order of rows decides which ones the solver pivots on, and some orders lead it to a matrix
        // that it cannot invert.
        let solution = match solve(&mut rows.iter()) {
            Err(ResolutionError::Str(_) | ResolutionError::Other(_)) => solve(&mut rows.iter().rev()),
            other => other,
        };
        let read = Read {
            total,
            home: self.home,
            away: self.away,
            on_device: self.on_device,
            expert_layers: self.expert_layers,
            tables: self.tables,
        };
        solution.ok().map(|solution| (solution, read))
    }
}

/// The variables that are read back.
pub(super) struct Read {
    pub total: Expression,
    pub home: Vec<Vec<Variable>>,
    pub away: Vec<Vec<Variable>>,
    pub on_device: Vec<Expression>,
    pub expert_layers: Vec<Expression>,
    pub tables: Variable,
}
