//! How a store is set up.

use crate::io::FaultPlan;
use crate::policy::PolicyKind;
use crate::tune::DeviceSettings;
use std::fmt;
use std::str::FromStr;
use terrace_model::ByteSize;

/// Text that names none of a setting's choices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a choice of {setting}: use {choices}")]
pub struct ParseChoiceError {
    /// What was written.
    pub text: String,
    /// The setting.
    pub setting: &'static str,
    /// What may be written.
    pub choices: &'static str,
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident, $setting:literal, $choices:literal {
        $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $text),+ })
            }
        }

        impl FromStr for $name {
            type Err = ParseChoiceError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(ParseChoiceError { text: text.into(), setting: $setting, choices: $choices }),
                }
            }
        }
    };
}

choice! {
    /// Which I/O engine reads the files.
    IoChoice, "the I/O engine", "auto, uring or pread" {
        /// io_uring where the kernel lets us, a pool of `pread` threads otherwise.
        #[default]
        Auto = "auto",
        /// io_uring, or an error.
        Uring = "uring",
        /// A pool of threads that call `pread`.
        Pread = "pread",
    }
}

choice! {
    /// Whether reads go around the page cache.
    DirectChoice, "direct I/O", "auto, on or off" {
        /// Direct where a trial read works, buffered otherwise.
        #[default]
        Auto = "auto",
        /// Direct, or an error.
        On = "on",
        /// Through the page cache.
        Off = "off",
    }
}

/// How a [`Store`](crate::Store) is set up.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Bytes of RAM for blocks and for staging, together. Beside it the store keeps only tables (under 250 bytes per
    /// block), 256 KiB of bounce buffer, and with `pread` the stacks of its threads.
    pub budget: ByteSize,
    /// Which engine reads.
    pub io: IoChoice,
    /// Whether around the page cache.
    pub direct: DirectChoice,
    /// Requests in flight at most (1 to 1024); `None`: as measured on the device, or 32.
    pub queue_depth: Option<u32>,
    /// Larger blocks are read in several requests of about this size (4 KiB to 1 GiB); `None`: as measured on the
    /// device, or 1 MiB.
    pub request_size: Option<ByteSize>,
    /// Where to look up what is not set here (and an engine and direct I/O left to us), and to keep what a probe of the
    /// device finds.
    pub device_settings: DeviceSettings,
    /// Which block goes when room is needed.
    pub policy: PolicyKind,
    /// Bytes of slots that guesses may have, as by [`set_speculation_cap`](crate::Store::set_speculation_cap); 0: no
    /// speculation.
    pub speculation: ByteSize,
    /// Errors and delays to inject, for tests.
    pub faults: Option<FaultPlan>,
    /// Ask for huge pages under the arena.
    pub huge_pages: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            budget: ByteSize::gib(1),
            io: IoChoice::default(),
            direct: DirectChoice::default(),
            queue_depth: None,
            request_size: None,
            device_settings: DeviceSettings::default(),
            policy: PolicyKind::default(),
            speculation: ByteSize(0),
            faults: None,
            huge_pages: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_read_back() {
        for choice in [IoChoice::Auto, IoChoice::Uring, IoChoice::Pread] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for choice in [DirectChoice::Auto, DirectChoice::On, DirectChoice::Off] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let wrong = "aio".parse::<IoChoice>().unwrap_err().to_string();
        assert!(wrong.contains("aio") && wrong.contains("uring"), "{wrong}");
    }
}
