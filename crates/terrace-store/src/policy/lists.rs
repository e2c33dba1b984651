//! Lists of blocks in the order of use, linked within one array: every step costs O(1), and nothing
//! is allocated after the start.

/// No block.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    older: u32,
    newer: u32,
    listed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    oldest: u32,
    newest: u32,
}

/// Several lists over the same blocks. Each block is in one of them at most.
#[derive(Debug)]
pub struct Lists {
    links: Box<[Link]>,
    ends: Box<[Ends]>,
}

impl Lists {
    /// Makes `lists` empty lists over blocks `0..blocks`.
    pub fn new(blocks: usize, lists: usize) -> Self {
        let link = Link { older: NONE, newer: NONE, listed: false };
        let ends = Ends { oldest: NONE, newest: NONE };
        Self { links: vec![link; blocks].into(), ends: vec![ends; lists].into() }
    }

    /// Adds `block`, which must be in no list, at the newest end of `list`.
    pub fn append(&mut self, list: usize, block: u32) {
        debug_assert!(!self.links[block as usize].listed, "block {block} is listed twice");
        let ends = &mut self.ends[list];
        self.links[block as usize] = Link { older: ends.newest, newer: NONE, listed: true };
        match ends.newest {
            NONE => ends.oldest = block,
            newest => self.links[newest as usize].newer = block,
        }
        ends.newest = block;
    }

    /// Removes `block` from `list`, which must contain it.
    pub fn remove(&mut self, list: usize, block: u32) {
        let Link { older, newer, listed } = self.links[block as usize];
        debug_assert!(listed, "block {block} is not listed");
        match older {
            NONE => self.ends[list].oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.ends[list].newest = older,
            newer => self.links[newer as usize].older = older,
        }
        self.links[block as usize].listed = false;
    }

    /// Moves `block` to the newest end of `list`, which must contain it.
    pub fn renew(&mut self, list: usize, block: u32) {
        if self.ends[list].newest != block {
            self.remove(list, block);
            self.append(list, block);
        }
    }

    /// Returns the blocks of `list`, the least recently used first.
    pub fn oldest_first(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        let real = |block: u32| (block != NONE).then_some(block);
        std::iter::successors(real(self.ends[list].oldest), move |block| {
            real(self.links[*block as usize].newer)
        })
    }

    /// Returns the blocks of `list`, the most recently used first.
    pub fn newest_first(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        let real = |block: u32| (block != NONE).then_some(block);
        std::iter::successors(real(self.ends[list].newest), move |block| {
            real(self.links[*block as usize].older)
        })
    }
}
