//! Prompts with images: what is computed is what llama.cpp's own helpers compute with all weights in
//! memory, however the model's weights stream, and whatever is reused.

use crate::budgets::minimum;
use crate::reloading::{dir, load, options, write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_engine::options::{ContextOptions, MemoryOptions, VisionOptions};
use terrace_engine::{
    Engine, EngineError, Image, ImageReadError, Images, Mode, Options, Prompted, Unfit, VisionError,
};
use terrace_ggml::llama::{Batch, Context, LoadParams, Model, Sampling, Token};
use terrace_ggml::testing::params::context_params;
use terrace_ggml::testing::vision::evaluate;
use terrace_ggml::vision::{Bitmap, Projector, ProjectorParams};
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_testkit::{Arch, ProjectorKind, ProjectorSpec, Spec, picture, write_projector};

/// Tokens of the greedy answers.
const ANSWER: usize = 6;

/// Bits of the logits after the prompt, greedy tokens, and bits of the logits after these.
#[derive(Debug, PartialEq)]
struct Trace {
    prompt: Vec<u32>,
    tokens: Vec<i32>,
    end: Vec<u32>,
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// What llama.cpp's own helpers compute, with all weights in memory.
fn stock(model: &Path, projector: &Path, text: &str, images: &[Vec<u8>], ubatch: u32) -> Trace {
    let model = Arc::new(Model::load(model, &LoadParams::default()).unwrap());
    let params = ProjectorParams { threads: 1, least_tokens: None, most_tokens: None };
    let projector = Projector::load(projector, &model, &params).unwrap();
    let params = terrace_ggml::llama::ContextParams { ubatch, outputs: 1, ..context_params(256) };
    let mut context = Context::new(Arc::clone(&model), &params, Arc::new(AtomicBool::new(false))).unwrap();
    let bitmaps: Vec<Bitmap> = images
        .iter()
        .map(|file| {
            let rgb = image::load_from_memory(file).unwrap().into_rgb8();
            Bitmap::new(rgb.width(), rgb.height(), rgb.into_raw()).unwrap()
        })
        .collect();
    let bitmaps: Vec<&Bitmap> = bitmaps.iter().collect();
    let first = evaluate(&projector, &mut context, text, &bitmaps, ubatch);
    let prompt = bits(context.logits().unwrap());
    let mut tokens = Vec::new();
    for position in first.. {
        let logits = context.logits().unwrap();
        let best = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
        tokens.push(i32::try_from(best).unwrap());
        if tokens.len() == ANSWER {
            break;
        }
        let mut batch = Batch::default();
        batch.push(Token(tokens[tokens.len() - 1]), position, [0], true);
        context.decode_batch(&mut batch).unwrap();
    }
    Trace { prompt, tokens, end: bits(context.logits().unwrap()) }
}

fn prompted(engine: &Engine, text: &str, files: &[Vec<u8>]) -> Result<Prompted, EngineError> {
    let mut images = Images::default();
    let mut parts = text.split("<__media__>");
    let mut marked = parts.next().unwrap().to_owned();
    for (part, file) in parts.zip(files) {
        marked += &images.push(file.clone());
        marked += part;
    }
    engine.read_prompt(&marked, &images, true)
}

fn trace(engine: &mut Engine, text: &str, files: &[Vec<u8>]) -> Trace {
    let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
    let prompt = prompted(engine, text, files).unwrap();
    let mut session = engine.session();
    engine.generate_seeing(&mut session, &prompt, Some(0), &Sampling::greedy(), go_on).unwrap();
    let logits = bits(engine.logits().unwrap());
    let mut session = engine.session();
    let answer =
        engine.generate_seeing(&mut session, &prompt, Some(ANSWER), &Sampling::greedy(), go_on).unwrap();
    Trace { prompt: logits, tokens: answer.tokens, end: bits(engine.logits().unwrap()) }
}

const TEXT: &str = "The water <__media__> goes down <__media__> from one terrace to the next, ";

fn files() -> Vec<Vec<u8>> {
    vec![picture(80, 48, 1), picture(40, 90, 2)]
}

fn made(dir: &Path, arch: Arch, kind: ProjectorKind) -> (PathBuf, PathBuf) {
    let spec = Spec::new(arch);
    let model = write(&spec, dir.join("model.gguf"));
    let spec = ProjectorSpec { kind, width: u64::from(spec.embd), seed: 5 };
    (model, write_projector(&spec, dir.join("mmproj.gguf")).unwrap())
}

fn seeing(of: Options, projector: &Path, ubatch: u32) -> Options {
    let vision = VisionOptions { mmproj: Some(projector.into()), ..VisionOptions::default() };
    Options { vision, context: ContextOptions { ubatch: Some(ubatch), ..of.context }, ..of }
}

/// Compares with stock llama.cpp: in memory, and streamed in each way with the least room.
fn compare(arch: Arch, kind: ProjectorKind, ubatch: u32) {
    terrace_testkit::needs_own_process();
    let dir = dir();
    let (model, projector) = made(dir.path(), arch, kind);
    let expected = stock(&model, &projector, TEXT, &files(), ubatch);
    let blank = vec![picture(80, 48, 9), picture(40, 90, 9)];
    assert!(stock(&model, &projector, TEXT, &blank, ubatch).prompt != expected.prompt, "images matter");
    for manage in [Manage::None, Manage::Mapped, Manage::All, Manage::Experts] {
        if manage == Manage::Experts && !arch.is_moe() {
            continue;
        }
        let of = seeing(options(&model, manage), &projector, ubatch);
        let mut engine = load(Options {
            memory: MemoryOptions {
                ram_budget: match manage {
                    Manage::None | Manage::Mapped => Budget::Auto,
                    // A mebibyte or two for the projector.
                    _ => Budget::Bytes(minimum(&model, manage) + ByteSize::mib(256)),
                },
                ..of.memory
            },
            ..of
        });
        assert!(trace(&mut engine, TEXT, &files()) == expected, "{arch}, {kind:?}, {manage}");
    }
    let of = seeing(options(&model, Manage::None), &projector, ubatch);
    let mut engine = load(Options { mode: Mode::Stock { repack: false }, ..of });
    assert!(trace(&mut engine, TEXT, &files()) == expected, "{arch}, {kind:?}, stock");
}

#[test]
fn images_of_one_size_compute_what_llama_cpp_computes() {
    compare(Arch::Llama, ProjectorKind::Mlp, 256);
}

#[test]
fn images_in_parts_compute_what_llama_cpp_computes() {
    compare(Arch::Qwen3Moe, ProjectorKind::Mlp, 24);
}

#[test]
fn images_that_see_themselves_compute_what_llama_cpp_computes() {
    compare(Arch::Gemma4, ProjectorKind::Gemma3, 64);
}

#[test]
fn images_in_three_dimensions_compute_what_llama_cpp_computes() {
    compare(Arch::Qwen35Moe, ProjectorKind::Qwen2Vl, 256);
}

#[test]
fn projectors_of_other_models_and_other_files_are_refused_in_one_line() {
    terrace_testkit::needs_own_process();
    let dir = dir();
    let (model, projector) = made(dir.path(), Arch::Llama, ProjectorKind::Mlp);
    let refused = |file: &Path| {
        let of = seeing(options(&model, Manage::None), file, 64);
        let error = Engine::load(of, &mut |_| ControlFlow::Continue(())).err().expect("a refusal");
        let told = error.to_string();
        assert!(!told.contains('\n'), "{told}");
        told
    };
    let told = refused(&model);
    assert!(told.contains("general.architecture is llama, not clip"), "{told}");
    let spec = ProjectorSpec { kind: ProjectorKind::Mlp, width: 128, seed: 1 };
    let told = refused(&write_projector(&spec, dir.path().join("other.gguf")).unwrap());
    assert!(told.contains("mismatch between text model (n_embd = 256) and mmproj (n_embd = 128)"), "{told}");
    let cut = dir.path().join("cut.gguf");
    let bytes = std::fs::read(&projector).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let told = refused(&cut);
    assert!(told.contains("cut.gguf"), "{told}");
    // It is counted.
    let of = seeing(options(&model, Manage::None), &projector, 64);
    let memory = MemoryOptions { ram_budget: Budget::Bytes(ByteSize(1000)), ..of.memory };
    let error = Engine::load(Options { memory, ..of }, &mut |_| ControlFlow::Continue(())).err().unwrap();
    assert!(matches!(error, EngineError::Unfit(Unfit::ProjectorTooLarge { .. })), "{error}");
}

#[test]
fn images_that_do_not_fit_are_refused_in_one_line() {
    let dir = dir();
    let (model, projector) = made(dir.path(), Arch::Llama, ProjectorKind::Gemma3);
    let engine = load(seeing(options(&model, Manage::None), &projector, 8));
    let told = |files: &[Vec<u8>]| prompted(&engine, "a <__media__> b", files).unwrap_err();
    let error = told(&[picture(64, 64, 1)]);
    assert!(matches!(error, EngineError::Vision(VisionError::TooWide { tokens: 16, most: 8 })), "{error}");
    let error = told(&[vec![1, 2, 3]]);
    assert!(
        matches!(
            error,
            EngineError::Vision(VisionError::Unread { number: 1, reason: ImageReadError::Unknown })
        ),
        "{error}"
    );
    drop(engine);
    let (model, projector) = made(dir.path(), Arch::Llama, ProjectorKind::Mlp);
    let engine = load(seeing(options(&model, Manage::None), &projector, 64));
    let many = vec![picture(8, 8, 1); 5];
    let error = prompted(&engine, &"<__media__>".repeat(5), &many).unwrap_err();
    assert!(matches!(error, EngineError::TextTooLong { least: 320, context: 256, .. }), "{error}");
    let plain = load(options(&model, Manage::None));
    let error = prompted(&plain, "a <__media__>", &[picture(8, 8, 1)]).unwrap_err();
    assert!(matches!(error, EngineError::Vision(VisionError::NoProjector)), "{error}");
}

/// A PNG whose header promises this size, with no pixels.
fn bomb(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = picture(1, 1, 1);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let crc = crc32fast::hash(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&crc.to_be_bytes());
    bytes
}

#[test]
fn hostile_images_cost_no_memory_and_are_named() {
    let good = picture(32, 32, 1);
    assert_eq!(Image::read(&good).unwrap().size(), (32, 32));
    assert_eq!(Image::read(&[]).unwrap_err(), ImageReadError::Unknown);
    assert_eq!(Image::read(b"<svg/>").unwrap_err(), ImageReadError::Unknown);
    for (width, height) in [(50_000, 50_000), (20_000, 1), (1, 20_000), (5000, 5000), (u32::MAX, u32::MAX)] {
        let error = Image::read(&bomb(width, height)).unwrap_err();
        let named = matches!(
            error,
            ImageReadError::TooLarge { .. } | ImageReadError::Damaged(_) | ImageReadError::Memory
        );
        assert!(named, "{width} x {height}: {error}");
    }
    assert!(matches!(Image::read(&vec![0; 33 << 20]).unwrap_err(), ImageReadError::TooLong { .. }));
    // Cut anywhere, or with any byte changed, it is an image or an error.
    for cut in 0..good.len() {
        assert!(Image::read(&good[..cut]).is_err() || cut + 12 >= good.len(), "cut at {cut}");
        let mut changed = good.clone();
        changed[cut] ^= 0x55;
        let _ = Image::read(&changed);
    }
}
