//! Settings from variables.

#[path = "../../src/settings.rs"]
mod source;

use source::Settings;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_store::DirectChoice;

#[test]
fn variables_mean_what_options_of_the_same_names_do() {
    let none = Settings::from_variables(|_| None).unwrap();
    assert_eq!((none.budget, none.stream, none.direct), (Budget::Auto, Manage::Auto, DirectChoice::Auto));
    let get = |name: &str| {
        let value = match name {
            "TERRACE_RAM_BUDGET" => "3GiB",
            "TERRACE_STREAM" => "ffn",
            "TERRACE_DIRECT" => "off",
            "TERRACE_CACHE_POLICY" => "lfru",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let set = Settings::from_variables(get).unwrap();
    assert_eq!((set.budget, set.stream), (Budget::Bytes(ByteSize::gib(3)), Manage::Ffn));
    assert_eq!((set.direct, set.policy.to_string()), (DirectChoice::Off, "lfru".into()));
    assert_eq!(set.io, none.io);
    let error = Settings::from_variables(|name| (name == "TERRACE_IO").then(|| "fast".into())).unwrap_err();
    assert!(error.starts_with("TERRACE_IO=fast: "), "{error}");
}
