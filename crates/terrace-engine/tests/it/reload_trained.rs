//! A trained model: every expert tensor and others in turn, each in another type, compared with
//! fresh loads of files made by the quantiser.

use crate::reloading::{dir, from_file, load, options, original, trace};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_ggml::llama::FileType;
use terrace_model::ByteSize;
use terrace_plan::Manage;
use terrace_quantize::{QuantizeOptions, QuantizePlan, TypeRule};

const TYPES: [&str; 6] = ["q8_0", "q4_0", "q6_K", "f16", "iq4_xs", "q2_K"];

#[test]
fn tensors_of_a_trained_model_change_types_and_return() {
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-moe-Q4_K.gguf");
    let dir = dir();
    let tensors: Vec<String> = (0..6)
        .flat_map(|layer| {
            ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "attn_output"]
                .map(|role| format!("blk.{layer}.{role}.weight"))
        })
        .collect();
    let donors: Vec<(&String, PathBuf)> = tensors
        .iter()
        .zip(TYPES.into_iter().cycle())
        .map(|(tensor, ty)| {
            let rule: TypeRule = format!("^{}$={ty}", tensor.replace('.', "\\.")).parse().unwrap();
            let asked = QuantizeOptions {
                rules: vec![rule],
                allow_requantize: true,
                ..QuantizeOptions::new(&bundled, FileType::COPY)
            };
            let path = dir.path().join(format!("{tensor}.gguf"));
            let plan = QuantizePlan::new(&asked).unwrap();
            plan.write(&path, &mut |_| ControlFlow::Continue(())).unwrap();
            (tensor, path)
        })
        .collect();
    for manage in [Manage::None, Manage::Experts] {
        let mut engine = load(options(&bundled, manage));
        let before = trace(&mut engine);
        for (tensor, donor) in &donors {
            let report = engine.swap(&[from_file(tensor, donor)]).unwrap();
            assert_ne!(report.swapped[0].from, report.swapped[0].to);
            let swapped = trace(&mut engine);
            assert!(swapped == trace(&mut load(options(donor, manage))), "{manage}: {tensor}, {report}");
            assert!(swapped != before, "{manage}: {tensor}");
            let back = engine.swap(&[original(tensor)]).unwrap();
            assert_eq!(back.bytes(), ByteSize::ZERO);
            assert!(trace(&mut engine) == before, "{manage}: {tensor} was not restored");
        }
    }
}
