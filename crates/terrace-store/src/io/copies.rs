//! The copies of each file, and the choice of the one to read from.
//!
//! A file's first copy is the *original*; replicas on other disks are further ones. A read goes to
//! the disk that would be done with it first: the one with the fewest bytes in flight, with those of
//! the read, by its rate. Disks are counted, not copies, because shards share them.

use std::path::{Path, PathBuf};

/// Most copies of a file, the original included: sets of them are bits of a word.
pub(crate) const MOST_COPIES: usize = 64;
/// The number of the original among a file's copies.
pub(crate) const ORIGINAL: u8 = 0;
/// All copies but the original.
pub(crate) const REPLICAS: u64 = !1;

/// Use of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Reads.
    Used,
    /// Only what no other copy could give: a read of it failed.
    Failed,
    /// Nothing: it is no copy any more.
    Dropped,
}

/// One copy of a file.
#[derive(Debug)]
struct Copy {
    path: PathBuf,
    /// Index of the replica's descriptor; `None` for the original.
    replica: Option<u32>,
    disk: usize,
    state: State,
    /// Bytes in flight.
    in_flight: u64,
    /// Bytes that it gave.
    read: u64,
    /// Reads that failed.
    errors: u64,
}

/// A disk with copies.
#[derive(Clone, Copy, Debug)]
struct Disk {
    /// Its rate; only the ratio to the others' matters.
    rate: f64,
    /// Bytes in flight.
    in_flight: u64,
}

/// Reads of one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyStats {
    /// Index of the file that it is a copy of.
    pub file: u32,
    /// Its path.
    pub path: PathBuf,
    /// True if it is a replica, not the model's own file.
    pub replica: bool,
    /// Bytes that were read from it.
    pub bytes_read: u64,
    /// Reads of it that failed.
    pub errors: u64,
    /// True if it is used: no read of it failed, and it is still a copy.
    pub used: bool,
}

/// A copy to open the table with.
#[derive(Clone, Debug)]
pub(crate) struct NewCopy {
    pub path: PathBuf,
    /// Index of its disk.
    pub disk: usize,
}

/// The copies of all files.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// By file, the original first. Empty if no file has a replica.
    files: Vec<Vec<Copy>>,
    disks: Vec<Disk>,
}

impl Copies {
    /// Makes the table of these originals, and of replicas with the index of their file, on disks
    /// of these rates.
    pub fn new(originals: Vec<NewCopy>, replicas: Vec<(u32, NewCopy)>, rates: &[f64]) -> Self {
        let copy = |NewCopy { path, disk }, replica| Copy {
            path,
            replica,
            disk,
            state: State::Used,
            in_flight: 0,
            read: 0,
            errors: 0,
        };
        if replicas.is_empty() {
            return Self::default();
        }
        let mut files: Vec<Vec<Copy>> =
            originals.into_iter().map(|original| vec![copy(original, None)]).collect();
        for (index, (file, replica)) in (0..).zip(replicas) {
            files[file as usize].push(copy(replica, Some(index)));
        }
        let disks = rates.iter().map(|rate| Disk { rate: *rate, in_flight: 0 }).collect();
        Self { files, disks }
    }

    fn of(&self, file: u32) -> &[Copy] {
        self.files.get(file as usize).map_or(&[], Vec::as_slice)
    }

    fn get_mut(&mut self, file: u32, copy: u8) -> Option<&mut Copy> {
        self.files.get_mut(file as usize)?.get_mut(usize::from(copy))
    }

    /// Returns whether no file has a replica.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns whether a replica of the file is used.
    pub fn is_replicated(&self, file: u32) -> bool {
        self.of(file).iter().any(|copy| copy.replica.is_some() && copy.state == State::Used)
    }

    /// Chooses the copy of the file to read `len` bytes from, except those of the set `avoid`. What
    /// failed before is chosen if there is nothing else. `None` if there is nothing at all.
    pub fn choose(&self, file: u32, len: u64, avoid: u64) -> Option<u8> {
        let copies = self.of(file);
        if copies.is_empty() {
            return (avoid & 1 == 0).then_some(ORIGINAL);
        }
        let mut best: Option<(u8, (bool, f64, u64))> = None;
        for (number, copy) in (0..).zip(copies) {
            if avoid & (1 << number) != 0 || copy.state == State::Dropped {
                continue;
            }
            let Disk { rate, in_flight } = self.disks[copy.disk];
            // Copies on one disk share it, so among them the one with less to do is as good.
            let cost = (copy.state == State::Failed, (in_flight + len) as f64 / rate, copy.in_flight);
            if best.is_none_or(|(_, least)| cost < least) {
                best = Some((number, cost));
            }
        }
        best.map(|(number, _)| number)
    }

    /// Returns the index of a copy's descriptor, of which those of the originals come first.
    pub fn descriptor(&self, file: u32, copy: u8, originals: usize) -> u32 {
        match self.of(file).get(usize::from(copy)).and_then(|copy| copy.replica) {
            Some(replica) => u32::try_from(originals).expect("descriptors are fewer") + replica,
            None => file,
        }
    }

    /// Notes that `len` bytes are being read from the copy.
    pub fn sent(&mut self, file: u32, copy: u8, len: u64) {
        let Some(copy) = self.get_mut(file, copy) else { return };
        copy.in_flight += len;
        let disk = copy.disk;
        self.disks[disk].in_flight += len;
    }

    /// Notes that these bytes are not being read any more.
    pub fn landed(&mut self, file: u32, copy: u8, len: u64) {
        let Some(copy) = self.get_mut(file, copy) else { return };
        copy.in_flight -= len;
        let disk = copy.disk;
        self.disks[disk].in_flight -= len;
    }

    /// Counts bytes that came from the copy.
    pub fn read(&mut self, file: u32, copy: u8, bytes: u64) {
        if let Some(copy) = self.get_mut(file, copy) {
            copy.read += bytes;
        }
    }

    /// Counts a failed read of the copy.
    pub fn failed(&mut self, file: u32, copy: u8) {
        if let Some(copy) = self.get_mut(file, copy) {
            copy.errors += 1;
        }
    }

    /// Has the copy read only where all others fail, unless it is the last one that is used. Returns
    /// its path if that is new.
    pub fn give_up(&mut self, file: u32, copy: u8) -> Option<&Path> {
        let used = self.of(file).iter().filter(|copy| copy.state == State::Used).count();
        let copy = self.get_mut(file, copy).filter(|copy| copy.state == State::Used && used > 1)?;
        copy.state = State::Failed;
        Some(&copy.path)
    }

    /// Never reads the copy again. Returns its path if that is new.
    pub fn drop_copy(&mut self, file: u32, copy: u8) -> Option<&Path> {
        let copy = self.get_mut(file, copy)?;
        let before = std::mem::replace(&mut copy.state, State::Dropped);
        (before != State::Dropped).then_some(&copy.path)
    }

    /// Returns the numbers of the file's copies.
    pub fn numbers(&self, file: u32) -> std::ops::Range<u8> {
        0..u8::try_from(self.of(file).len()).expect("at most MOST_COPIES")
    }

    /// Forgets the replicas of a file that was closed.
    pub fn forget(&mut self, file: u32) {
        if let Some(copies) = self.files.get_mut(file as usize) {
            copies.clear();
        }
    }

    /// Returns what the copies of files with replicas were used for.
    pub fn stats(&self) -> Vec<CopyStats> {
        let stats = |(file, copy): (u32, &Copy)| CopyStats {
            file,
            path: copy.path.clone(),
            replica: copy.replica.is_some(),
            bytes_read: copy.read,
            errors: copy.errors,
            used: copy.state == State::Used,
        };
        let replicated = (0..).zip(&self.files).filter(|(_, copies)| copies.len() > 1);
        replicated.flat_map(|(file, copies)| copies.iter().map(move |copy| (file, copy))).map(stats).collect()
    }

    /// Resets the counters.
    pub fn reset_stats(&mut self) {
        for copy in self.files.iter_mut().flatten() {
            (copy.read, copy.errors) = (0, 0);
        }
    }
}

/// Returns the rate at which disks of these rates read files together, if every byte is as likely to
/// be read as any other. Each file has its bytes, and the set of disks that it is on.
///
/// Some set of disks is the bottleneck: the one that is slowest with the bytes that are on no other
/// disk.
pub fn combined_rate(rates: &[f64], files: &[(u64, u64)]) -> f64 {
    let all: u64 = files.iter().map(|(bytes, _)| bytes).sum();
    let disks = rates.len().min(MOST_DISKS);
    let sets = 1..1u64 << disks;
    let rate = |set: u64| {
        let own: u64 = files.iter().filter(|(_, on)| on & !set == 0).map(|(bytes, _)| bytes).sum();
        let rates = rates.iter().enumerate().filter(|(disk, _)| set & (1 << disk) != 0).map(|(_, rate)| rate);
        (own > 0).then(|| rates.sum::<f64>() * all as f64 / own as f64)
    };
    sets.filter_map(rate).fold(f64::INFINITY, f64::min)
}

/// Most disks of which all sets are tried.
const MOST_DISKS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn copy(disk: usize) -> NewCopy {
        NewCopy { path: format!("copy on disk {disk}").into(), disk }
    }

    /// Two files, the first with a replica on each of the other disks.
    fn copies(rates: &[f64]) -> Copies {
        let replicas = (1..rates.len()).map(|disk| (0, copy(disk))).collect();
        Copies::new(vec![copy(0), copy(0)], replicas, rates)
    }

    /// Sends a read of 100 bytes of a file to the copy that is chosen.
    fn send(copies: &mut Copies, file: u32) -> u8 {
        let copy = copies.choose(file, 100, 0).unwrap();
        copies.sent(file, copy, 100);
        copy
    }

    #[test]
    fn a_read_goes_where_it_is_done_first() {
        let mut copies = copies(&[2.0, 1.0]);
        // Idle, the faster disk reads first; then they fill up in proportion. Where both would be done
        // at the same time, it is the one with less to do.
        let chosen: Vec<u8> = (0..6).map(|_| send(&mut copies, 0)).collect();
        assert_eq!(chosen, [0, 1, 0, 0, 1, 0]);
        copies.landed(0, 1, 100);
        assert_eq!(copies.choose(0, 100, 0), Some(1));
        // What the other file reads from the first disk counts, too.
        copies.sent(1, 0, 1000);
        assert_eq!([0; 4].map(|file| send(&mut copies, file)), [1; 4]);
        assert_eq!([(0, 0), (0, 1), (1, 0)].map(|(file, copy)| copies.descriptor(file, copy, 2)), [0, 2, 1]);
    }

    #[test]
    fn copies_on_one_disk_are_read_in_turn() {
        let mut copies = Copies::new(vec![copy(0)], vec![(0, copy(0)), (0, copy(0))], &[1.0]);
        let chosen: Vec<u8> = (0..6).map(|_| send(&mut copies, 0)).collect();
        assert_eq!(chosen, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn what_failed_is_read_last_and_what_is_dropped_never() {
        let mut copies = copies(&[1.0, 1.0, 1.0]);
        assert!(copies.give_up(0, 0).is_some());
        assert!(copies.give_up(0, 0).is_none(), "told once");
        assert_eq!([copies.choose(0, 1, 0), copies.choose(0, 1, 0b10)], [Some(1), Some(2)]);
        assert_eq!(copies.choose(0, 1, 0b110), Some(0), "there is nothing else");
        assert!(copies.drop_copy(0, 2).is_some() && copies.drop_copy(0, 2).is_none());
        assert_eq!([copies.choose(0, 1, 0b10), copies.choose(0, 1, 0b11)], [Some(0), None]);
        assert!(copies.is_replicated(0));
        assert!(copies.give_up(0, 1).is_none(), "the last one stays");
        assert!(copies.is_replicated(0));
        copies.drop_copy(0, 1);
        assert!(!copies.is_replicated(0));
        // A file without replicas is read from, and its failures are its own.
        assert_eq!([copies.choose(1, 1, 0), copies.choose(1, 1, 1)], [Some(0), None]);
        assert!(!copies.is_replicated(1));
    }

    #[test]
    fn rates_add_up_as_far_as_files_are_on_several_disks() {
        // A whole copy, none, and half of the bytes on both disks.
        assert_eq!(combined_rate(&[3.0, 2.0], &[(10, 0b11)]), 5.0);
        assert_eq!(combined_rate(&[3.0, 2.0], &[(10, 0b01)]), 3.0);
        assert_eq!(combined_rate(&[3.0, 2.0], &[(5, 0b01), (5, 0b11)]), 5.0);
        // The first disk alone has 80 % of them.
        assert_eq!(combined_rate(&[3.0, 9.0], &[(8, 0b01), (2, 0b11)]), 3.75);
        // A file on each: the slower one limits.
        assert_eq!(combined_rate(&[3.0, 1.0], &[(5, 0b01), (5, 0b10)]), 2.0);
    }

    proptest! {
        /// The table only counts: whatever happens, in flight is what was sent and has not landed,
        /// and the choice is the one with the least cost.
        #[test]
        fn the_least_cost_is_chosen(
            rates in prop::collection::vec(0.1f64..10.0, 2..5),
            lens in prop::collection::vec((1u64..1 << 20, any::<bool>()), 1..60),
        ) {
            let mut copies = copies(&rates);
            let mut load = vec![0u64; rates.len()];
            let mut flying = Vec::new();
            for (len, lands) in lens {
                let chosen = copies.choose(0, len, 0).unwrap();
                let cost = |disk: usize| (load[disk] + len) as f64 / rates[disk];
                prop_assert!((0..rates.len()).all(|disk| cost(usize::from(chosen)) <= cost(disk)));
                copies.sent(0, chosen, len);
                load[usize::from(chosen)] += len;
                flying.push((chosen, len));
                if lands {
                    let (copy, len) = flying.swap_remove(flying.len() / 2);
                    copies.landed(0, copy, len);
                    load[usize::from(copy)] -= len;
                }
            }
        }

        /// Together disks are at least as fast as the slowest with its share, and no faster than all.
        #[test]
        fn no_disk_reads_faster_than_it_can(
            rates in prop::collection::vec(0.1f64..10.0, 1..5),
            files in prop::collection::vec((1u64..1000, any::<u64>()), 1..8),
        ) {
            let every = (1u64 << rates.len()) - 1;
            let files: Vec<_> = files.into_iter().map(|(bytes, on)| (bytes, on & every | 1)).collect();
            let rate = combined_rate(&rates, &files);
            prop_assert!(rate <= rates.iter().sum::<f64>() * 1.0001 && rate >= rates[0] * 0.9999);
        }
    }
}
