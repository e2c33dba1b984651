//! Compares declarations with a tree's headers, by its compiler.

use super::compiler::Compiler;
use super::declared::{Declared, Structure};
use super::moved::Moved;
use super::tree::{HEADERS, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Before what is asked: types that are the same to a caller in C. Rust has no enumerations of C, and calls a
/// pointer that it does not follow one to `void`.
const PRELUDE: &str = r#"
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <type_traits>
extern "C" [[noreturn]] void ggml_abort(const char *, int, const char *, ...) { for (;;) {} }
template <class R, class... A> using fn = R (*)(A...);
template <class T> using pointer = T *;
template <class...> struct list {};
template <class A, class B> constexpr bool numbers() {
    constexpr bool both = (std::is_enum_v<A> || std::is_integral_v<A>) && (std::is_enum_v<B> || std::is_integral_v<B>);
    if constexpr (both && (std::is_enum_v<A> || std::is_enum_v<B>)) { return sizeof(A) == sizeof(B); }
    return false;
}
template <class A, class B> constexpr bool opaque() {
    if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
        return std::is_void_v<std::remove_pointer_t<A>> || std::is_void_v<std::remove_pointer_t<B>>;
    }
    return false;
}
template <class A, class B> struct alike : std::bool_constant<std::is_same_v<A, B> || numbers<A, B>() || opaque<A, B>()> {};
template <class, class> struct all : std::false_type {};
template <> struct all<list<>, list<>> : std::true_type {};
template <class A, class... As, class B, class... Bs> struct all<list<A, As...>, list<B, Bs...>>
    : std::bool_constant<alike<A, B>::value && all<list<As...>, list<Bs...>>::value> {};
template <class R, class... A, class S, class... B> struct alike<R (*)(A...), S (*)(B...)>
    : std::bool_constant<alike<R, S>::value && all<list<A...>, list<B...>>::value> {};
"#;

/// A question to the compiler, which is one line of a program.
struct Question {
    line: String,
    /// The question, in C.
    what: String,
    ours: String,
    theirs: String,
}

/// Compares everything that is declared. Returns how much that was.
///
/// # Errors
/// The tree's headers cannot be compiled.
pub fn compare(
    compiler: &Compiler,
    tree: &Tree,
    declared: &Declared,
    moved: &mut Vec<Moved>,
) -> Result<usize, String> {
    let mut questions = Vec::new();
    for function in &declared.functions {
        questions.push(Question {
            line: format!(
                "static_assert(alike<decltype(&::{}), {}>::value, \"\");",
                function.name, function.ty
            ),
            what: function.name.clone(),
            ours: function.place.clone(),
            theirs: tree.place_of(&function.name),
        });
    }
    for (structure, field) in declared.structures.iter().flat_map(|of| of.fields.iter().map(move |f| (of, f)))
    {
        questions.push(Question {
            line: format!(
                "static_assert(alike<decltype({}::{}), {}>::value, \"\");",
                structure.name, field.name, field.ty
            ),
            what: format!("{}.{}", structure.name, field.name),
            ours: field.place.clone(),
            theirs: tree.place_of_field(&structure.name, &field.name),
        });
    }
    for (at, number) in declared.numbers.iter().enumerate() {
        questions.push(Question {
            line: format!("constexpr auto number_{at} = {};", number.name),
            what: number.name.clone(),
            ours: number.place.clone(),
            theirs: tree.place_of(&number.name),
        });
    }
    let asked = questions.len();
    let mut here = Vec::new();
    let gone = ask(compiler, tree, questions, &mut here)?;
    values(compiler, tree, declared, &gone, &mut here)?;
    drop_known(compiler, tree, declared, &mut here)?;
    moved.append(&mut here);
    Ok(asked)
}

/// Takes structures out that the tree has in a layout which `layout.rs` knows, and versions of the interface.
fn drop_known(
    compiler: &Compiler,
    tree: &Tree,
    declared: &Declared,
    moved: &mut Vec<Moved>,
) -> Result<(), String> {
    for other in &declared.known {
        let of_it =
            |one: &Moved| one.name() == other.name || one.name().starts_with(&format!("{}.", other.name));
        if moved.iter().any(of_it) {
            let mut differs = Vec::new();
            let alone = Declared { structures: vec![other.clone()], ..Declared::default() };
            compare(compiler, tree, &alone, &mut differs)?;
            if differs.is_empty() {
                moved.retain(|one| !of_it(one));
            }
        }
    }
    if tree.number("GGML_BACKEND_API_VERSION").is_some_and(|is| declared.known_versions.contains(&is)) {
        moved.retain(|one| one.name() != "GGML_BACKEND_API_VERSION");
    }
    Ok(())
}

/// The includes, without headers that the tree lacks.
pub fn includes(tree: &Tree, moved: &mut Vec<Moved>) -> String {
    let mut text = String::new();
    for header in HEADERS {
        match tree.path(header).is_file() {
            true => drop(writeln!(text, "#include \"{}\"", tree.path(header).display())),
            false => moved.push(Moved::new("crates/xtask/src/pin/tree.rs", header, header, "is not there")),
        }
    }
    text + PRELUDE
}

/// Asks, and notes what has moved. Returns what is not there, or of another type.
fn ask(
    compiler: &Compiler,
    tree: &Tree,
    questions: Vec<Question>,
    moved: &mut Vec<Moved>,
) -> Result<BTreeSet<String>, String> {
    let mut text = includes(tree, moved);
    let before = text.lines().count();
    for question in &questions {
        text += &question.line;
        text.push('\n');
    }
    let mut answers: BTreeMap<usize, String> = BTreeMap::new();
    for complaint in compiler.check(tree, "declared.cpp", &text)? {
        let of = complaint.line.checked_sub(before + 1).filter(|&at| at < questions.len());
        match of.filter(|_| complaint.file.ends_with("declared.cpp")) {
            Some(at) => drop(answers.entry(at).or_insert(complaint.what)),
            None => {
                return Err(format!(
                    "the headers cannot be compiled: {}:{}: {}",
                    complaint.file, complaint.line, complaint.what
                ));
            }
        }
    }
    let mut gone = BTreeSet::new();
    for (at, question) in questions.into_iter().enumerate() {
        let Some(answer) = answers.get(&at) else { continue };
        let what = match answer.contains("static assertion failed") {
            true => "has another type",
            false => "is not there",
        };
        moved.push(Moved::new(&question.ours, &question.theirs, &question.what, what));
        gone.insert(question.what);
    }
    Ok(gone)
}

/// Compares numbers, offsets and sizes of what is there.
fn values(
    compiler: &Compiler,
    tree: &Tree,
    declared: &Declared,
    gone: &BTreeSet<String>,
    moved: &mut Vec<Moved>,
) -> Result<(), String> {
    let mut text = includes(tree, &mut Vec::new());
    for (at, structure) in declared.structures.iter().enumerate() {
        let _ = writeln!(text, "struct ours_{at} {{");
        for field in &structure.fields {
            let _ = writeln!(text, "    {} {};", field.ty, field.name);
        }
        text += "};\n";
    }
    text += "int main() {\n";
    let mut print = |name: &str, value: &str| {
        let _ = writeln!(text, "printf(\"{name} %lld\\n\", (long long) ({value}));");
    };
    for number in declared.numbers.iter().filter(|number| !gone.contains(&number.name)) {
        print(&number.name, &number.name);
    }
    for (at, structure) in declared.structures.iter().enumerate() {
        let name = &structure.name;
        let there = structure.fields.iter().filter(|field| !gone.contains(&format!("{name}.{}", field.name)));
        let mut any = false;
        for field in there {
            any = true;
            print(&format!("{name}.{}", field.name), &format!("offsetof({name}, {})", field.name));
            print(&format!("{name}.{}:ours", field.name), &format!("offsetof(ours_{at}, {})", field.name));
        }
        if any {
            print(name, &format!("sizeof({name})"));
            print(&format!("{name}:ours"), &format!("sizeof(ours_{at})"));
        }
    }
    text += "}\n";
    let printed = compiler.run(tree, "values.cpp", &text)?;
    let values: BTreeMap<&str, i64> = printed
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    for number in &declared.numbers {
        if let Some(&theirs) = values.get(number.name.as_str()).filter(|&&theirs| theirs != number.value) {
            let what = format!("is {theirs}, here {}", number.value);
            moved.push(Moved::new(&number.place, &tree.place_of(&number.name), &number.name, &what));
        }
    }
    for structure in &declared.structures {
        layout(tree, structure, &values, moved);
    }
    Ok(())
}

/// Compares one structure: names fields whose order has changed; if none has, the first at another offset.
fn layout(tree: &Tree, structure: &Structure, values: &BTreeMap<&str, i64>, moved: &mut Vec<Moved>) {
    let name = &structure.name;
    let value = |field: &str, side: &str| values.get(format!("{name}.{field}{side}").as_str()).copied();
    let fields: Vec<_> = structure
        .fields
        .iter()
        .filter_map(|field| Some((field, value(&field.name, "")?, value(&field.name, ":ours")?)))
        .collect();
    let offsets: Vec<i64> = fields.iter().map(|(_, theirs, _)| *theirs).collect();
    let in_order = longest_ascent(&offsets);
    let out_of_order: Vec<_> = (0..fields.len()).filter(|at| !in_order.contains(at)).collect();
    let mut say = |at: usize, what: &str| {
        let (field, theirs, ours) = fields[at];
        let what = format!("{what}: at byte {theirs}, here {ours}");
        let place = tree.place_of_field(name, &field.name);
        moved.push(Moved::new(&field.place, &place, &format!("{name}.{}", field.name), &what));
    };
    if !out_of_order.is_empty() {
        out_of_order.into_iter().for_each(|at| say(at, "has moved"));
        return;
    }
    if fields.len() < structure.fields.len() {
        // What follows a field that is gone lies elsewhere for that reason.
        return;
    }
    if let Some(at) = fields.iter().position(|(_, theirs, ours)| theirs != ours) {
        say(at, "has something new before it");
        return;
    }
    let size = |side: &str| values.get(format!("{name}{side}").as_str()).copied();
    if let (Some(theirs), Some(ours)) = (size(""), size(":ours"))
        && theirs != ours
    {
        let what = format!("has another end: {theirs} bytes, here {ours}");
        moved.push(Moved::new(&structure.place, &tree.place_of(name), name, &what));
    }
}

/// The indices of a longest ascending part of a sequence.
fn longest_ascent(values: &[i64]) -> Vec<usize> {
    // For each index: the length of the longest that ends there, and what comes before.
    let mut best: Vec<(usize, Option<usize>)> = Vec::new();
    for (at, value) in values.iter().enumerate() {
        let before =
            (0..at).filter(|&other| values[other] < *value).max_by_key(|&other| (best[other].0, other));
        best.push((before.map_or(1, |other| best[other].0 + 1), before));
    }
    let mut at = (0..values.len()).max_by_key(|&at| best[at].0);
    let mut indices = Vec::new();
    while let Some(index) = at {
        indices.push(index);
        at = best[index].1;
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_values_are_out_of_order() {
        let out = |values: &[i64]| {
            let kept = longest_ascent(values);
            (0..values.len()).filter(|at| !kept.contains(at)).collect::<Vec<_>>()
        };
        assert_eq!(out(&[0, 8, 16, 24]), [0; 0]);
        assert_eq!(out(&[8, 16, 24, 0]), [3]);
        assert_eq!(out(&[24, 0, 8, 16]), [0]);
        assert_eq!(out(&[]), [0; 0]);
    }
}
