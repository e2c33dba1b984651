//! Writes a timeline as a Chrome trace: JSON for Perfetto and `chrome://tracing`.
//!
//! The format is the "Trace Event Format": complete events (`X`) with times in microseconds, and
//! metadata events (`M`) with the names of processes and threads. Reads are the threads of one
//! process, of which the first is the time without any, computing threads those of another, and devices those of a third.

use super::idle::idle;
use super::{Span, Timeline, Track, What};
use crate::block::{BlockId, BlockSpec};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::{self, Write};
use terrace_model::{ByteSize, LayerId};
use terrace_platform::own_file::{Form, OwnFile};

/// A timeline, as it begins here.
pub const FILE: OwnFile = OwnFile::new("a timeline of Terrace", Form::Begins(BEGINNING));

const BEGINNING: &[u8] = b"{\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":";

/// The process that devices are threads of.
const DEVICES: u32 = 3;

#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    cat: &'static str,
    ph: &'static str,
    /// Microseconds.
    ts: f64,
    dur: f64,
    pid: u32,
    tid: u32,
    args: Args<'a>,
}

#[derive(Default, Serialize)]
struct Args<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expert: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_layer: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before_layer: Option<u32>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'static str,
    ph: &'static str,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    args: Name<'a>,
}

#[derive(Serialize)]
struct Name<'a> {
    name: &'a str,
}

impl Track {
    /// Returns process and thread of its events; both count from 1.
    const fn ids(self) -> (u32, u32) {
        match self {
            Self::Thread(index) => (1, index + 1),
            Self::Idle => (2, 0),
            Self::Read(slot) => (2, slot + 1),
            Self::Lane(index) => (DEVICES, 3 * index + 1),
            Self::Sent(index) => (DEVICES, 3 * index + 2),
            Self::Device(index) => (DEVICES, 3 * index + 3),
        }
    }

    fn name(self) -> String {
        match self {
            Self::Thread(index) => format!("thread {index}"),
            Self::Idle => "no request".into(),
            Self::Read(slot) => format!("request {slot}"),
            Self::Lane(index) => format!("lane {index}"),
            Self::Sent(index) => format!("sent to lane {index}"),
            Self::Device(index) => format!("layers on device {index}"),
        }
    }
}

impl Timeline {
    /// Writes all spans as a Chrome trace, with the times between requests, and returns their number. `names` returns the description of a block
    /// ([`Store::spec`](crate::Store::spec)).
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn write_chrome<'a>(
        &self,
        names: impl Fn(BlockId) -> &'a BlockSpec,
        mut out: impl Write,
    ) -> io::Result<usize> {
        out.write_all(b"{\"traceEvents\":[\n")?;
        metadata(&mut out, "process_name", 1, None, "compute")?;
        out.write_all(b",\n")?;
        metadata(&mut out, "process_name", 2, None, "reads")?;
        let layer_of = |what: &What| match what {
            What::Read { block: Some(block), .. } => names(*block).layer,
            _ => None,
        };
        let idle = idle(&self.spans, layer_of);
        let tracks: BTreeSet<Track> = self.spans.iter().chain(&idle).map(|span| span.track).collect();
        if tracks.iter().any(|track| track.ids().0 == DEVICES) {
            out.write_all(b",\n")?;
            metadata(&mut out, "process_name", DEVICES, None, "devices")?;
        }
        for track in tracks {
            let (pid, tid) = track.ids();
            out.write_all(b",\n")?;
            let name = self.names.get(&track).cloned().unwrap_or_else(|| track.name());
            metadata(&mut out, "thread_name", pid, Some(tid), &name)?;
        }
        for span in self.spans.iter().chain(&idle) {
            out.write_all(b",\n")?;
            serde_json::to_writer(&mut out, &event(span, &names))?;
        }
        write!(out, "\n],\"otherData\":{{\"dropped_spans\":\"{}\"}}}}\n", self.dropped)?;
        out.flush()?;
        Ok(self.spans.len() + idle.len())
    }
}

fn metadata(
    out: &mut impl Write,
    what: &'static str,
    pid: u32,
    tid: Option<u32>,
    name: &str,
) -> io::Result<()> {
    serde_json::to_writer(out, &Metadata { name: what, ph: "M", pid, tid, args: Name { name } })?;
    Ok(())
}

fn event<'a>(span: &Span, names: &impl Fn(BlockId) -> &'a BlockSpec) -> Event<'a> {
    let of_layer = |layer: Option<LayerId>| Args { layer: layer.map(|layer| layer.0), ..Args::default() };
    let (name, cat, args) = match span.what {
        What::Read { block, bytes, purpose } => {
            let spec = block.map(names);
            let args = Args {
                tensor: spec.map(|spec| &*spec.name),
                expert: spec.and_then(|spec| spec.expert).map(|expert| expert.0),
                bytes: Some(bytes.0),
                ..of_layer(spec.and_then(|spec| spec.layer))
            };
            (purpose.name(), "read", args)
        }
        What::Idle { after, before } => {
            let number = |layer: Option<LayerId>| layer.map(|layer| layer.0);
            let args = Args { after_layer: number(after), before_layer: number(before), ..Args::default() };
            ("idle", "idle", args)
        }
        What::Wait { layer } => ("wait", "lane", of_layer(layer)),
        What::Experts { layer } => ("experts", "lane", of_layer(layer)),
        What::Join { layer } => ("join", "lane", of_layer(layer)),
        What::Kernel { layer, pairs } => ("kernel", "device", Args { pairs: Some(pairs), ..of_layer(layer) }),
        What::Copy { layer: None, bytes: ByteSize::ZERO } => ("arrive", "device", Args::default()),
        What::Copy { layer, bytes } => ("copy", "device", Args { bytes: Some(bytes.0), ..of_layer(layer) }),
        What::Piece { after, before } => {
            let number = |layer: Option<LayerId>| layer.map(|layer| layer.0);
            let args = Args { after_layer: number(after), before_layer: number(before), ..Args::default() };
            ("layers", "device", args)
        }
        What::Other { name, layer } => (name, "lane", of_layer(layer)),
    };
    let (pid, tid) = span.track.ids();
    let micros = |nanos: u64| nanos as f64 / 1e3;
    Event { name, cat, ph: "X", ts: micros(span.start), dur: micros(span.end - span.start), pid, tid, args }
}
