//! Measures kernels with an order of sums of their own.

use super::fast_rates::{attention, has_prompts, products};
use super::measure::{Clock, MeasureError, MeasureOptions, ROUNDS};
use terrace_plan::MachineProfile;

/// Measures products of all types that have such kernels, with these weights, and attention. What there is no time for is left
/// out, but for the first type.
///
/// # Errors
/// It is to stop.
pub fn measure_fast(
    machine: &mut MachineProfile,
    options: &MeasureOptions,
    weights: &[u8],
    clock: &mut Clock<'_, '_>,
) -> Result<(), MeasureError> {
    let (cores, fast) = (machine.cpu.cores, &mut machine.cpu.fast);
    for round in 0..ROUNDS {
        let time = clock.step("CPU, attention of fast kernels")?;
        if let Some(rate) = attention(weights, cores, time / 2) {
            fast.improve_attention(rate);
        }
        let types = options.types.iter().filter(|ty| has_prompts(**ty));
        for (number, &ty) in types.enumerate() {
            if (round > 0 || number > 0) && clock.is_over() {
                return Ok(());
            }
            let time = clock.step(&format!("CPU, {}, fast kernels", ty.name()))?;
            if let Some(rate) = products(ty, weights, cores, time / 2) {
                fast.matmul.entry(ty.name().into()).or_default().improve(&rate);
            }
        }
    }
    Ok(())
}
