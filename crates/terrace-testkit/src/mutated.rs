//! Files as an attacker would write them: well-formed, with values that contradict each other or the
//! model.
//!
//! [`hostile`](crate::hostile) damages the form of a file; these change what it says. A seed makes
//! the same bytes each time.

use crate::random::stream;
use rand_distr::{Distribution, Uniform};
use rand_pcg::Pcg64;

/// Random choices.
struct Choice(Pcg64);

impl Choice {
    fn new(seed: u64, name: &str) -> Self {
        Self(stream(seed, name, 0))
    }

    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        Uniform::new(0, n.max(1)).expect("not empty").sample(&mut self.0)
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// A name of a megabyte.
const LONG: usize = 1 << 20;

/// A value of a metadata entry: its type's number and its bytes; of an array, those of its elements.
#[derive(Clone)]
enum Value {
    Plain(u32, Vec<u8>),
    Array(u32, Vec<Vec<u8>>),
}

#[derive(Clone)]
struct Tensor {
    name: Vec<u8>,
    dims: Vec<u64>,
    ty: u32,
    offset: u64,
}

struct Contents {
    entries: Vec<(Vec<u8>, Value)>,
    tensors: Vec<Tensor>,
    data: Vec<u8>,
}

const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Takes fields from a good file.
struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, n: usize) -> Vec<u8> {
        let taken = self.bytes[self.at..self.at + n].to_vec();
        self.at += n;
        taken
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().expect("eight bytes"))
    }

    fn len(&mut self) -> usize {
        usize::try_from(self.u64()).expect("of a good file")
    }

    fn text(&mut self) -> Vec<u8> {
        let len = self.len();
        self.take(len)
    }

    fn plain(&mut self, ty: u32) -> Vec<u8> {
        match ty {
            0 | 1 | 7 => self.take(1),
            2 | 3 => self.take(2),
            4..=6 => self.take(4),
            STRING => self.text(),
            _ => self.take(8),
        }
    }

    fn value(&mut self) -> Value {
        let ty = self.u32();
        if ty != ARRAY {
            return Value::Plain(ty, self.plain(ty));
        }
        let (ty, len) = (self.u32(), self.len());
        Value::Array(ty, (0..len).map(|_| self.plain(ty)).collect())
    }
}

impl Contents {
    fn read(bytes: &[u8]) -> Self {
        let mut from = Reader { bytes, at: 8 };
        let (tensors, entries) = (from.u64(), from.u64());
        let entries = (0..entries).map(|_| (from.text(), from.value())).collect();
        let tensor = |from: &mut Reader<'_>| {
            let name = from.text();
            let dims = (0..from.u32()).map(|_| from.u64()).collect();
            Tensor { name, dims, ty: from.u32(), offset: from.u64() }
        };
        let tensors = (0..tensors).map(|_| tensor(&mut from)).collect();
        let data = bytes[from.at.next_multiple_of(32).min(bytes.len())..].to_vec();
        Self { entries, tensors, data }
    }

    fn write(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        let text = |out: &mut Vec<u8>, text: &[u8]| {
            out.extend((text.len() as u64).to_le_bytes());
            out.extend(text);
        };
        let plain = |out: &mut Vec<u8>, ty: u32, value: &[u8]| match ty {
            STRING => text(out, value),
            _ => out.extend(value),
        };
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.entries.len() as u64).to_le_bytes());
        for (key, value) in &self.entries {
            text(&mut out, key);
            match value {
                Value::Plain(ty, value) => {
                    out.extend(ty.to_le_bytes());
                    plain(&mut out, *ty, value);
                }
                Value::Array(ty, values) => {
                    out.extend(ARRAY.to_le_bytes());
                    out.extend(ty.to_le_bytes());
                    out.extend((values.len() as u64).to_le_bytes());
                    values.iter().for_each(|value| plain(&mut out, *ty, value));
                }
            }
        }
        for Tensor { name, dims, ty, offset } in &self.tensors {
            text(&mut out, name);
            out.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(ty.to_le_bytes());
            out.extend(offset.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(&self.data);
        out
    }
}

/// Texts that names and values become.
fn texts() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 8] =
        [b"", b"llama", b"clip", b"gpt2", b"a\n\x1b[2J", b"\xff\xfe", "\u{202e}\u{9b}".as_bytes(), b"%s%n"];
    let mut texts: Vec<Vec<u8>> = texts.iter().map(|text| text.to_vec()).collect();
    texts.push(vec![b'x'; LONG]);
    texts
}

/// Changes one to three things in a GGUF file: shapes, types, offsets and names of tensors, metadata,
/// weights, or the length of the data.
pub fn gguf(good: &[u8], seed: u64) -> Vec<u8> {
    let mut choice = Choice::new(seed, "gguf");
    let mut file = Contents::read(good);
    for _ in 0..choice.of(&[1, 1, 1, 2, 3]) {
        if choice.below(2) == 0 && !file.tensors.is_empty() {
            of_tensors(&mut file, &mut choice);
        } else if !file.entries.is_empty() {
            of_metadata(&mut file, &mut choice);
        }
    }
    file.write()
}

fn of_tensors(file: &mut Contents, choice: &mut Choice) {
    let (first, last) = (file.tensors[0].clone(), file.tensors[file.tensors.len() - 1].clone());
    let (index, len) = (choice.below(file.tensors.len()), file.data.len());
    let tensor = &mut file.tensors[index];
    match choice.below(9) {
        0 if !tensor.dims.is_empty() => {
            let dim = choice.below(tensor.dims.len());
            let more = tensor.dims[dim].wrapping_add(1);
            tensor.dims[dim] =
                choice.of(&[0, 1, 2, 3, 7, 1 << 31, 1 << 40, 1 << 62, 1 << 63, u64::MAX, more]);
        }
        1 => tensor.ty = choice.of(&(0..45).chain([1 << 31, u32::MAX]).collect::<Vec<_>>()),
        2 => {
            let end = (len as u64).next_multiple_of(32);
            tensor.offset =
                choice.of(&[0, 32, 7, first.offset, last.offset, end, end - 32, 1 << 40, 1 << 63]);
        }
        3 => {
            let mut names = texts();
            names.push(first.name);
            names.push([&tensor.name[..], b".weight"].concat());
            names.push(vec![b'x'; 63]);
            tensor.name = choice.of(&names);
        }
        4 => {
            tensor.dims.extend([1; 4]);
            tensor.dims.truncate(1 + choice.below(4));
        }
        5 => tensor.dims.reverse(),
        6 if file.tensors.len() > 1 => drop(file.tensors.remove(index)),
        7 if len >= 4 => {
            let at = choice.below(len / 4) * 4;
            let weight = choice.of(&[f32::NAN, f32::INFINITY, -1.0, 1e38, 0.0]);
            file.data[at..at + 4].copy_from_slice(&weight.to_le_bytes());
        }
        _ => file.data.truncate(choice.below(len)),
    }
}

fn of_metadata(file: &mut Contents, choice: &mut Choice) {
    let index = choice.below(file.entries.len());
    let numbers: Vec<[u8; 4]> = [0u32, 1, 3, 100_000, 1 << 31, u32::MAX]
        .map(u32::to_le_bytes)
        .into_iter()
        .chain([f32::NAN, f32::INFINITY, -1.0, 1e-30].map(f32::to_le_bytes))
        .collect();
    let small = (choice.below(100) as u32).to_le_bytes().to_vec();
    match (choice.below(8), &mut file.entries[index].1) {
        (0, _) => drop(file.entries.remove(index)),
        (1, value) => *value = Value::Plain(4, small),
        (2, value) => *value = Value::Plain(STRING, choice.of(&texts())),
        (3, value) => *value = Value::Array(6, vec![choice.of(&numbers).to_vec(); 3]),
        (_, Value::Plain(STRING, text)) => *text = choice.of(&texts()),
        (_, Value::Plain(_, number)) if number.len() == 4 => *number = choice.of(&numbers).to_vec(),
        (_, Value::Plain(7, truth)) => truth[0] ^= 1,
        (_, Value::Plain(_, number)) => number.fill(choice.of(&[0, 1, 0x7f, 0xff])),
        (4, Value::Array(_, values)) => values.truncate(choice.below(3)),
        (5, Value::Array(_, values)) => *values = std::iter::repeat_n(values.clone(), 50).flatten().collect(),
        (_, Value::Array(ty, values)) if (4..=6).contains(ty) => {
            values.iter_mut().for_each(|value| *value = choice.of(&numbers).to_vec());
        }
        (_, Value::Array(..)) => file.entries[index].1 = Value::Array(STRING, vec![b"a".to_vec(); 3]),
    }
}

/// Changes a few lines of a text, or the bytes of a file without a known form.
pub fn bytes(good: &[u8], seed: u64) -> Vec<u8> {
    let mut choice = Choice::new(seed, "bytes");
    let mut file = good.to_vec();
    for _ in 0..choice.of(&[1, 1, 2, 4]) {
        let anywhere = choice.below(file.len() + 1);
        let at = choice.of(&[0, 4.min(file.len()), anywhere, anywhere]);
        let inserted: [&[u8]; 10] =
            [b"\xff", b"\0", b"\n", b"=", b"(", b"[", b"{999999999}", b"\xff\xff\xff\x7f", b"nan", b"-"];
        match choice.below(7) {
            0 => drop(file.splice(at..at, choice.of(&inserted).iter().copied())),
            1 => drop(file.splice(at..at, std::iter::repeat_n(b'a', LONG))),
            2 => file.truncate(at),
            3 => drop(file.splice(at..at, b"x=q4_K\n".repeat(20_000))),
            4 => drop(file.splice(at..at, std::iter::repeat_n(b'(', 5000))),
            5 if at + 4 <= file.len() => {
                let numbers = [0, 1, -1, 5000, i32::MAX, i32::MIN, f32::NAN.to_bits() as i32];
                file[at..at + 4].copy_from_slice(&choice.of(&numbers).to_le_bytes());
            }
            _ => drop(file.splice(at..at, "\u{202e}\u{9b}".bytes())),
        }
    }
    file
}

/// Changes one to three values of a JSON text: numbers that do not fit, other types, deep nesting,
/// names of a megabyte.
pub fn json(good: &str, seed: u64) -> String {
    let mut choice = Choice::new(seed, "json");
    let mut text = good.to_owned();
    for _ in 0..choice.of(&[1, 1, 2, 3]) {
        let (start, end) = value(&text, &mut choice);
        let long = format!("\"{}\"", "x".repeat(LONG));
        let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
        let values = [
            "null",
            "0",
            "-1",
            "1",
            "3",
            "0.5",
            "2147483648",
            "4294967295",
            "18446744073709551615",
            "1e308",
            "-1e308",
            "1e999",
            "5e-324",
            "NaN",
            "\"\"",
            "\"\\u202e\\u009b\\n\"",
            "[]",
            "{}",
            "true",
            "\"0\"",
            "\"blk.0.attn_q.weight\"",
            "{\"a\":1}",
            "",
            &long,
            &deep,
        ];
        text.replace_range(start..end, choice.of(&values));
    }
    text
}

/// The place of a scalar of a JSON text: a string, which may be a key, or a number or word.
fn value(text: &str, choice: &mut Choice) -> (usize, usize) {
    let bytes = text.as_bytes();
    let mut scalars = Vec::new();
    let mut at = 0;
    while at < bytes.len() && scalars.len() < 100_000 {
        let start = at;
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
                at = (at + 1).min(bytes.len());
                scalars.push((start, at));
            }
            b'-' | b'0'..=b'9' | b'a'..=b'z' => {
                while at < bytes.len() && !b",]} \n\t\r:".contains(&bytes[at]) {
                    at += 1;
                }
                scalars.push((start, at));
            }
            _ => at += 1,
        }
    }
    scalars.retain(|&(start, end)| text.is_char_boundary(start) && text.is_char_boundary(end));
    if scalars.is_empty() { (0, text.len()) } else { choice.of(&scalars) }
}
