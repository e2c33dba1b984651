//! Parameters in the addresses of requests.

use crate::app::Ready;
use crate::error::ApiError;
use percent_encoding::percent_decode;

/// The value of a parameter, decoded as a form's; the first of several.
pub fn value(query: Option<&str>, name: &str) -> Option<Vec<u8>> {
    let value = query?.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))?;
    // A plus sign of its own is written as %2B.
    Some(percent_decode(value.replace('+', " ").as_bytes()).collect())
}

/// Checks that `model`, if it is given, names the model that is served.
///
/// # Errors
/// It names another one.
pub fn of_model(query: Option<&str>, ready: &Ready) -> Result<(), ApiError> {
    match value(query, "model") {
        Some(name) if name != ready.name.as_bytes() => {
            Err(ApiError::no_model(&String::from_utf8_lossy(&name)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_as_those_of_forms() {
        let of = |query, name| value(Some(query), name).map(|text| String::from_utf8(text).unwrap());
        assert_eq!(of("model=x&json=%7B%22a%22%3A+1%7d", "json").unwrap(), r#"{"a": 1}"#);
        assert_eq!(of("model=a%2Bb%20c", "model").unwrap(), "a+b c");
        // What is not a number stays, and is no JSON.
        assert_eq!(of("json=%zz%4", "json").unwrap(), "%zz%4");
        assert_eq!((of("json=", "json").unwrap().as_str(), of("jsonp=1", "json")), ("", None));
        assert_eq!(value(None, "json"), None);
    }
}
