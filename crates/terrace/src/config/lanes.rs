//! The lanes of the hot cache of adrianhoehne/llama.cpp: up to three devices with a size and a
//! reserve each, in options of their own, and any number of `DEVICE:MIB`. Together they say what
//! `--hot-cache` does. A lane's device need not be one that `--device` names: then it holds copies alone.

use super::refusal::{Refusal, Refused};
use std::ffi::OsString;

/// An option's setting of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOption {
    /// The device of a lane, by its number.
    Device(usize),
    /// Its memory in MiB: -1 is all that is left, 0 none.
    Most(usize),
    /// MiB that stay free on its device.
    Reserve(usize),
    /// A device and its memory in MiB: `DEVICE:MIB`.
    Both,
}

/// The note about a reserve beside a size, or without one.
const OF_ALL_THAT_IS_LEFT: &str = "it bounds caches of size -1, and this one has another";
/// The note about a lane that has a device alone.
const EMPTY: &str = "the lane has no size, so it holds no copies";

/// The middle of the names of the lanes' options.
const ORDINALS: [&str; 3] = ["", "second-", "third-"];

/// Words, and options that say nothing, with the reason.
type LaneWords = (Vec<OsString>, Vec<(String, &'static str)>);

/// The refusal of a size in MiB that is none.
const MEBIBYTES: Refusal = Refusal { why: "must be a number of MiB", hint: "use e.g. --hot-cache 2GiB" };

#[derive(Debug, Default)]
struct Lane {
    /// The spelling that named it last, for messages.
    spelling: String,
    device: Option<String>,
    most: Option<String>,
    reserve: Option<String>,
}

/// The lanes of a command line.
#[derive(Debug, Default)]
pub struct Lanes {
    numbered: [Lane; 3],
    /// Devices with their sizes.
    more: Vec<(String, String)>,
}

impl Lanes {
    /// The devices that hold copies.
    fn devices(&self) -> Vec<String> {
        let holds = |lane: &&Lane| lane.most.as_ref().is_some_and(|most| most != "off");
        let numbered = self.numbered.iter().filter(holds).filter_map(|lane| lane.device.clone());
        numbered
            .chain(self.more.iter().filter(|(_, size)| size != "off").map(|(device, _)| device.clone()))
            .collect()
    }

    /// Takes the value of an option.
    ///
    /// # Errors
    /// The value is not a size, or not a device and a size.
    pub fn take(&mut self, option: LaneOption, spelling: &str, value: &str) -> Result<(), Refused> {
        let refused = |refusal| Refused { spelling: spelling.to_owned(), refusal };
        let (lane, field) = match option {
            LaneOption::Both => {
                let parts = value.rsplit_once(':').filter(|(device, _)| !device.is_empty());
                let (device, mebibytes) = parts.ok_or_else(|| {
                    refused(Refusal { why: "must be DEVICE:MIB", hint: "use --hot-cache DEVICE=SIZE" })
                })?;
                self.more.push((device.to_owned(), size(mebibytes).ok_or_else(|| refused(MEBIBYTES))?));
                return Ok(());
            }
            LaneOption::Device(lane) => (lane, value.to_owned()),
            LaneOption::Most(lane) => (lane, size(value).ok_or_else(|| refused(MEBIBYTES))?),
            LaneOption::Reserve(lane) => {
                let mebibytes: u32 = value.parse().map_err(|_| refused(MEBIBYTES))?;
                (lane, format!("{mebibytes}MiB"))
            }
        };
        let lane = &mut self.numbered[lane];
        lane.spelling = spelling.to_owned();
        match option {
            LaneOption::Device(_) => lane.device = Some(field),
            LaneOption::Most(_) => lane.most = Some(field),
            LaneOption::Reserve(_) | LaneOption::Both => lane.reserve = Some(field),
        }
        Ok(())
    }

    /// The words that say the same, and the options that say nothing, with the reason. Devices that no lane
    /// names hold no copies, unless the first lane has a size and no device: then they all have that size.
    /// `usable`: the devices that the command line allows, if it names them.
    ///
    /// # Errors
    /// A lane after the first has a size without a device.
    pub fn words(self, usable: Option<&[String]>) -> Result<LaneWords, Refused> {
        let mut words = Vec::new();
        let mut idle = Vec::new();
        // A device for copies alone has no room for layers.
        for device in self.devices().iter().filter(|device| usable.is_some_and(|all| !all.contains(device))) {
            words.extend([format!("--device={device}"), format!("--vram-budget={device}=0B")]);
        }
        let (mut named, mut rest) = (!self.more.is_empty(), "off".to_owned());
        for (number, lane) in self.numbered.into_iter().enumerate() {
            let Lane { spelling, device, most, reserve } = lane;
            let most = match (most, reserve) {
                (Some(most), Some(reserve)) if most == "max" => Some(format!("max-{reserve}")),
                (most, Some(_)) => {
                    idle.push((
                        format!("--moe-hot-cache-{}auto-reserve-mib", ORDINALS[number]),
                        OF_ALL_THAT_IS_LEFT,
                    ));
                    most
                }
                (most, None) => most,
            };
            match (device, most) {
                (None, None) => {}
                (Some(_), None) => idle.push((format!("--moe-hot-cache-{}device", ORDINALS[number]), EMPTY)),
                (None, Some(most)) if number == 0 => {
                    named = true;
                    rest = most;
                }
                // A lane without memory needs no device.
                (None, Some(most)) if most == "off" => {}
                (None, Some(_)) => {
                    let why = "the lane has a size, but no device";
                    let refusal = Refusal { why, hint: "use --hot-cache DEVICE=SIZE" };
                    return Err(Refused { spelling, refusal });
                }
                (Some(device), Some(most)) => {
                    named = true;
                    words.push(format!("--hot-cache={device}={most}"));
                }
            }
        }
        words.extend(self.more.into_iter().map(|(device, size)| format!("--hot-cache={device}={size}")));
        if named {
            words.push(format!("--hot-cache={rest}"));
        }
        Ok((words.into_iter().map(OsString::from).collect(), idle))
    }
}

/// A size of `--hot-cache`.
fn size(mebibytes: &str) -> Option<String> {
    Some(match mebibytes.parse::<i64>().ok()? {
        -1 => "max".into(),
        0 => "off".into(),
        mebibytes if mebibytes > 0 => format!("{mebibytes}MiB"),
        _ => return None,
    })
}
