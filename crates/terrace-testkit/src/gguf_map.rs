//! The offsets of fields in a good GGUF file, so that they can be damaged.

/// A metadata entry.
pub(crate) struct Entry {
    pub key: String,
    /// Offset of the key's length.
    pub start: usize,
    /// Offset of the value's type.
    pub type_at: usize,
    pub type_id: u32,
    pub end: usize,
}

impl Entry {
    /// Returns the offset of the value, which begins with a string's length or an array's element
    /// type.
    pub fn value_at(&self) -> usize {
        self.type_at + 4
    }
}

/// An entry of the tensor table.
pub(crate) struct TensorEntry {
    pub name: String,
    /// Offset of the name's length.
    pub start: usize,
    pub dims_at: usize,
    pub type_at: usize,
    pub offset_at: usize,
}

/// The fields of a file's header.
pub(crate) struct Map {
    pub entries: Vec<Entry>,
    pub tensors: Vec<TensorEntry>,
    /// End of the tensor table, before padding.
    pub header_end: usize,
    /// Offset of the data.
    pub data_at: usize,
    /// Of the data, in bytes.
    pub alignment: usize,
}

/// Offset of the number of tensors.
pub(crate) const TENSOR_COUNT_AT: usize = 8;
/// Offset of the number of metadata entries.
pub(crate) const ENTRY_COUNT_AT: usize = 16;
const ENTRIES_AT: usize = 24;
pub(crate) const UINT32: u32 = 4;
pub(crate) const STRING: u32 = 8;
pub(crate) const ARRAY: u32 = 9;

/// Finds the fields of a good file. The error says what was expected, and at which offset.
pub(crate) fn map(bytes: &[u8]) -> Result<Map, (&'static str, usize)> {
    let mut at = Cursor { bytes, at: 0 };
    if at.take(4)? != b"GGUF" || at.u32()? != 3 {
        return Err(("not a GGUF file of version 3", 0));
    }
    let (tensors, entries) = (at.u64()?, at.u64()?);
    debug_assert_eq!(at.at, ENTRIES_AT);
    let mut alignment = 32;
    let entries = (0..entries).map(|_| {
        let start = at.at;
        let key = at.string()?;
        let type_at = at.at;
        let type_id = at.u32()?;
        let value_at = at.at;
        at.skip_value(type_id)?;
        if key == "general.alignment" {
            alignment = at.at_offset(value_at).u32()? as usize;
        }
        Ok(Entry { key, start, type_at, type_id, end: at.at })
    });
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let tensors = (0..tensors).map(|_| {
        let start = at.at;
        let name = at.string()?;
        let dims_at = at.at;
        let dims = at.u32()? as usize;
        at.take(dims.saturating_mul(8))?;
        let type_at = at.at;
        at.u32()?;
        let offset_at = at.at;
        at.u64()?;
        Ok(TensorEntry { name, start, dims_at, type_at, offset_at })
    });
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    let header_end = at.at;
    let data_at = header_end.checked_next_multiple_of(alignment).ok_or(("an alignment of 0", ENTRIES_AT))?;
    if data_at > bytes.len() {
        return Err(("the header's padding is missing", bytes.len()));
    }
    Ok(Map { entries, tensors, header_end, data_at, alignment })
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], (&'static str, usize)> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..len).ok_or(("the file ends too early", self.bytes.len()))?;
        self.at += len;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, (&'static str, usize)> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    fn u64(&mut self) -> Result<u64, (&'static str, usize)> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    fn at_offset(&self, at: usize) -> Self {
        Self { bytes: self.bytes, at }
    }

    fn string(&mut self) -> Result<String, (&'static str, usize)> {
        let len = usize::try_from(self.u64()?).unwrap_or(usize::MAX);
        Ok(String::from_utf8_lossy(self.take(len)?).into_owned())
    }

    fn skip_value(&mut self, type_id: u32) -> Result<(), (&'static str, usize)> {
        let size = match type_id {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            10..=12 => 8,
            STRING => return self.string().map(drop),
            ARRAY => {
                let (element, count) = (self.u32()?, self.u64()?);
                if element == ARRAY {
                    return Err(("an array of arrays", self.at));
                }
                return (0..count).try_for_each(|_| self.skip_value(element));
            }
            _ => return Err(("unknown value type", self.at)),
        };
        self.take(size).map(drop)
    }
}
