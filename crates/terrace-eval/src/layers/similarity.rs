//! Measures how much each layer changes the residual stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_ggml::llama::{Observer, stream_layer};

/// Mean cosine similarity between input and output, by layer. Shared between the observed context
/// and the caller.
#[derive(Clone, Default)]
pub struct Similarity(Arc<Mutex<Measured>>);

#[derive(Default)]
struct Measured {
    on: bool,
    /// The previous layer's number, and the rows that it left.
    entering: Option<(usize, Vec<f32>)>,
    /// By layer: sum of similarities, and number of rows.
    layers: Vec<(f64, u64)>,
}

impl Similarity {
    /// Starts a measurement, discarding the last one, or ends it. While none is running, graphs run
    /// whole.
    pub fn observe(&self, on: bool) {
        let mut measured = self.lock();
        (measured.on, measured.entering) = (on, None);
        if on {
            measured.layers.clear();
        }
    }

    /// Similarities by layer; `None` where nothing could be compared, as in the first layer, which
    /// has no predecessor.
    pub fn by_layer(&self) -> Vec<Option<f64>> {
        self.lock().layers.iter().map(|&(sum, n)| (n > 0).then(|| sum / n as f64)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Measured> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Similarity {
    fn wants(&mut self, name: &[u8]) -> bool {
        stream_layer(name).is_some() && self.lock().on
    }

    fn computed(&mut self, name: &[u8], width: usize, rows: &[f32]) {
        let Some(layer) = stream_layer(name).map(|layer| layer as usize) else { return };
        let mut measured = self.lock();
        let measured = &mut *measured;
        if measured.layers.len() <= layer {
            measured.layers.resize(layer + 1, (0.0, 0));
        }
        let buffer = match measured.entering.take() {
            Some((before, entering)) => {
                // A last layer of which only some tokens were requested has fewer rows.
                if before + 1 == layer && entering.len() == rows.len() {
                    let (sum, n) = &mut measured.layers[layer];
                    for (a, b) in entering.chunks_exact(width).zip(rows.chunks_exact(width)) {
                        if let Some(cosine) = cosine(a, b) {
                            *sum += cosine;
                            *n += 1;
                        }
                    }
                }
                entering
            }
            None => Vec::new(),
        };
        let mut buffer = buffer;
        buffer.clear();
        buffer.extend_from_slice(rows);
        measured.entering = Some((layer, buffer));
    }
}

/// Cosine of the angle between two vectors; `None` if one has no direction.
fn cosine(a: &[f32], b: &[f32]) -> Option<f64> {
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (&x, &y) in a.iter().zip(b) {
        let (x, y) = (f64::from(x), f64::from(y));
        (ab, aa, bb) = (ab + x * y, aa + x * x, bb + y * y);
    }
    let cosine = ab / (aa * bb).sqrt();
    cosine.is_finite().then_some(cosine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_compared_with_the_one_before() {
        let similarity = Similarity::default();
        let mut observer = similarity.clone();
        assert!(!observer.wants(b"l_out-1"));
        similarity.observe(true);
        assert!(observer.wants(b"l_out-1") && !observer.wants(b"ffn_out-1") && !observer.wants(b"l_out"));
        for _ in 0..2 {
            observer.computed(b"l_out-0", 2, &[1.0, 0.0, 0.0, 2.0]);
            // The first row turns by 90 degrees, the second only changes its length.
            observer.computed(b"l_out-1", 2, &[0.0, 3.0, 0.0, 5.0]);
            // Fewer rows, and a row of zeros: not compared.
            observer.computed(b"l_out-2", 2, &[0.0, 1.0]);
            observer.computed(b"l_out-3", 2, &[0.0, 0.0]);
        }
        assert_eq!(similarity.by_layer(), [None, Some(0.5), None, None]);
    }

    #[test]
    fn angles() {
        assert_eq!(cosine(&[1.0, 1.0], &[2.0, 2.0]).map(|c| (c - 1.0).abs() < 1e-12), Some(true));
        assert_eq!(cosine(&[1.0, 0.0], &[-4.0, 0.0]), Some(-1.0));
        assert_eq!(cosine(&[0.0, 0.0], &[1.0, 0.0]), None);
    }
}
