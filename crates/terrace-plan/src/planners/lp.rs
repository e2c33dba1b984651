//! The assignment as a linear program. The only file that uses a solver.
//!
//! Identical layers form one group, so models of any depth are small programs. Each group has these
//! variables: `home[p]`, the number of its layers at home at place `p`; `away[c]`, the number of
//! layers of which a class `c` of matrices is streamed; and by home and class of hotness, how many
//! layers' worth of experts are on the device and in RAM. Everything else follows: a layer's
//! experts take the longest of computing on the device, with what is sent to it, computing in RAM, and
//! reading those that are in neither (`slowest`, constrained to be at least each of them). A token takes the longer of
//! all layers in sequence and all reading. So does each graph of the prompt, with costs of its own;
//! the program minimises the prompt and all tokens after it.
//!
//! Solved in fractions ([`relaxed`]) it is a lower bound of every assignment: the hit curve
//! consists of the same classes, and transfers between layers are left out. With one group per
//! layer and whole numbers ([`exact`]) it finds the best assignment itself, for models that are
//! small enough.

use super::complete::Outline;
use super::kinds::{Group, grouped, merged, single};
use crate::model::working_set::slot_size;
use crate::place::assignment::Assignment;
use crate::place::batch::BatchCosts;
use crate::place::costs::Costs;
use crate::place::transfers::Transfers;
use crate::place::workload::Workload;
use crate::wishes::HotClass;
use good_lp::solvers::microlp::microlp;
use good_lp::{Expression, ProblemVariables, Solution, SolverModel, Variable, constraint, variable};

/// Units that keep the program's numbers near one: GiB and milliseconds.
const BYTES: f64 = 1.0 / (1u64 << 30) as f64;
const TIME: f64 = 1e3;

/// With more yes-or-no decisions than this, the program in whole numbers is not tried.
pub const EXACT_DECISIONS: usize = 16;

/// Whether matrices may be streamed, and whether experts may be missing from RAM. Each variant
/// needs fixed amounts of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant {
    /// Matrices may be streamed, and slots for them are reserved.
    streams: bool,
    /// Experts may be missing, and slots for those of a token are reserved.
    misses: bool,
}

const VARIANTS: [Variant; 4] = [
    Variant { streams: false, misses: false },
    Variant { streams: false, misses: true },
    Variant { streams: true, misses: false },
    Variant { streams: true, misses: true },
];

/// With more kinds of layers than this the solver would take seconds (5.4 s for 94 kinds on two
/// devices). Similar layers are then treated as equal, and the result is not a bound any more.
const MOST_KINDS: usize = 16;

/// The best assignment in fractions.
#[derive(Clone, Debug, PartialEq)]
pub struct Relaxed {
    /// Lower bound of the seconds of what is expected, of this variant; `None` if similar layers were treated
    /// as equal.
    pub seconds: Option<f64>,
    /// Number of layers on each device.
    pub layers: Vec<f64>,
    /// Share of its layers' experts that each device holds.
    pub hot: Vec<f64>,
    /// Bytes of streamed matrices.
    pub streamed: f64,
    /// Streamed share of the tables.
    pub tables: f64,
}

impl Relaxed {
    /// Returns the outlines nearest to it.
    pub fn outlines(&self, work: &Workload) -> Vec<Outline> {
        let mut outlines = Vec::new();
        let devices = self.layers.len();
        // The layers of each device are rounded down or up.
        for rounding in 0..1u32 << devices {
            let layers: Vec<usize> = (0..devices)
                .map(|d| (self.layers[d] + 1e-6).floor() as usize + usize::from(rounding >> d & 1 == 1))
                .collect();
            let Some(left) = work.layers.len().checked_sub(layers.iter().sum()) else { continue };
            let sizes: Vec<u64> =
                work.matrices.iter().filter(|m| m.layer < left).map(|matrix| matrix.bytes).collect();
            let (mut streamed, mut bytes) = (0, 0.0);
            while streamed < sizes.len() && bytes + 1.0 < self.streamed {
                bytes += sizes[streamed] as f64;
                streamed += 1;
            }
            for tables_streamed in [false, true] {
                for hot in [1.0, 0.97, 0.9] {
                    let hot: Vec<f64> = self.hot.iter().map(|share| share * hot).collect();
                    for more in 0..3 {
                        let streamed = (streamed + more).min(sizes.len());
                        outlines.push(Outline {
                            layers: layers.clone(),
                            hot: hot.clone(),
                            streamed,
                            tables_streamed,
                        });
                    }
                }
            }
        }
        outlines
    }
}

/// Solves for the best assignments in fractions, one for each variant that fits.
pub fn relaxed(work: &Workload, costs: &Costs) -> Vec<Relaxed> {
    let mut groups = grouped(work, costs);
    let alike = groups.len() <= MOST_KINDS;
    if !alike {
        groups = merged(work, groups);
    }
    let solve = |&variant: &Variant| {
        let (solution, read) = Program::new(work, costs, &groups, variant, false).solve()?;
        let seconds = alike.then(|| solution.eval(&read.total) / TIME);
        Some(read_relaxed(costs, &groups, &solution, &read, seconds))
    };
    VARIANTS.iter().filter_map(solve).collect()
}

/// Returns whether [`exact`] is worth trying: there are few decisions, and no experts on devices.
pub fn is_small(work: &Workload, costs: &Costs) -> bool {
    let homes = work.layers.len() * costs.devices.len();
    let experts_on_devices = work.experts.is_some() && !costs.devices.is_empty();
    !experts_on_devices && homes + work.matrices.len() <= EXACT_DECISIONS
}

/// Solves for the best assignment of a small model; `None` if nothing fits or the solver fails. With
/// experts it is the best for caches that hit as the curve says, and near the best for others.
pub fn exact(work: &Workload, costs: &Costs) -> Option<(Assignment, f64)> {
    let groups = single(work, costs);
    let mut best: Option<(Assignment, f64)> = None;
    for variant in VARIANTS {
        let Some((solution, read)) = Program::new(work, costs, &groups, variant, true).solve() else {
            continue;
        };
        let Some(assignment) = read_whole(work, costs, &groups, &solution, &read) else { continue };
        let seconds = assignment.seconds(work, costs);
        if best.as_ref().is_none_or(|(_, least)| seconds < *least) {
            best = Some((assignment, seconds));
        }
    }
    best
}

/// A program that is being built.
struct Program {
    vars: ProblemVariables,
    rows: Vec<good_lp::Constraint>,
    /// What is minimised: the totals of all phases.
    total: Expression,
    /// By group and place.
    home: Vec<Vec<Variable>>,
    /// By group and class of matrices.
    away: Vec<Vec<Variable>>,
    /// Layers' worth of experts, by device.
    on_device: Vec<Expression>,
    /// Number of layers with experts, by device.
    expert_layers: Vec<Expression>,
    arena: Expression,
    tables: Variable,
}

impl Program {
    fn new(work: &Workload, costs: &Costs, groups: &[Group], variant: Variant, whole: bool) -> Self {
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

    /// Adds the variables of a group's experts at one home: how many are on the device and in RAM,
    /// by class.
    fn held(
        &mut self,
        costs: &Costs,
        lanes: &Lanes,
        shared: &Option<Vec<Variable>>,
        weights: &mut [Expression],
        variant: Variant,
    ) -> Held {
        let &Lanes { place, n, most, count, bytes, .. } = lanes;
        let zero = || Expression::from(0.0);
        let mut held = Held { uses: zero(), share: zero(), both: zero(), hits: zero() };
        for (index, class) in costs.curve.classes().iter().enumerate() {
            let width = class.experts * most;
            let slope = class.uses / class.experts;
            let mut both = zero();
            if place > 0 {
                let z = self.vars.add(variable().min(0.0).max(width));
                held.uses += slope * z;
                held.share += z;
                both += z;
            }
            // Without devices the group uses the shared cache.
            match shared {
                Some(cache) => both += count * cache[index],
                None => both += self.vars.add(variable().min(0.0).max(width)),
            }
            held.hits += slope * both.clone();
            held.both += both.clone();
            if variant.misses {
                self.rows.push(constraint!(both.clone() <= class.experts * n));
            } else {
                self.rows.push(constraint!(both.clone() == class.experts * n));
            }
            self.arena += bytes * both;
        }
        self.arena -= bytes * held.share.clone();
        if place > 0 {
            weights[place] += bytes * held.share.clone();
            self.on_device[place - 1] += held.share.clone();
            self.expert_layers[place - 1] += n;
        }
        held
    }

    /// Adds the times of a group's experts at one home to a phase: of the slowest processor, of
    /// transfers, and of reading missing experts.
    fn experts(
        &mut self,
        costs: &Costs,
        lanes: &Lanes,
        held: &Held,
        phase: &mut Phase<'_>,
        variant: Variant,
    ) {
        let &Lanes { layer, place, n, .. } = lanes;
        let Held { uses, share, both, hits } = held;
        let slowest = self.vars.add(variable().min(0.0));
        // The device that computes some: the home, or that of transit slots.
        let lane = costs.lane_without_copies(place).filter(|_| variant.misses);
        let lane = lane.or(Some(place).filter(|&place| place > 0));
        let divided = phase.of.zip(lane).filter(|_| costs.paths.copies);
        let divided = divided.and_then(|(batch, lane)| self.divided(costs, lanes, held, batch, lane));
        let sent = match (phase.of, lane) {
            (None, Some(lane)) => self.sent(costs, lanes, held, lane),
            _ => Expression::from(0.0),
        };
        let mut least = |of: Expression| self.rows.push(constraint!(slowest >= TIME * of));
        let missed = match phase.of {
            None => {
                let cost = &costs.layers[layer];
                least(cost.experts[0] * (n - uses.clone() - sent.clone()));
                if let Some(lane) = lane {
                    let sending = cost.sending.get(lane - 1).map_or(0.0, |sending| sending.all);
                    least(cost.experts[lane] * (uses.clone() + sent.clone()) + sending * sent);
                }
                cost.miss * (n - hits.clone())
            }
            Some(batch) => {
                let experts = batch.layers[layer].experts.as_ref().expect("a layer with experts");
                // ggml copies memory that is not slots.
                let in_ram = experts.in_ram(!variant.misses);
                if let (Some(Divided { uses, all, bus }), Some(lane)) = (divided, lane) {
                    // Activations that cross the bus are left out: none do if all experts are there.
                    let bounds = experts.bounds(lane);
                    least(bounds.uses * uses + bus.clone());
                    least(bounds.held * all.clone() + bus);
                    // A layer whose copies are not used takes as long as in RAM.
                    least(bounds.rest_uses.min(in_ram) * (n - uses));
                    least(bounds.rest_held.min(in_ram) * (n - all));
                } else if place == 0 {
                    least(in_ram * n);
                } else {
                    let there = experts.lanes[place].seconds(1.0, 1.0).min(in_ram);
                    least(in_ram * (n - share.clone()) + there * share.clone());
                }
                experts.read * (n - both.clone())
            }
        };
        least(missed.clone());
        phase.computing += slowest;
        phase.reading += TIME * missed;
        if place > 0 {
            phase.computing += phase.transfers[place - 1].experts * TIME * (n - share.clone());
        }
    }

    /// Adds the variable of a token's experts that are sent to the lane at a device: the uses of experts
    /// in RAM, if it has copies or transit slots without them.
    fn sent(&mut self, costs: &Costs, lanes: &Lanes, held: &Held, lane: usize) -> Expression {
        let &Lanes { layer, most, .. } = lanes;
        if costs.layers[layer].sending.is_empty() {
            return Expression::from(0.0);
        }
        let sent = self.vars.add(variable().min(0.0).max(most));
        self.rows.push(constraint!(sent + held.uses.clone() <= held.hits.clone()));
        self.only_with_slots(costs, lanes, held, lane, sent);
        sent.into()
    }

    /// Without copies, nothing is sent to a device that has no transit slots beside everything else.
    fn only_with_slots(&mut self, costs: &Costs, lanes: &Lanes, held: &Held, lane: usize, sent: Variable) {
        if !costs.devices[lane - 1].alone {
            self.rows.push(constraint!(sent <= lanes.experts * held.share.clone()));
        }
    }

    /// Adds the variables of a graph's division of experts between the lane at a device and the CPU. The
    /// lane computes with copies, not more than it has, and with what is sent to it if it has transit
    /// slots, and has no more uses than as many of the hottest experts.
    fn divided(
        &mut self,
        costs: &Costs,
        lanes: &Lanes,
        held: &Held,
        batch: &BatchCosts,
        lane: usize,
    ) -> Option<Divided> {
        let &Lanes { layer, n, most, .. } = lanes;
        let device = lane - 1;
        let experts = batch.layers[layer].experts.as_ref()?;
        let mut add = || self.vars.add(variable().min(0.0).max(most));
        let (uses, copies) = (add(), add());
        let (mut all, mut bus) = (Expression::from(copies), Expression::from(0.0));
        if let Some(sending) = &experts.sending {
            let sent = add();
            all += sent;
            bus += sending[device] * sent;
            self.only_with_slots(costs, lanes, held, lane, sent);
        }
        self.rows.push(constraint!(copies <= held.share.clone()));
        self.rows.push(constraint!(all.clone() <= n));
        let mut below = HotClass { experts: 0.0, uses: 0.0 };
        for class in costs.curve.classes() {
            let slope = class.uses / class.experts;
            let line = (below.uses - slope * below.experts) * n + slope * all.clone();
            self.rows.push(constraint!(uses <= line));
            below = HotClass { experts: below.experts + class.experts, uses: below.uses + class.uses };
        }
        Some(Divided { uses, all, bus })
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
        match costs.ram_budget {
            Some(budget) => self.rows.push(constraint!(held <= budget as f64 * BYTES)),
            None => {
                let room = costs.ram as f64 * BYTES - compute;
                self.rows.push(constraint!(held + context[0].clone() <= room));
            }
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

    fn solve(self) -> Option<(impl Solution, Read)> {
        let Self { vars, rows, total, .. } = self;
        let mut model = vars.minimise(total.clone()).using(microlp);
        for row in rows {
            model.add_constraint(row);
        }
        let read = Read {
            total,
            home: self.home,
            away: self.away,
            on_device: self.on_device,
            expert_layers: self.expert_layers,
            tables: self.tables,
        };
        model.solve().ok().map(|solution| (solution, read))
    }
}

/// The variables that are read back.
struct Read {
    total: Expression,
    home: Vec<Vec<Variable>>,
    away: Vec<Vec<Variable>>,
    on_device: Vec<Expression>,
    expert_layers: Vec<Expression>,
    tables: Variable,
}

/// Reads a solution in fractions.
fn read_relaxed(
    costs: &Costs,
    groups: &[Group],
    solution: &impl Solution,
    read: &Read,
    seconds: Option<f64>,
) -> Relaxed {
    let devices = 0..costs.devices.len();
    let layers = |device: usize| read.home.iter().map(|home| solution.value(home[device + 1])).sum();
    let hot = |device: usize| {
        let layers = solution.eval(&read.expert_layers[device]);
        if layers > 1e-6 { (solution.eval(&read.on_device[device]) / layers).clamp(0.0, 1.0) } else { 0.0 }
    };
    let streamed = groups.iter().zip(&read.away).flat_map(|(group, away)| group.items.iter().zip(away));
    Relaxed {
        seconds,
        layers: devices.clone().map(layers).collect(),
        hot: devices.map(hot).collect(),
        streamed: streamed.map(|(item, &n)| item.bytes as f64 * solution.value(n)).sum(),
        tables: solution.value(read.tables),
    }
}

/// Reads a solution in whole numbers as an assignment.
fn read_whole(
    work: &Workload,
    costs: &Costs,
    groups: &[Group],
    solution: &impl Solution,
    read: &Read,
) -> Option<Assignment> {
    let yes = |variable: Variable| solution.value(variable) > 0.5;
    let mut assignment = Assignment::resident(work);
    for (group, home) in groups.iter().zip(&read.home) {
        assignment.homes[group.layer] = home.iter().position(|&n| yes(n))?;
    }
    for (item, &n) in groups.iter().zip(&read.away).flat_map(|(group, away)| group.items.iter().zip(away)) {
        assignment.streamed[item.matrix] = yes(n);
    }
    assignment.tables_streamed = yes(read.tables);
    assignment.with_leftover(work, costs)
}

/// Layers of a group at one home.
struct Lanes {
    /// Index of one of them.
    layer: usize,
    place: usize,
    n: Variable,
    most: f64,
    /// Number of layers of the group.
    count: f64,
    /// GiB of one layer's experts, and their number.
    bytes: f64,
    experts: f64,
}

/// Where experts of a group at one home are, in layers' worth of experts or of their uses.
struct Held {
    /// Uses of those on the device.
    uses: Expression,
    /// Those on the device.
    share: Expression,
    /// Those on the device or in RAM.
    both: Expression,
    /// Uses of these.
    hits: Expression,
}

/// How a graph's experts are divided between a lane and the CPU, in layers' worth.
struct Divided {
    /// Uses that the lane computes.
    uses: Variable,
    /// Experts that it computes with.
    all: Expression,
    /// Seconds of sending those that it has no copies of.
    bus: Expression,
}

/// A part of the expected work: the decoding of a token, or a graph of the prompt.
struct Phase<'a> {
    /// The graph; `None` for a token.
    of: Option<&'a BatchCosts>,
    /// How often it is computed.
    times: f64,
    /// Seconds of what it moves, by device.
    transfers: Vec<Transfers>,
    /// Milliseconds of all layers in sequence.
    computing: Expression,
    /// Milliseconds of reading.
    reading: Expression,
}

impl<'a> Phase<'a> {
    fn all(costs: &'a Costs, tables: Variable) -> Vec<Self> {
        let phase = |of: Option<&'a BatchCosts>, times, rows: f64, transfers| {
            let rows = Expression::from(0.0) + rows * TIME * tables;
            Self { of, times, transfers, computing: rows.clone(), reading: rows }
        };
        let transfers = costs.devices.iter().map(|device| device.transfers).collect();
        let token = phase(None, costs.output, costs.rows, transfers);
        let graph =
            |batch: &'a BatchCosts| phase(Some(batch), batch.times, batch.rows, batch.transfers.clone());
        [token].into_iter().chain(costs.batches.iter().map(graph)).collect()
    }

    fn dense(&self, costs: &Costs, layer: usize, place: usize) -> f64 {
        let described = place.checked_sub(1).map_or(0.0, |device| self.transfers[device].layer);
        let computed = match self.of {
            None => costs.layers[layer].dense[place],
            Some(batch) => batch.layers[layer].dense[place],
        };
        computed + described
    }
}

fn count(most: f64, whole: bool) -> good_lp::VariableDefinition {
    let count = variable().min(0.0).max(most);
    if whole { count.integer() } else { count }
}

fn sum(variables: &[Variable]) -> Expression {
    variables.iter().map(|&v| Expression::from(v)).sum()
}
