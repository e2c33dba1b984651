//! Settings with a few named choices: which engine reads, and whether reads bypass the page cache.

use std::fmt;
use std::str::FromStr;

/// Text that is not a choice of a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a choice of {setting}: use {choices}")]
pub struct ParseChoiceError {
    pub text: String,
    pub setting: &'static str,
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
        /// io_uring if the kernel allows it, a pool of `pread` threads otherwise.
        #[default]
        Auto = "auto",
        /// io_uring, or an error.
        Uring = "uring",
        /// A pool of threads that call `pread`.
        Pread = "pread",
    }
}

choice! {
    /// Choice of the page cache for reads.
    DirectChoice, "direct I/O", "auto, on or off" {
        /// Direct if a trial read works, buffered otherwise.
        #[default]
        Auto = "auto",
        /// Direct, or an error.
        On = "on",
        /// Through the page cache.
        Off = "off",
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
