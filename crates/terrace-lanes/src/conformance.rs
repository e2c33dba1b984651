//! Work of every lane with a job, on a stand-in for a device: the lanes' conformance suite.

use super::device::DeviceLane;
use super::divided::DividedLane;
use super::lane::Lane;
use super::parcels::Parcel;
use std::ops::Range;
use std::sync::Arc;
use terrace_backend::MATRICES;
use terrace_ggml::DataType;
use terrace_ggml::devices::experts::{LayerKey, Recipe, RowSpan, SlotShape};
use terrace_ggml::testing::stand_in::stand_in;
use terrace_model::{ByteSize, LayerId};

const EMBD: usize = 64;
const FFN: usize = 96;
const EXPERTS: usize = 12;
/// Pairs of a token.
const MAX_PAIRS: usize = 16;
/// Room for activations of 24 pairs: rows in, between and out, with the alignment of tensors.
const ACTIVATIONS: ByteSize = ByteSize((24 * 4 * (2 * EMBD + FFN + 2) + 512) as u64);
const EXPERT: usize = 2 * EMBD * FFN * 4;

/// Two products without anything in between: `down * (up * x)`.
fn recipe() -> Arc<Recipe> {
    let middle = RowSpan { value: 0, skip: 0, width: FFN };
    Arc::new(Recipe { first: vec![0], steps: Vec::new(), middle, down: 1, tables: Vec::new() })
}

fn shapes() -> [SlotShape; 2] {
    let (embd, ffn) = (EMBD as u64, FFN as u64);
    [
        SlotShape { ty: DataType::F32, inner: embd, rows: ffn },
        SlotShape { ty: DataType::F32, inner: ffn, rows: embd },
    ]
}

/// Small whole numbers, whose sums are exact in any order.
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let mut state = seed as u64 * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % 7) as f32 - 3.0
    };
    (0..count).map(|_| next()).collect()
}

fn matrices(expert: usize) -> [Vec<f32>; 2] {
    [numbers(expert + 100, EMBD * FFN), numbers(expert + 200, EMBD * FFN)]
}

fn product(matrix: &[f32], x: &[f32]) -> Vec<f32> {
    matrix.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

fn expected(expert: usize, row: &[f32]) -> Vec<f32> {
    let [up, down] = matrices(expert);
    product(&down, &product(&up, row))
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A job: experts with copies with their numbers of pairs, and experts to be copied with theirs.
struct Case<'a> {
    copies: &'a [(usize, usize)],
    sent: &'a [(usize, usize)],
}

/// Runs a job of a prompt, and asserts that its results are right.
fn prompt(lane: &mut dyn Lane, layer: LayerKey, slot_of: &[i32], case: &Case<'_>) {
    let rows = numbers(7, 40 * EMBD);
    let job = lane.job();
    (job.layer, job.chunked) = (Some(layer), true);
    job.rows.clone_from(&rows);
    job.inputs.clear();
    job.slots.clear();
    job.experts.clear();
    job.sent.clear();
    job.copies.clear();
    job.sizes = vec![EMBD * FFN * 4; 2];
    let mut pairs = 0..;
    let mut add = |&(expert, count): &(usize, usize)| -> Range<usize> {
        let from = job.inputs.len();
        for pair in pairs.by_ref().take(count) {
            job.inputs.push(pair * 13 % 40);
            job.slots.push(slot_of[expert]);
            job.experts.push(expert as i32);
        }
        from..job.inputs.len()
    };
    for expert in case.copies {
        add(expert);
    }
    let ranges: Vec<Range<usize>> = case.sent.iter().map(add).collect();
    job.copied = case.copies.iter().map(|(_, count)| count).sum();
    job.sent = ranges;
    let count = job.inputs.len();
    job.out.clear();
    job.out.resize(count * EMBD, f32::NAN);
    let (inputs, experts) = (job.inputs.clone(), job.experts.clone());
    lane.start();
    let in_memory: Vec<[Vec<f32>; 2]> = case.sent.iter().map(|&(expert, _)| matrices(expert)).collect();
    // They become ready in another order.
    for (sent, [up, down]) in in_memory.iter().enumerate().rev() {
        let mut addresses = [0; MATRICES];
        (addresses[0], addresses[1]) = (up.as_ptr() as usize, down.as_ptr() as usize);
        lane.parcels().unwrap().send(Parcel { id: 100 + sent, sent, addresses });
    }
    if let Some(parcels) = lane.parcels() {
        parcels.close();
    }
    let job = lane.finish().unwrap();
    assert_eq!(job.copied_for_it().1, (case.sent.len() * EXPERT) as u64);
    for (pair, out) in job.out.chunks_exact(EMBD).enumerate() {
        let row = inputs[pair] as usize;
        let wanted = expected(experts[pair] as usize, &rows[row * EMBD..][..EMBD]);
        assert_eq!(out, wanted, "pair {pair} of {count}");
    }
    if let Some(parcels) = lane.parcels() {
        let mut copied = Vec::new();
        assert!(!parcels.copied(&mut copied, false, || false), "the job has ended");
        let all: Vec<usize> = (0..case.sent.len()).rev().map(|sent| 100 + sent).collect();
        assert_eq!(copied, all);
    }
}

/// Runs a token's job with a row for each pair, or one for all.
fn token(lane: &mut dyn Lane, layer: LayerKey, slot_of: &[i32], experts: &[usize], shared: bool) {
    let rows = numbers(9, if shared { 1 } else { experts.len() } * EMBD);
    let job = lane.job();
    (job.layer, job.chunked) = (Some(layer), false);
    job.rows.clone_from(&rows);
    job.inputs.clear();
    job.slots = experts.iter().map(|&expert| slot_of[expert]).collect();
    job.experts = experts.iter().map(|&expert| expert as i32).collect();
    job.out.clear();
    job.out.resize(experts.len() * EMBD, f32::NAN);
    lane.start();
    let job = lane.finish().unwrap();
    for ((pair, out), &expert) in job.out.chunks_exact(EMBD).enumerate().zip(experts) {
        let row = if shared { 0 } else { pair };
        assert_eq!(out, expected(expert, &rows[row * EMBD..][..EMBD]), "pair {pair}");
    }
}

/// A layer with copies of the first experts, in slots in reverse order.
fn with_copies(lane: &mut dyn Lane, copies: usize) -> (LayerKey, Vec<i32>) {
    let layer = lane.add(LayerId(0), &shapes(), copies as u32).unwrap();
    let slot_of: Vec<i32> = (0..EXPERTS).map(|expert| copies as i32 - 1 - expert as i32).collect();
    for (expert, &slot) in slot_of.iter().enumerate().take(copies) {
        for (matrix, values) in matrices(expert).iter().enumerate() {
            lane.put(layer, matrix, slot as u32, &bytes(values));
        }
    }
    lane.settle().unwrap();
    lane.adopt(layer, recipe(), MAX_PAIRS).unwrap();
    (layer, slot_of)
}

fn computes(lane: &mut dyn Lane) {
    let (layer, slot_of) = with_copies(lane, 6);
    for experts in [&[3][..], &[0, 5], &[5, 4, 3, 2, 1, 0]] {
        token(lane, layer, &slot_of, experts, true);
        token(lane, layer, &slot_of, experts, false);
    }
    // One pair; chunks of several experts; experts of several chunks.
    for copies in [&[(2, 1)][..], &[(0, 9), (1, 3), (2, 20), (3, 24)], &[(4, 25), (5, 100), (0, 2), (1, 49)]]
    {
        prompt(lane, layer, &slot_of, &Case { copies, sent: &[] });
        token(lane, layer, &slot_of, &[1, 2], true);
    }
    // An abandoned job ends, and the next one is right.
    let job = lane.job();
    (job.layer, job.chunked, job.copied) = (Some(layer), true, 3_000);
    job.rows = numbers(7, EMBD);
    (job.inputs, job.slots, job.experts) = (vec![0; 3_000], vec![1; 3_000], vec![4; 3_000]);
    job.sent.clear();
    job.out.resize(3_000 * EMBD, 0.0);
    lane.start();
    lane.abandon();
    lane.finish().unwrap();
    prompt(lane, layer, &slot_of, &Case { copies: &[(0, 40), (3, 2)], sent: &[] });
}

#[test]
fn a_device() {
    let device = stand_in(ByteSize::gib(1));
    let mut lane = DeviceLane::start(device, ACTIVATIONS, ByteSize::ZERO).unwrap();
    computes(&mut lane);
}

#[test]
fn experts_on_several_devices() {
    let device = stand_in(ByteSize::gib(1));
    let lanes =
        [0, 1, 2].map(|_| DeviceLane::start(device, ACTIVATIONS, ByteSize::ZERO).unwrap()).into_iter();
    let planned = [(LayerId(0), vec![0, 1, 0, 0, 2, 1])].into_iter().collect();
    let mut lane = DividedLane::new("three".into(), lanes.collect(), planned);
    computes(&mut lane);
    let (layer, _) = with_copies(&mut lane, 2);
    assert_eq!(lane.transit(layer), 0);
    // Two slots are on two devices; the third device has none of this layer.
    let work = |track: usize| lane.work(track).unwrap();
    assert_eq!(lane.tracks(), 3);
    assert!((0..3).all(|track| work(track).jobs > 0 && work(track).pairs > 0));
    assert!((0..3).all(|slot| lane.works(layer, slot) == (slot < 2)));
}

#[test]
fn experts_that_are_copied_for_a_job() {
    let device = stand_in(ByteSize::gib(1));
    // One expert in each group, and three.
    for group in [1, 3] {
        let mut lane =
            DeviceLane::start(device, ACTIVATIONS, ByteSize((group * (EXPERT + 128)) as u64)).unwrap();
        computes(&mut lane);
        let (layer, slot_of) = with_copies(&mut lane, 2);
        assert_eq!(lane.transit(layer), group as u32);
        for (copies, sent) in [
            (&[][..], &[(4, 3)][..]),
            (&[], &[(2, 1), (3, 30), (4, 2), (5, 7), (6, 61), (7, 1), (8, 24)]),
            (&[(0, 50), (1, 3)], &[(9, 10), (2, 1), (11, 90)]),
        ] {
            prompt(&mut lane, layer, &slot_of, &Case { copies, sent });
        }
        token(&mut lane, layer, &slot_of, &[1, 0], true);
    }
}

/// A layer without slots of its own is computed in transit slots alone, if there are any.
#[test]
fn a_layer_without_copies() {
    let device = stand_in(ByteSize::gib(1));
    for group in [1, 3] {
        let mut lane =
            DeviceLane::start(device, ACTIVATIONS, ByteSize((group * (EXPERT + 128)) as u64)).unwrap();
        let (layer, slot_of) = with_copies(&mut lane, 0);
        assert_eq!(
            (lane.transit(layer), lane.bytes_for(layer, &shapes(), 0)),
            (group as u32, ByteSize::ZERO)
        );
        for sent in [&[(4, 1)][..], &[(2, 1), (3, 30), (4, 2), (5, 7), (6, 61)]] {
            prompt(&mut lane, layer, &slot_of, &Case { copies: &[], sent });
        }
        lane.remake(layer, &shapes(), 0).unwrap();
        lane.adopt(layer, recipe(), MAX_PAIRS).unwrap();
        prompt(&mut lane, layer, &slot_of, &Case { copies: &[], sent: &[(9, 3)] });
    }
    let mut lane = DeviceLane::start(device, ACTIVATIONS, ByteSize::ZERO).unwrap();
    let layer = lane.add(LayerId(0), &shapes(), 0).unwrap();
    assert!(lane.adopt(layer, recipe(), MAX_PAIRS).is_err(), "there is no slot");
}

/// A job that waits for experts ends when these are given up.
#[test]
fn experts_that_never_come() {
    let mut lane =
        DeviceLane::start(stand_in(ByteSize::gib(1)), ACTIVATIONS, ByteSize(2 * EXPERT as u64)).unwrap();
    let (layer, slot_of) = with_copies(&mut lane, 1);
    let job = lane.job();
    (job.layer, job.chunked, job.copied) = (Some(layer), true, 0);
    job.rows = numbers(7, EMBD);
    (job.inputs, job.slots, job.experts) = (vec![0; 4], vec![0; 4], vec![3; 4]);
    job.sent.clear();
    job.sent.push(0..4);
    job.out.resize(4 * EMBD, 0.0);
    lane.start();
    lane.abandon();
    lane.finish().unwrap();
    prompt(&mut lane, layer, &slot_of, &Case { copies: &[(0, 3)], sent: &[(1, 5)] });
}
