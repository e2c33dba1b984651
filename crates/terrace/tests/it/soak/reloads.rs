//! Reloads, and which variant of the model each epoch has.

use crate::server::Server;
use crate::variants::Variants;
use serde_json::json;
use std::fmt;
use std::sync::{Condvar, Mutex};

/// The variant of the model in each epoch.
pub struct Epochs {
    variants: Mutex<Vec<usize>>,
    news: Condvar,
}

impl Epochs {
    /// The first variant was loaded.
    pub fn new() -> Self {
        Self { variants: Mutex::new(vec![0]), news: Condvar::new() }
    }

    /// The variant in an epoch. Waits for the outcome of the reload that began it.
    pub fn variant(&self, epoch: usize) -> usize {
        let known = self.news.wait_while(self.variants.lock().unwrap(), |variants| variants.len() <= epoch);
        known.unwrap()[epoch]
    }

    /// The epoch now.
    pub fn now(&self) -> usize {
        self.variants.lock().unwrap().len() - 1
    }

    fn begin(&self, epoch: usize, variant: usize) {
        let mut variants = self.variants.lock().unwrap();
        assert_eq!(variants.len(), epoch, "epochs are counted");
        variants.push(variant);
        self.news.notify_all();
    }
}

/// Reloads so far.
#[derive(Debug, Default)]
pub struct Reloads {
    /// The variant that is served.
    variant: usize,
    requests: usize,
    /// Those that replaced the variant by the other one.
    pub replaced: usize,
    /// Those after which another file had the same bytes, and which changed nothing.
    same: usize,
    /// Those after which the same file had another time. Streamed tensors of it count as replaced:
    /// what was in the file before cannot be compared.
    touched: usize,
}

impl Reloads {
    /// Changes the file that is served, and reloads.
    pub fn next(&mut self, server: &Server, variants: &Variants, epochs: &Epochs) {
        let kind = self.requests % 4;
        match kind {
            0 | 2 => {
                self.variant = 1 - self.variant;
                self.replaced += 1;
                variants.put(self.variant);
            }
            1 => {
                self.same += 1;
                variants.put(self.variant);
            }
            _ => {
                self.touched += 1;
                variants.touch();
            }
        }
        self.requests += 1;
        let report = server.post("/v1/tensors/reload", &json!({})).ok();
        let epoch = usize::try_from(report["epoch"].as_u64().unwrap()).unwrap();
        let begins = epoch > epochs.now();
        if begins {
            epochs.begin(epoch, self.variant);
        }
        assert_eq!(begins, !report["swapped"].as_array().unwrap().is_empty(), "{report}");
        match kind {
            0 | 2 => assert!(begins, "the other variant: {report}"),
            1 => assert!(!begins, "the same bytes: {report}"),
            _ => {}
        }
    }
}

impl fmt::Display for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, replaced, same, touched, .. } = self;
        write!(
            f,
            "reloads: {requests}; of other tensors: {replaced}, of the same: {same}, of a touched file: {touched}"
        )
    }
}
