//! Work of lanes: copies, jobs and waits, counted by layer and recorded in the timeline.

use super::lane::{Copied, Lane};
use super::lane_work::LaneWork;
use super::lanes::Lanes;
use super::layer::HotLayer;
use std::time::{Duration, Instant};
use terrace_model::ByteSize;
use terrace_store::Store;
use terrace_store::timeline::{Track, What};

/// A job that is over: its layer (by index), its pairs, and its time on the lane's thread.
pub(super) struct FinishedJob {
    pub index: usize,
    pub pairs: usize,
    pub computed: Option<(Instant, Instant)>,
}

impl HotLayer {
    /// Counts experts that were copied for a job, and records them.
    pub(super) fn count_sent(&mut self, copies: &[Copied], store: &mut Store) {
        let mut timeline = store.timeline_mut();
        for copied in copies {
            self.work.copied += copied.bytes;
            self.work.copying += copied.took();
            if let Some(timeline) = &mut timeline {
                let what = What::Copy { layer: Some(self.layer), bytes: ByteSize(copied.bytes) };
                timeline.between(copied.began, copied.ended, Track::Sent(number(self.lane)), what);
            }
        }
    }
}

impl Lanes {
    /// Counts a job for which thread 0 has waited since `asked`, and records it. Returns the wait.
    pub(super) fn joined(&mut self, job: &FinishedJob, asked: Instant, store: &mut Store) -> Duration {
        let now = Instant::now();
        let layer = &mut self.layers[job.index];
        let work = &mut layer.work;
        let waited = now.saturating_duration_since(asked);
        work.waited += waited;
        store.waited_for_device(Some(layer.layer), asked, now);
        let Some((began, ended)) = job.computed else { return waited };
        work.jobs += 1;
        work.pairs += job.pairs as u64;
        work.computing += ended.saturating_duration_since(began);
        if let Some(timeline) = store.timeline_mut() {
            let pairs = u32::try_from(job.pairs).unwrap_or(u32::MAX);
            let (of, lane) = (Some(layer.layer), layer.lane);
            let first = Tracks::of(&self.lanes, lane);
            let mut divided = false;
            self.lanes[lane].parts(&mut |device, pairs, (began, ended)| {
                divided = true;
                let pairs = u32::try_from(pairs).unwrap_or(u32::MAX);
                timeline.between(began, ended, first.device(device), What::Kernel { layer: of, pairs });
            });
            if !divided {
                timeline.between(began, ended, first.device(0), What::Kernel { layer: of, pairs });
            }
        }
        waited
    }

    /// Counts the copies made since the last call, during which thread 0 has waited since `asked`,
    /// and records them.
    pub(super) fn count_copies(&mut self, asked: Instant, store: &mut Store) {
        let Self { lanes, layers, settling, .. } = self;
        let mut timeline = store.timeline_mut();
        let mut tracks = Tracks(0);
        for (index, lane) in lanes.iter_mut().enumerate() {
            let first = tracks;
            tracks.0 += lane.tracks();
            lane.take_copied(&mut |copied: Copied| {
                let took = copied.took();
                let of = layers.iter_mut().find(|of| of.lane == index && Some(of.key) == copied.layer);
                let layer = of.map(|layer| {
                    layer.work.copied += copied.bytes;
                    layer.work.copying += took;
                    layer.layer
                });
                if layer.is_none() {
                    settling[index] += took;
                }
                if let Some(timeline) = &mut timeline {
                    let what = What::Copy { layer, bytes: ByteSize(copied.bytes) };
                    timeline.between(copied.began, copied.ended, first.device(copied.device), what);
                }
            });
        }
        if let Some(timeline) = timeline {
            timeline.interrupt(asked, Instant::now(), What::Other { name: "copies", layer: None });
        }
    }

    /// The work of each lane, with its name.
    pub(super) fn work(&self) -> Vec<(String, LaneWork)> {
        let mut all: Vec<(String, LaneWork)> = self
            .lanes
            .iter()
            .zip(&self.settling)
            .map(|(lane, &copying)| (lane.name().to_owned(), LaneWork { copying, ..LaneWork::default() }))
            .collect();
        for layer in &self.layers {
            all[layer.lane].1.add(&layer.work);
        }
        let listed = all.into_iter().zip(&self.lanes).flat_map(|(one, lane)| {
            let device = |track| Some((lane.track(track).to_owned(), lane.work(track)?));
            let devices: Vec<_> = (0..lane.tracks()).filter_map(device).collect();
            if devices.is_empty() { vec![one] } else { devices }
        });
        listed.collect()
    }

    /// Names the lanes' tracks in the timeline that is being recorded.
    pub fn name_tracks(&self, store: &mut Store) {
        let Some(timeline) = store.timeline_mut() else { return };
        let names = self.lanes.iter().flat_map(|lane| (0..lane.tracks()).map(|track| lane.track(track)));
        for (index, name) in names.enumerate() {
            timeline.name(Tracks(index).device(0), format!("lane {name}"));
        }
        for (index, lane) in self.lanes.iter().enumerate() {
            timeline.name(Track::Sent(number(index)), format!("sent to {}", lane.name()));
        }
    }
}

fn number(lane: usize) -> u32 {
    u32::try_from(lane).unwrap_or(u32::MAX)
}

/// The tracks of a lane in the timeline, one for each device that it lists: the index of the first.
#[derive(Clone, Copy)]
struct Tracks(usize);

impl Tracks {
    fn of(lanes: &[Box<dyn Lane>], lane: usize) -> Self {
        Self(lanes[..lane].iter().map(|lane| lane.tracks()).sum())
    }

    fn device(self, device: usize) -> Track {
        Track::Lane(number(self.0 + device))
    }
}
