//! Options that this machine cannot follow. Scripts bring them from other machines, and what a measurement
//! finds depends neither on where weights are nor on the number of threads.

use terrace_engine::Options;
use terrace_ggml::devices::devices;
use terrace_plan::RulePlace;

/// Leaves out layers on accelerators if there are none, rules for devices that do not exist, and threads
/// beyond the processors: ggml's threads wait for each other without sleeping.
pub fn adapt(options: &mut Options) {
    let processors = std::thread::available_parallelism().map_or(u32::MAX, |n| n.get() as u32);
    for threads in [&mut options.compute.threads, &mut options.compute.threads_batch] {
        if let Some(asked) = threads.filter(|asked| *asked > processors) {
            tracing::warn!("{processors} threads instead of {asked}: there are no more processors");
            *threads = Some(processors);
        }
    }
    if !options.devices.rpc.is_empty() {
        // Servers are not asked before the load.
        return;
    }
    let devices = devices();
    if !devices.iter().any(|device| device.is_accelerator()) {
        // The command line's warnings name the option.
        options.devices.n_gpu_layers = None;
    }
    options.memory.override_tensor.retain(|rule| match rule.place() {
        RulePlace::Device(name) if !devices.iter().any(|device| device.name() == *name) => {
            tracing::warn!("an --override-tensor rule is left out: there is no device {name}");
            false
        }
        _ => true,
    });
}
