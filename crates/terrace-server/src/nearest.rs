//! The nearest known name for an unknown one.

/// Bytes of the longest name that is compared with others: no known one is as long.
const LONGEST: usize = 64;

/// `; did you mean …?` with the most similar name, or nothing if none is similar.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known = known.filter(|_| name.len() <= LONGEST);
    known
        .map(|k| (strsim::jaro_winkler(name, k), k))
        .filter(|(similarity, _)| *similarity > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(_, k)| format!("; did you mean `{k}`?"))
}
