//! Reads values of samplers' parameters as a command line has them.

use super::token::Token;

pub fn bias(text: &str) -> Result<(Token, f32), String> {
    let wrong = || "must be a token's number, + or -, and a number: 15043+1".to_owned();
    let sign = text.find(['+', '-']).ok_or_else(wrong)?;
    let token: i32 = text[..sign].trim().parse().map_err(|_| wrong())?;
    let bias: f32 = text[sign + 1..].parse().map_err(|_| wrong())?;
    if token < 0 || bias.is_nan() || bias.is_sign_negative() {
        return Err(wrong());
    }
    Ok((Token(token), if text[sign..].starts_with('-') { -bias } else { bias }))
}

pub fn probability(text: &str) -> Result<f32, String> {
    number(text, |p| (0.0..=1.0).contains(&p), "a number from 0 to 1")
}

pub fn any(text: &str) -> Result<f32, String> {
    number(text, |_| true, "a number")
}

pub fn positive(text: &str) -> Result<f32, String> {
    number(text, |n| n >= 0.0, "a number of 0 or more")
}

pub fn divisor(text: &str) -> Result<f32, String> {
    number(text, |n| n >= 1e-6, "a number above 0")
}

pub fn target(text: &str) -> Result<f32, String> {
    number(text, |p| p <= 1.0, "a number from 0 to 1, or negative")
}

pub fn decay(text: &str) -> Result<f32, String> {
    number(text, |p| (0.0..=0.99).contains(&p), "a number from 0 to 0.99")
}

fn number(text: &str, valid: impl Fn(f32) -> bool, what: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(number) if number.is_finite() && valid(number) => Ok(number),
        _ => Err(format!("must be {what}")),
    }
}

pub fn look_back(text: &str) -> Result<i32, String> {
    whole(text, -1, "a number of tokens, or -1")
}

pub fn count(text: &str) -> Result<i32, String> {
    whole(text, 0, "a number of tokens")
}

fn whole(text: &str, least: i32, what: &str) -> Result<i32, String> {
    match text.parse::<i32>() {
        Ok(number) if number >= least => Ok(number),
        _ => Err(format!("must be {what}")),
    }
}

pub fn version(text: &str) -> Result<i32, String> {
    match text.parse::<i32>() {
        Ok(version @ 0..=2) => Ok(version),
        _ => Err("must be 0, 1 or 2".into()),
    }
}
