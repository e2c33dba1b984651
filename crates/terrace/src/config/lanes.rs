//! The lanes of the hot cache of adrianhoehne/llama.cpp: up to three devices with a size and a
//! reserve each, in options of their own, and any number of `DEVICE:MIB`. Together they say what
//! `--hot-cache` and `--vram-reserve` do.

use super::refusal::{Refusal, Refused};
use std::ffi::OsString;

/// What an option says of a lane.
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

    /// The words that say the same. Devices that no lane names hold no copies, unless the first lane
    /// has a size and no device: then they all have that size.
    ///
    /// # Errors
    /// A lane has a device without a size, or, after the first, a size without a device.
    pub fn words(self) -> Result<Vec<OsString>, Refused> {
        let refused = |spelling: &str, why, hint| Refused {
            spelling: spelling.to_owned(),
            refusal: Refusal { why, hint },
        };
        let mut words = Vec::new();
        let (mut named, mut rest) = (!self.more.is_empty(), "off".to_owned());
        for (number, lane) in self.numbered.into_iter().enumerate() {
            let Lane { spelling, device, most, reserve } = lane;
            let of = |device: &Option<String>, value: &str| {
                device.as_ref().map_or_else(|| value.to_owned(), |device| format!("{device}={value}"))
            };
            if let Some(reserve) = reserve {
                if number > 0 && device.is_none() {
                    return Err(refused(
                        &spelling,
                        "the lane has no device",
                        "use --vram-reserve DEVICE=SIZE",
                    ));
                }
                words.push(format!("--vram-reserve={}", of(&device, &reserve)));
            }
            match (&device, most) {
                (None, None) => {}
                (Some(_), None) => {
                    return Err(refused(
                        &spelling,
                        "the lane has a device, but no size",
                        "use --hot-cache DEVICE=SIZE",
                    ));
                }
                (None, Some(most)) if number == 0 => {
                    named = true;
                    rest = most;
                }
                // A lane without memory needs no device.
                (None, Some(most)) if most == "off" => {}
                (None, Some(_)) => {
                    return Err(refused(
                        &spelling,
                        "the lane has a size, but no device",
                        "use --hot-cache DEVICE=SIZE",
                    ));
                }
                (Some(_), Some(most)) => {
                    named = true;
                    words.push(format!("--hot-cache={}", of(&device, &most)));
                }
            }
        }
        words.extend(self.more.into_iter().map(|(device, size)| format!("--hot-cache={device}={size}")));
        if named {
            words.push(format!("--hot-cache={rest}"));
        }
        Ok(words.into_iter().map(OsString::from).collect())
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
