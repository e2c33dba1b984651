//! The nearest known name for an unknown one.

/// Bytes of the longest name that is compared with others: no known one is as long.
const LONGEST: usize = 64;

/// `; did you mean …?` with the most similar name, or nothing if none is similar.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    most_similar(name, known, 0.75).map_or_else(String::new, |k| format!("; did you mean `{k}`?"))
}

/// The most similar name, the last of several, if its Jaro-Winkler similarity is above `least`.
pub fn most_similar<'a>(name: &str, known: impl Iterator<Item = &'a str>, least: f64) -> Option<&'a str> {
    known
        .filter(|_| name.len() <= LONGEST)
        .map(|k| (strsim::jaro_winkler(name, k), k))
        .filter(|(similarity, _)| *similarity > least)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, k)| k)
}
