//! Which file's bytes lie at an address of this process, by the kernel's list of its mappings.

use crate::file::FileId;
use crate::input_file;
use std::path::Path;

/// Largest list, in bytes: a mapping takes about a hundred, and a process has up to 65,530.
const MAX_BYTES: u64 = 64 << 20;

/// A mapped range of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    start: usize,
    end: usize,
    /// Offset in the file of the byte at `start`.
    offset: u64,
    file: FileId,
    read_only: bool,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: FileId,
    /// Offset in bytes.
    pub offset: u64,
    /// Bytes from there to the end of the mapped range.
    pub len: u64,
    /// True if the process can only read there.
    pub read_only: bool,
}

/// All mapped ranges of files at one time.
#[derive(Clone, Debug, Default)]
pub struct Maps(Vec<Mapping>);

impl Maps {
    /// The ranges of this process; none if the kernel does not tell them.
    pub fn of_process() -> Self {
        Self::parse(&input_file::read_regular(Path::new("/proc/self/maps"), MAX_BYTES).unwrap_or_default())
    }

    /// Reads lines of the form `start-end rwxp offset major:minor inode path`, in ascending order.
    /// Memory without a file is left out.
    pub fn parse(text: &[u8]) -> Self {
        let lines = text.split(|&byte| byte == b'\n');
        Self(lines.filter_map(|line| mapping(&String::from_utf8_lossy(line))).collect())
    }

    /// The file that an address is mapped from; `None` if it is memory of the process.
    pub fn find(&self, address: usize) -> Option<Place> {
        let after = self.0.partition_point(|mapping| mapping.start <= address);
        let mapping = self.0.get(after.checked_sub(1)?)?;
        (address < mapping.end).then(|| Place {
            file: mapping.file,
            offset: mapping.offset + (address - mapping.start) as u64,
            len: (mapping.end - address) as u64,
            read_only: mapping.read_only,
        })
    }
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode: u64 = fields.next()?.parse().ok()?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    let address = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    (inode != 0).then_some(Mapping {
        start,
        end,
        offset,
        file: FileId { device, number: inode },
        read_only: permissions.as_bytes().get(1) == Some(&b'-'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_map::FileMap;
    use std::io::Write;

    #[test]
    fn lines_are_read_and_addresses_found() {
        let text = b"1000-3000 r--s 00005000 fd:01 77                        /a model (deleted).gguf\n\
            3000-4000 rw-p 00000000 00:00 0                          [heap]\n\
            7f0000000000-7f0000001000 rw-p 00001000 08:10 12\n\
            not a line\n";
        let maps = Maps::parse(text);
        let model = FileId { device: rustix::fs::makedev(0xfd, 1), number: 77 };
        let place = |offset, len| Some(Place { file: model, offset, len, read_only: true });
        assert_eq!(maps.find(0x1000), place(0x5000, 0x2000));
        assert_eq!(maps.find(0x2fff), place(0x6fff, 1));
        for outside in [0, 0xfff, 0x3000, 0x4000, 0x7f00_0000_1000] {
            assert_eq!(maps.find(outside), None, "{outside:#x}");
        }
        let written = maps.find(0x7f00_0000_0010).unwrap();
        assert_eq!(
            (written.file, written.read_only),
            (FileId { device: rustix::fs::makedev(8, 0x10), number: 12 }, false)
        );
    }

    #[test]
    fn a_mapping_of_this_process_is_that_of_its_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let map = FileMap::of(file.as_file(), 10_000).unwrap();
        let place = Maps::of_process().find(map.base().as_ptr() as usize + 4101).unwrap();
        assert_eq!((place.offset, place.read_only), (4101, true));
        // Some file systems show another device than `stat` tells.
        assert_eq!(place.file.number, FileId::at(file.path()).unwrap().number);
        drop(map);
        let own = Box::new(1u64);
        assert_eq!(Maps::of_process().find(&raw const *own as usize), None);
    }
}
