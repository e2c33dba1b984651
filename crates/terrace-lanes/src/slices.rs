//! Slices of experts along the FFN dimension: the borders, and each device's part of an expert's
//! bytes.

use super::lane::bundle;
use std::ops::Range;
use terrace_ggml::devices::experts::SlotShape;
use terrace_model::ByteSize;

/// Borders in the FFN dimension: device `i` has the elements from border `i` to the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Borders(pub Vec<u64>);

impl Borders {
    /// Computes equal parts, rounded down to whole blocks of all matrices. Only the last matrix is
    /// cut within its rows, so its own blocks would suffice; but this way borders stay in place
    /// while the types of the other matrices change.
    pub fn of(matrices: &[SlotShape], devices: usize) -> Self {
        // Block sizes are powers of two: the largest is a multiple of the others.
        let block = matrices.iter().map(|matrix| matrix.ty.block_elements()).max().unwrap_or(1);
        let (all, devices) = (ffn(matrices), devices as u64);
        let inner = (0..devices).map(|device| all * device / devices / block * block);
        Self(inner.chain([all]).collect())
    }

    /// Each device with its range of elements.
    pub fn parts(&self) -> impl Iterator<Item = (usize, Range<u64>)> {
        self.0.windows(2).map(|borders| borders[0]..borders[1]).enumerate()
    }

    /// The devices whose range is not empty.
    pub fn used(&self) -> impl Iterator<Item = (usize, Range<u64>)> {
        self.parts().filter(|(_, range)| !range.is_empty())
    }
}

/// Size of the FFN dimension.
pub fn ffn(matrices: &[SlotShape]) -> u64 {
    matrices.last().map_or(0, |down| down.inner)
}

/// Shapes of a device's slice of an expert's matrices.
pub fn slice(matrices: &[SlotShape], range: &Range<u64>) -> Vec<SlotShape> {
    let (len, all) = (range.end - range.start, ffn(matrices).max(1));
    let last = matrices.len().saturating_sub(1);
    let of = |(index, matrix): (usize, &SlotShape)| {
        if index == last {
            SlotShape { inner: len, ..*matrix }
        } else {
            // Gate and up may be one matrix.
            SlotShape { rows: matrix.rows / all * len, ..*matrix }
        }
    };
    matrices.iter().enumerate().map(of).collect()
}

/// Bytes of an expert on the device with the largest slice.
pub fn largest_slice(matrices: &[SlotShape], devices: usize) -> ByteSize {
    let bytes = |(_, range)| bundle(&slice(matrices, &range));
    Borders::of(matrices, devices).parts().map(bytes).max().unwrap_or_default()
}

/// Appends a device's slice of matrix `matrix` of an expert, whose bytes are given.
pub fn cut_out(matrices: &[SlotShape], matrix: usize, range: &Range<u64>, bytes: &[u8], to: &mut Vec<u8>) {
    let at = |n: u64| usize::try_from(n).expect("a matrix in memory");
    let shape = &matrices[matrix];
    let row = bytes.len() / at(shape.rows);
    if matrix + 1 == matrices.len() {
        let columns = at(range.start) * row / at(shape.inner)..at(range.end) * row / at(shape.inner);
        to.extend(bytes.chunks_exact(row).flat_map(|row| &row[columns.clone()]));
    } else {
        let rows = at(range.start) * row..at(range.end) * row;
        to.extend(bytes.chunks_exact(at(ffn(matrices)) * row).flat_map(|part| &part[rows.clone()]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_ggml::DataType;

    fn matrices(ffn: u64, down: DataType) -> [SlotShape; 2] {
        // Gate and up in one matrix.
        let gate_up = SlotShape { ty: DataType::F32, inner: 4, rows: 2 * ffn };
        [gate_up, SlotShape { ty: down, inner: ffn, rows: 3 }]
    }

    #[test]
    fn borders_are_whole_blocks_of_all_matrices() {
        let cut = |ffn, down, devices| Borders::of(&matrices(ffn, down), devices).0;
        assert_eq!(cut(768, DataType::F32, 2), [0, 384, 768]);
        assert_eq!(cut(768, DataType::Q4_K, 2), [0, 256, 768]);
        assert_eq!(cut(768, DataType::Q4_K, 3), [0, 256, 512, 768]);
        assert_eq!(cut(256, DataType::Q4_K, 2), [0, 0, 256], "one device has all");
        let mut wide = matrices(768, DataType::F32);
        wide[0].ty = DataType::Q6_K;
        assert_eq!(Borders::of(&wide, 2).0, [0, 256, 768], "a sibling's blocks");
        assert_eq!(largest_slice(&matrices(768, DataType::F32), 2), ByteSize((2 * 384 * 4 + 384 * 3) * 4));
    }

    #[test]
    fn slices_are_rows_of_the_first_and_columns_of_the_last() {
        let matrices = matrices(6, DataType::F32);
        let of = |matrix: usize, range| {
            let shape = &matrices[matrix];
            let elements: Vec<u8> = (0..shape.inner * shape.rows).flat_map(|n| [n as u8; 4]).collect();
            let mut out = Vec::new();
            cut_out(&matrices, matrix, &range, &elements, &mut out);
            out.chunks_exact(4).map(|element| element[0]).collect::<Vec<u8>>()
        };
        // Rows 4 and 5 of gate, of four elements each, and of up.
        assert_eq!(of(0, 4..6), (16..24).chain(40..48).collect::<Vec<u8>>());
        assert_eq!(of(1, 4..6), [4, 5, 10, 11, 16, 17]);
        let slices = slice(&matrices, &(4..6));
        assert_eq!([slices[0].rows, slices[1].inner], [4, 2]);
    }
}
