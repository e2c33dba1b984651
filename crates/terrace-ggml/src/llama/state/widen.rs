//! Sliding windows in a copy of a sequence.
//!
//! llama.cpp leaves the cells out that no later token sees. Put back, the others would come to lie
//! at the beginning of the cache, and attention, which adds up in pieces of the cache, would round
//! differently. Blank cells in their place keep all cells where they were: they are masked, so that
//! their contents do not matter.
//!
//! A copy is a head of 8 bytes, then one part or two of keys and values (with windows: all
//! positions first, then those of layers with windows), then recurrent states. A part has the number
//! of streams and, for each stream, the number of its cells; if there are some: position, number of
//! sequences (1) and sequence of each cell, then its data by layer.

/// Bytes of the number and the sequence at the beginning of a copy.
const HEAD: usize = 8;
/// Bytes of a cell's position, number of sequences and sequence.
const CELL: usize = 12;
/// Bytes of two numbers before the data: how keys and values are rotated. Copies of version 3 and before have none.
const ROTATIONS: usize = if cfg!(has_state_rotations) { 8 } else { 0 };
/// Most layers, streams, and bytes of a cell in a layer that are taken for real.
const MOST_LAYERS: u32 = 4096;
const MOST_STREAMS: u32 = 4096;
const MOST_ROW: u64 = 1 << 24;

/// A copy with blank cells.
pub struct Widened {
    pub bytes: Vec<u8>,
    /// The first position that is not blank.
    pub first: u32,
}

/// Adds blank cells to a copy of a sequence of `tokens` tokens. `None` if no window has left any
/// behind, or the copy has another form.
pub fn widened(bytes: &[u8], tokens: u32) -> Option<Widened> {
    let mut rest = Reader { bytes, at: 0 };
    rest.take(HEAD)?;
    let (mut first, mut parts) = (0, Vec::new());
    while let Some(part) = CellRun::read(&mut rest.clone()) {
        rest.at = part.end;
        first = first.max(part.first);
        parts.push(part);
        if parts.len() == 2 {
            break;
        }
    }
    if first == 0 || parts.iter().any(|part| part.first + part.cells != tokens) {
        return None;
    }
    let more: usize = parts.iter().map(|part| part.first as usize * part.cell_bytes()).sum();
    let mut out = Vec::new();
    out.try_reserve_exact(bytes.len() + more).ok()?;
    let mut done = 0;
    for part in &parts {
        out.extend_from_slice(&bytes[done..part.begin]);
        part.write(bytes, &mut out);
        done = part.end;
    }
    out.extend_from_slice(&bytes[done..]);
    Some(Widened { bytes: out, first })
}

#[derive(Clone)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_ne_bytes)
    }
}

/// A run of a part's data: `rows` times `cell` bytes for each cell, after `head` bytes.
struct Run {
    head: usize,
    cell: usize,
    rows: usize,
}

/// Keys and values of consecutive positions, all in one stream.
struct CellRun {
    begin: usize,
    end: usize,
    /// Offset of the number of cells.
    count: usize,
    /// Its cells' sequence.
    sequence: u32,
    first: u32,
    cells: u32,
    runs: Vec<Run>,
}

impl CellRun {
    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let begin = from.at;
        let streams = from.u32().filter(|n| (1..=MOST_STREAMS).contains(n))?;
        let mut part = None;
        for _ in 0..streams {
            let count = from.at;
            let cells = from.u32()?;
            match (cells, &part) {
                (0, _) => {}
                (_, None) => part = Some(Self::stream(from, begin, count, cells)?),
                (_, Some(_)) => return None,
            }
        }
        part.map(|part| Self { end: from.at, ..part })
    }

    fn stream(from: &mut Reader<'_>, begin: usize, count: usize, cells: u32) -> Option<Self> {
        let (mut first, mut of) = (0, 0);
        for i in 0..cells {
            let (position, sequences, sequence) = (from.u32()?, from.u32()?, from.u32()?);
            if i == 0 {
                (first, of) = (position, sequence);
            }
            if sequences != 1 || sequence != of || position.checked_sub(first) != Some(i) {
                return None;
            }
        }
        let (transposed, layers) = (from.u32()?, from.u32()?);
        from.take(ROTATIONS)?;
        if transposed > 1 || layers > MOST_LAYERS {
            return None;
        }
        let mut runs = Vec::new();
        for _ in 0..layers {
            runs.push(rows(from, cells, 16 * usize::from(runs.is_empty()))?);
        }
        for _ in 0..layers {
            runs.push(if transposed == 1 { columns(from, cells)? } else { rows(from, cells, 0)? });
        }
        Some(Self { begin, end: from.at, count, sequence: of, first, cells, runs })
    }

    /// Bytes that a cell takes.
    fn cell_bytes(&self) -> usize {
        CELL + self.runs.iter().map(|run| run.cell * run.rows).sum::<usize>()
    }

    /// Writes the part with blank cells for the positions before its first one.
    fn write(&self, bytes: &[u8], out: &mut Vec<u8>) {
        let (blank, cells) = (self.first as usize, self.cells as usize);
        out.extend_from_slice(&bytes[self.begin..self.count]);
        out.extend_from_slice(&(self.first + self.cells).to_ne_bytes());
        for position in 0..self.first {
            for number in [position, 1, self.sequence] {
                out.extend_from_slice(&number.to_ne_bytes());
            }
        }
        let mut at = self.count + 4;
        let mut copy = |n: usize, out: &mut Vec<u8>| {
            out.extend_from_slice(&bytes[at..at + n]);
            at += n;
        };
        copy(cells * CELL, out);
        for run in &self.runs {
            copy(run.head, out);
            for _ in 0..run.rows {
                out.resize(out.len() + blank * run.cell, 0);
                copy(cells * run.cell, out);
            }
        }
        out.extend_from_slice(&bytes[at..self.end]);
    }
}

/// Reads a layer's rows, one for each cell. `before` is the length of what precedes the layer.
fn rows(from: &mut Reader<'_>, cells: u32, before: usize) -> Option<Run> {
    from.u32()?;
    let cell = usize::try_from(from.u64().filter(|n| *n <= MOST_ROW)?).ok()?;
    from.take(cell.checked_mul(cells as usize)?)?;
    Some(Run { head: before + 12, cell, rows: 1 })
}

/// Reads a layer's values, one row for each of their elements.
fn columns(from: &mut Reader<'_>, cells: u32) -> Option<Run> {
    from.u32()?;
    let cell = from.u32()? as usize;
    let rows = from.u32()? as usize;
    if (cell * rows) as u64 > MOST_ROW {
        return None;
    }
    from.take(cell.checked_mul(rows)?.checked_mul(cells as usize)?)?;
    Some(Run { head: 12, cell, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part of two layers, whose cells hold their positions.
    fn part(positions: std::ops::Range<u32>, transposed: bool, blank_before: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |numbers: &[u32]| numbers.iter().for_each(|n| out.extend(n.to_ne_bytes()));
        let cells = positions.clone().count() as u32;
        put(&[3, 0, cells]);
        positions.clone().for_each(|position| put(&[position, 1, 1]));
        put(&[transposed.into(), 2]);
        put(&[0; ROTATIONS / 4]);
        let value = |position: u32| if position < blank_before { 0 } else { position };
        for _ in 0..2 {
            put(&[1, 4, 0]);
            positions.clone().for_each(|position| put(&[value(position)]));
        }
        for _ in 0..2 {
            if transposed {
                put(&[1, 4, 2]);
                positions.clone().chain(positions.clone()).for_each(|position| put(&[value(position)]));
            } else {
                put(&[1, 4, 0]);
                positions.clone().for_each(|position| put(&[value(position)]));
            }
        }
        put(&[0]);
        out
    }

    #[test]
    fn blank_cells_take_the_place_of_those_that_were_left_out() {
        let states = [7_u8; 33];
        for transposed in [false, true] {
            let whole = part(0..10, transposed, 0);
            for (parts, wide) in [
                (vec![whole.clone(), part(6..10, transposed, 0)], vec![whole, part(0..10, transposed, 6)]),
                (vec![part(6..10, transposed, 0)], vec![part(0..10, transposed, 6)]),
            ] {
                let copy = [&[9; HEAD][..], &parts.concat(), &states].concat();
                let widened = widened(&copy, 10).expect("a window");
                assert_eq!(widened.first, 6);
                assert!(widened.bytes == [&[9; HEAD][..], &wide.concat(), &states].concat());
            }
        }
    }

    #[test]
    fn other_copies_are_left_alone() {
        let whole = [&[9; HEAD][..], &part(0..10, false, 0)].concat();
        assert!(widened(&whole, 10).is_none());
        let window = [&[9; HEAD][..], &part(6..10, false, 0)].concat();
        // Of another length, and cut off anywhere.
        assert!(widened(&window, 11).is_none());
        for cut in 0..window.len() {
            assert!(widened(&window[..cut], 10).is_none(), "{cut}");
        }
        assert!(widened(&[0xff; 100], 10).is_none());
    }
}
