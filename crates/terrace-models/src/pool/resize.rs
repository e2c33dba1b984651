//! Changes how much of the memory the slots of loaded models have.

use super::{Phase, Pool, State};
use crate::child;
use crate::joint::{self, Limits};
use std::sync::Arc;
use terrace_engine::SlotsMemory;

impl Pool {
    /// Changes the limits of these models' slots.
    pub(super) fn resize(self: &Arc<Self>, state: &mut State, limits: Limits) {
        for (name, limit) in limits {
            let Some(loaded) = state.loaded.get_mut(&name) else { continue };
            let (Some((started, key)), Some(slots)) = (&loaded.started, &mut loaded.slots) else { continue };
            let (address, key, process) = (started.address, key.clone(), loaded.process);
            // Until it says what it holds, it may hold the larger of both.
            let taken = slots.limit.max(limit);
            slots.limit = taken;
            loaded.resizing = true;
            let pool = Arc::clone(self);
            tokio::spawn(async move {
                let now = child::limit(address, &key, limit).await;
                pool.change(|state| {
                    let Some(loaded) = state.of(&name, process) else { return };
                    match now {
                        Some(now) => {
                            let limit = now.limit.max(now.held).min(taken);
                            loaded.slots = Some(SlotsMemory { limit, ..now });
                        }
                        // It keeps what it may hold, and is not asked again.
                        None => (loaded.given, loaded.slots) = (loaded.memory(), None),
                    }
                    loaded.resizing = false;
                });
                let slots = now.map(|now| now.limit);
                tracing::info!(target: "terrace_server::state", model = name, ?slots, "slots changed");
            });
        }
    }

    /// Gives memory that nothing waits for to slots that were made smaller.
    pub(super) fn hand_out(self: &Arc<Self>) {
        let mut state = self.state();
        let still = state.loaded.values().all(|loaded| loaded.phase == Phase::Ready && !loaded.resizing);
        if !still || state.waiting > 0 || state.stopping {
            return;
        }
        let limits = joint::hand_out(state.shares(), state.free(self.memory));
        self.resize(&mut state, limits);
    }
}
