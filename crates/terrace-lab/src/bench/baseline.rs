//! The ways of running stock llama.cpp that a bench compares with.

use std::fmt;
use std::str::FromStr;
use terrace_ggml::devices::devices;
use terrace_model::ModelFile;
use terrace_plan::model::expert_groups;

/// The runs that `--baseline` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baselines(Vec<Asked>);

/// One baseline as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The CPU; on a machine with accelerators also the best splits.
    Auto,
    /// Everything in RAM, computed by the CPU.
    Cpu,
    /// The best splits: everything on devices if that fits, otherwise all others.
    Best,
    /// Everything on devices.
    Full,
    /// All layers on devices, all experts in RAM.
    CpuMoe,
    /// All layers on devices, the experts of the first ones in RAM: this many, or as few as fit.
    NCpuMoe(Option<u32>),
    /// The last layers on devices: this many, or as many as fit.
    Layers(Option<u32>),
}

/// Text that names no baseline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of auto, cpu, best, full, cpu-moe, n-cpu-moe, n-cpu-moe:N, ngl and ngl:N")]
pub struct ParseBaselineError(String);

impl FromStr for Baselines {
    type Err = ParseBaselineError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let one = |part: &str| {
            let bad = || ParseBaselineError(part.to_owned());
            let (name, count) = match part.split_once(':') {
                Some((name, count)) => (name, Some(count.parse::<u32>().map_err(|_| bad())?)),
                None => (part, None),
            };
            match (name, count) {
                ("auto", None) => Ok(Asked::Auto),
                ("cpu", None) => Ok(Asked::Cpu),
                ("best", None) => Ok(Asked::Best),
                ("full", None) => Ok(Asked::Full),
                ("cpu-moe", None) => Ok(Asked::CpuMoe),
                ("n-cpu-moe", count) => Ok(Asked::NCpuMoe(count)),
                ("ngl", count) => Ok(Asked::Layers(count)),
                _ => Err(bad()),
            }
        };
        text.split(',').map(|part| one(part.trim())).collect::<Result<_, _>>().map(Self)
    }
}

/// Stock llama.cpp's use of the machine's devices, as its own options say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockSplit {
    /// Number of last layers on devices, the output head counted as one (`-ngl`).
    pub layers: u32,
    /// Number of first layers whose experts stay in RAM all the same (`--n-cpu-moe`).
    pub cpu_moe: u32,
}

/// A stock run: the CPU alone, or a split between RAM and devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stock {
    /// Name in tables.
    pub name: String,
    /// Weights on devices; `None` for the CPU alone.
    pub split: Option<StockSplit>,
}

impl fmt::Display for Stock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// Returns true if stock llama.cpp would find an accelerator in this machine.
pub fn has_accelerator() -> bool {
    devices().into_iter().any(|device| device.is_accelerator())
}

/// The parts of a model that splits are about.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of layers without the output head.
    pub layers: u32,
    /// True if it has routed experts.
    pub experts: bool,
}

impl Shape {
    /// Reads the shape from a model's header.
    pub fn of(model: &ModelFile) -> Self {
        let last = model.tensors.iter().filter_map(|tensor| tensor.layer()).max();
        Self { layers: last.map_or(0, |layer| layer.0 + 1), experts: !expert_groups(model).is_empty() }
    }

    const fn all(self) -> u32 {
        self.layers + 1
    }

    fn full(self) -> Stock {
        Stock { name: "stock full".into(), split: Some(StockSplit { layers: self.all(), cpu_moe: 0 }) }
    }

    fn cpu_moe(self) -> Stock {
        let split = StockSplit { layers: self.all(), cpu_moe: self.layers };
        Stock { name: "stock cpu-moe".into(), split: Some(split) }
    }

    fn n_cpu_moe(self, n: u32) -> Stock {
        let split = StockSplit { layers: self.all(), cpu_moe: n.min(self.layers) };
        Stock { name: format!("stock n-cpu-moe {n}"), split: Some(split) }
    }

    fn some_layers(self, n: u32) -> Stock {
        Stock { name: format!("stock ngl {n}"), split: Some(StockSplit { layers: n, cpu_moe: 0 }) }
    }
}

impl Baselines {
    /// Returns the stock runs to compare with. `fits` tries one, and says whether memory held it;
    /// numbers that are not given are searched for with it.
    ///
    /// # Errors
    /// Those of `fits`.
    pub fn runs<E>(
        &self,
        shape: Shape,
        has_accelerator: bool,
        fits: &mut dyn FnMut(&Stock) -> Result<bool, E>,
    ) -> Result<Vec<Stock>, E> {
        let cpu = || Stock { name: "stock".into(), split: None };
        let mut all: Vec<Stock> = Vec::new();
        for asked in &self.0 {
            let found = match *asked {
                Asked::Auto if has_accelerator => [vec![cpu()], best(shape, fits)?].concat(),
                Asked::Auto | Asked::Cpu => vec![cpu()],
                Asked::Best => best(shape, fits)?,
                Asked::Full => vec![shape.full()],
                Asked::CpuMoe => vec![shape.cpu_moe()],
                Asked::NCpuMoe(Some(n)) => vec![shape.n_cpu_moe(n)],
                Asked::NCpuMoe(None) => fewest_experts_in_ram(shape, fits)?.into_iter().collect(),
                Asked::Layers(Some(n)) => vec![shape.some_layers(n)],
                Asked::Layers(None) => most_layers(shape, fits)?.into_iter().collect(),
            };
            for stock in found {
                if !all.contains(&stock) {
                    all.push(stock);
                }
            }
        }
        Ok(all)
    }
}

fn best<E>(shape: Shape, fits: &mut dyn FnMut(&Stock) -> Result<bool, E>) -> Result<Vec<Stock>, E> {
    if fits(&shape.full())? {
        return Ok(vec![shape.full()]);
    }
    let mut all = Vec::new();
    if shape.experts && fits(&shape.cpu_moe())? {
        all.push(shape.cpu_moe());
        all.extend(
            fewest_experts_in_ram(shape, fits)?.filter(|stock| *stock != shape.n_cpu_moe(shape.layers)),
        );
    }
    all.extend(most_layers(shape, fits)?);
    Ok(all)
}

fn fewest_experts_in_ram<E>(
    shape: Shape,
    fits: &mut dyn FnMut(&Stock) -> Result<bool, E>,
) -> Result<Option<Stock>, E> {
    let most = most(shape.layers, &mut |on_devices| fits(&shape.n_cpu_moe(shape.layers - on_devices)))?;
    Ok(most.map(|on_devices| shape.n_cpu_moe(shape.layers - on_devices)))
}

fn most_layers<E>(shape: Shape, fits: &mut dyn FnMut(&Stock) -> Result<bool, E>) -> Result<Option<Stock>, E> {
    let most = most(shape.all(), &mut |layers| {
        if layers == 0 { Ok(true) } else { fits(&shape.some_layers(layers)) }
    })?;
    Ok(most.filter(|&layers| layers > 0).map(|layers| shape.some_layers(layers)))
}

/// Returns the most of 0 to `all` that fits, if less always does where more does; `None` if not even
/// 0 does.
fn most<E>(all: u32, fits: &mut dyn FnMut(u32) -> Result<bool, E>) -> Result<Option<u32>, E> {
    if fits(all)? {
        return Ok(Some(all));
    }
    if !fits(0)? {
        return Ok(None);
    }
    let (mut low, mut high) = (0, all);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Some(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const MIXTURE: Shape = Shape { layers: 48, experts: true };

    /// The runs on a device that holds `room` layers' experts beside what is dense, or a layer each
    /// 10 % larger than its experts; with the number of trials.
    fn runs(text: &str, shape: Shape, room: f64) -> (Vec<String>, usize) {
        let mut trials = 0;
        let mut fits = |stock: &Stock| {
            trials += 1;
            let StockSplit { layers, cpu_moe } = stock.split.unwrap();
            let experts = layers.saturating_sub(1 + cpu_moe.saturating_sub(shape.layers + 1 - layers));
            Ok::<bool, Infallible>(f64::from(experts) + 0.1 * f64::from(layers) <= room)
        };
        let Ok(found) = text.parse::<Baselines>().unwrap().runs(shape, true, &mut fits);
        (found.into_iter().map(|stock| stock.name).collect(), trials)
    }

    #[test]
    fn stocks_best_is_searched_for() {
        assert_eq!(runs("best", MIXTURE, 60.0), (vec!["stock full".into()], 1));
        let (names, trials) = runs("auto", MIXTURE, 20.0);
        assert_eq!(names, ["stock", "stock cpu-moe", "stock n-cpu-moe 33", "stock ngl 19"]);
        assert!(trials < 20, "{trials}");
        let (names, _) = runs("best", MIXTURE, 4.95);
        assert_eq!(names, ["stock cpu-moe", "stock ngl 5"], "with all experts in RAM it is cpu-moe");
        assert_eq!(runs("best", MIXTURE, 0.0).0, Vec::<String>::new());
        let dense = Shape { experts: false, ..MIXTURE };
        assert_eq!(runs("best", dense, 20.0).0, ["stock ngl 19"]);
    }

    #[test]
    fn what_is_named_is_not_searched_for() {
        let (names, trials) = runs("cpu,n-cpu-moe:7,ngl:3,cpu", MIXTURE, 0.0);
        assert_eq!(
            (names, trials),
            (vec!["stock".into(), "stock n-cpu-moe 7".into(), "stock ngl 3".into()], 0)
        );
        let Ok(plain) =
            "auto".parse::<Baselines>().unwrap().runs(MIXTURE, false, &mut |_| Ok::<_, Infallible>(false));
        assert_eq!(plain, [Stock { name: "stock".into(), split: None }]);
        for text in ["", "gpu", "ngl:all", "cpu:1", "cpu,"] {
            assert!(text.parse::<Baselines>().unwrap_err().to_string().contains("n-cpu-moe:N"), "{text}");
        }
    }
}
