//! Saved measurements: the description of the machine, and the I/O settings of the device.

use super::{Checks, Finding};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_cli::user_dirs::user_dirs;
use terrace_host::machine::{Hardware, StoredProfile};
use terrace_store::kept::MeasuredBy;

/// Age in days above which kernels, drivers and disks may have changed.
const OLD: u64 = 180;

pub struct Kept {
    /// Days since the machine was measured, `None` if it never was; or the reason why the
    /// description is not used.
    profile: Result<Option<u64>, String>,
    /// Days since the I/O settings were measured, what measured them, and 10^9 bytes per second.
    settings: Option<(u64, MeasuredBy, f64)>,
}

impl Checks for Kept {
    fn gather(place: &Path) -> Self {
        let user = user_dirs();
        let profile = match StoredProfile::kept_in(&user) {
            Some(path) => StoredProfile::read(&path, &Hardware::here()),
            None => Ok(None),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let settings = user.device_settings();
        let kept = settings.measured_at(place).and_then(|at| Some((at, settings.lookup(place)?)));
        Self {
            profile: match profile {
                Ok(stored) => Ok(stored.map(|stored| stored.age_days())),
                Err(error) => Err(error.to_string()),
            },
            settings: kept.map(|(at, kept)| (now.saturating_sub(at) / 86_400, kept.by, kept.gbps)),
        }
    }

    fn judge(&self) -> Vec<Finding> {
        let profile = match &self.profile {
            Ok(Some(days)) if *days > OLD => {
                Finding::warn("profile", format!("{days} days old"), "run terrace machine --refresh")
            }
            Ok(Some(days)) => Finding::ok("profile", format!("matches this machine, {days} days old")),
            Ok(None) => Finding::warn(
                "profile",
                "this machine was never measured",
                "run terrace machine for more accurate plans",
            ),
            Err(reason) => Finding::warn("profile", reason.clone(), "run terrace machine --refresh"),
        };
        let settings = match self.settings {
            Some((days, MeasuredBy::Iobench, gbps)) if days <= OLD => {
                Finding::ok("I/O settings", format!("from iobench, {gbps:.2} GB/s, {days} days old"))
            }
            Some((days, MeasuredBy::Iobench, _)) => {
                Finding::warn("I/O settings", format!("{days} days old"), "run terrace iobench PATH")
            }
            Some((days, MeasuredBy::Probe, gbps)) => Finding::warn(
                "I/O settings",
                format!("from a short probe, {gbps:.2} GB/s, {days} days old"),
                "run terrace iobench PATH to measure the device fully",
            ),
            None => {
                Finding::warn("I/O settings", "this device was never measured", "run terrace iobench PATH")
            }
        };
        vec![profile, settings]
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Level, levels};
    use super::*;

    #[test]
    fn what_is_old_or_stale_or_missing_is_measured_again() {
        let judged = |profile: Result<Option<u64>, String>, settings| {
            let found = levels(&Kept { profile, settings }.judge());
            (found[0].1, found[1].1)
        };
        assert_eq!(judged(Ok(Some(3)), Some((3, MeasuredBy::Iobench, 2.0))), (Level::Ok, Level::Ok));
        assert_eq!(judged(Ok(Some(300)), Some((300, MeasuredBy::Iobench, 2.0))), (Level::Warn, Level::Warn));
        assert_eq!(judged(Ok(None), None), (Level::Warn, Level::Warn));
        assert_eq!(
            judged(Err("stale".into()), Some((1, MeasuredBy::Probe, 2.0))),
            (Level::Warn, Level::Warn)
        );
    }
}
