//! Parts that options of several crates share: readers of values, names of values, defaults.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Command, ValueEnum};

/// Reads `on` or `off`.
pub fn on_off() -> impl TypedValueParser<Value = bool> {
    let values = [("on", "Yes"), ("off", "No")].map(|(name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).map(|text| text == "on")
}

/// Reads a number from 0 to 1.
///
/// # Errors
/// The text is no such number.
pub fn share(text: &str) -> Result<f64, &'static str> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or("expected a number from 0 to 1")
}

/// Text that is not the name of a value, with a list of those that are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {0}")]
pub struct UnknownName(String);

/// Returns the value of this name.
///
/// # Errors
/// No value has it.
pub fn named<T: ValueEnum>(text: &str) -> Result<T, UnknownName> {
    T::from_str(text, false).map_err(|_| {
        let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let values = values.filter(|value| !value.is_hide_set());
        let names: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
        UnknownName(match &names[..] {
            [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
            names => names.concat(),
        })
    })
}

/// Returns the name of a value.
pub fn name_of<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Writes and reads enumerations of clap's ([`ValueEnum`]) by the names of their values.
#[macro_export]
macro_rules! by_name {
    ($($type:ty),+) => {$(
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&$crate::cli::name_of(self))
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::cli::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::cli::named(text)
            }
        }
    )+};
}

/// Returns a group of options as a command line without words sets it. Variables are not read.
pub fn unset<T: Args>() -> T {
    let command = T::augment_args(Command::new("unset").no_binary_name(true));
    let matches = command.mut_args(|arg| arg.env(None::<&str>)).try_get_matches_from([""; 0]);
    let group = matches.and_then(|matches| T::from_arg_matches(&matches));
    group.expect("groups require no option, and their defaults are values")
}

/// Takes the [`Default`] of groups of options from their definition for the command line.
#[macro_export]
macro_rules! default_is_unset {
    ($($type:ty),+) => {$(
        impl Default for $type {
            fn default() -> Self {
                $crate::cli::unset()
            }
        }
    )+};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
    enum Fruit {
        Apple,
        #[value(name = "pear_tree")]
        Pear,
        Plum,
        #[value(hide = true)]
        Quince,
    }

    by_name!(Fruit);

    #[derive(Debug, PartialEq, Args)]
    struct Basket {
        #[arg(long, env = "PATH", default_value_t = Fruit::Pear)]
        fruit: Fruit,
        #[arg(long, default_value = "off", value_parser = on_off(), action = clap::ArgAction::Set)]
        ripe: bool,
        #[arg(long, default_value_t = 0.5, value_parser = share)]
        share: f64,
        #[arg(skip = 3u32)]
        number: u32,
    }

    default_is_unset!(Basket);

    #[test]
    fn names_are_read_as_they_are_written() {
        for value in Fruit::value_variants() {
            assert_eq!(value.to_string().parse(), Ok(*value));
        }
        assert_eq!(format!("{:>10}|", Fruit::Pear), " pear_tree|");
        let wrong = "pear".parse::<Fruit>().unwrap_err().to_string();
        assert_eq!(wrong, "expected apple, pear_tree or plum");
    }

    /// Whatever the environment says.
    #[test]
    fn defaults_are_those_of_the_command_line() {
        let expected = Basket { fruit: Fruit::Pear, ripe: false, share: 0.5, number: 3 };
        assert_eq!(Basket::default(), expected);
    }
}
