//! The kernel's list of mappings.

#[path = "../../src/maps.rs"]
mod source;

use source::{Maps, Place};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

#[test]
fn lines_are_read_and_addresses_found() {
    let text = b"1000-3000 r--s 00005000 fd:01 77                        /a model (deleted).gguf\n\
        3000-4000 rw-p 00000000 00:00 0                          [heap]\n\
        7f0000000000-7f0000001000 rw-p 00001000 08:10 12\n\
        not a line\n";
    let maps = Maps::parse(text);
    let model = (libc::makedev(0xfd, 1), 77);
    let place = |offset, len| Some(Place { file: model, offset, len, read_only: true });
    assert_eq!(maps.find(0x1000), place(0x5000, 0x2000));
    assert_eq!(maps.find(0x2fff), place(0x6fff, 1));
    for outside in [0, 0xfff, 0x3000, 0x4000, 0x7f00_0000_1000] {
        assert_eq!(maps.find(outside), None, "{outside:#x}");
    }
    let written = maps.find(0x7f00_0000_0010).unwrap();
    assert_eq!((written.file, written.read_only), ((libc::makedev(8, 0x10), 12), false));
}

#[test]
fn a_mapping_of_this_process_is_that_of_its_file() {
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&[7; 10_000]).unwrap();
    let null = std::ptr::null_mut();
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(null, 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_file().as_raw_fd(), 4096)
    };
    assert_ne!(base, libc::MAP_FAILED);
    let meta = file.as_file().metadata().unwrap();
    let place = Maps::of_process().find(base as usize + 5).unwrap();
    assert_eq!((place.offset, place.read_only), (4101, true));
    // Some file systems show another device than `stat` tells.
    assert_eq!(place.file.1, meta.ino());
    // SAFETY: the mapping made above, which nothing uses any more.
    unsafe { libc::munmap(base, 4096) };
    let own = Box::new(1u64);
    assert_eq!(Maps::of_process().find(&raw const *own as usize), None);
}
