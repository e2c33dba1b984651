//! Which file's bytes lie at an address of this process, by the kernel's list of its mappings.

use std::path::Path;
use terrace_platform::input_file;

/// Largest list, in bytes: a mapping takes about a hundred, and a process has up to 65,530.
const MAX_BYTES: u64 = 64 << 20;

/// A mapped range of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    start: usize,
    end: usize,
    /// Offset in the file of the byte at `start`.
    offset: u64,
    /// Number of the device and the inode.
    device: u64,
    inode: u64,
    read_only: bool,
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the device and the inode.
    pub file: (u64, u64),
    /// Offset in bytes.
    pub offset: u64,
    /// Bytes from there to the end of the mapped range.
    pub len: u64,
    /// Whether the process can only read there.
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
            file: (mapping.device, mapping.inode),
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
    let device = libc::makedev(number(major)?, number(minor)?);
    let address = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    (inode != 0).then_some(Mapping {
        start,
        end,
        offset,
        device,
        inode,
        read_only: permissions.as_bytes().get(1) == Some(&b'-'),
    })
}
