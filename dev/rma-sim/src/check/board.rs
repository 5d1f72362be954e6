//! A range that ordered ops change and reads follow: what it must hold after every event, and what
//! a read of it may have seen.
//!
//! Whatever changes a board does so in one step, so it has versions, and the order of the steps is
//! known. No byte of an op is there before the step, and none is missing after it. A read loads its
//! first word before all others and its last word after them: so no other word is of an older
//! version than the first, nor of a newer one than the last. Nothing else is promised of them.
//!
//! Values are random and do not come twice, so a word tells of which versions it can be.

use std::sync::Arc;

use rma_core::limits::WORD_LEN;
use rma_shm::Region;

use super::{oracle::first_difference, violation::Violation};
use crate::net::frame::NodeId;

/// The bytes of a board, all of which one op can change or read, in several frames.
pub(crate) const BOARD_LEN: usize = rma_core::limits::OP_SIZE_MAX as usize;

/// A board, in the memory of a target.
#[derive(Debug)]
pub(crate) struct Board {
    node: NodeId,
    /// Its number on its node.
    number: u16,
    memory: Arc<Region>,
    /// The offset in `memory` at which it begins.
    start: u64,
    /// The present content.
    now: Vec<u8>,
    /// The change that made each version but the first, which is all zero.
    changes: Vec<Change>,
}

/// Whole words that were stored in one step.
#[derive(Clone, Debug)]
struct Change {
    offset: usize,
    bytes: Box<[u8]>,
}

/// The state that a read saw, if it is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// All its words, as they were at one time.
    Whole,
    /// Some of them before a change, and some after it.
    Changing,
}

impl Board {
    /// Board `number` of `node`, at `start` in `memory`, which is all zero there.
    pub(crate) fn new(node: NodeId, number: u16, memory: Arc<Region>, start: u64) -> Self {
        Self { node, number, memory, start, now: vec![0; BOARD_LEN], changes: Vec::new() }
    }

    /// Returns the offset at which it begins.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// How often it has changed.
    pub(crate) const fn version(&self) -> usize {
        self.changes.len()
    }

    /// An op has changed it, in one step: whole words at `offset`.
    pub(crate) fn changed(&mut self, offset: usize, bytes: &[u8]) {
        self.changes.push(Change { offset, bytes: bytes.into() });
        self.now[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Its owner changes it as an ordered op does.
    pub(crate) fn change(&mut self, offset: usize, bytes: &[u8]) {
        let there = self.memory.copy_in_ordered(self.start + offset as u64, bytes);
        there.expect("words of the region");
        self.changed(offset, bytes);
    }

    /// Looks at it: no byte of any op is there that has not been applied, and all of those that
    /// have.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        let mut seen = [0; BOARD_LEN];
        self.memory.copy_out(self.start, &mut seen).expect("the region is longer");
        match first_difference(&seen, &self.now) {
            Some(at) => Err(Violation::Placed { node: self.node, board: self.number, at }),
            None => Ok(()),
        }
    }

    /// Whether a read can have seen `bytes` at `offset`, whole words, that was issued when the
    /// board had version `since`. If not, the place of the first byte that it cannot have seen.
    pub(crate) fn check_read(
        &self,
        offset: usize,
        bytes: &[u8],
        since: usize,
    ) -> Result<Sight, usize> {
        // As a rule it is as the board is now.
        if self.now[offset..].starts_with(bytes) {
            return Ok(Sight::Whole);
        }
        let (words, _) = bytes.as_chunks::<WORD_LEN>();
        let mut spans = Vec::with_capacity(words.len());
        for (at, word) in (0..).step_by(WORD_LEN).zip(words) {
            spans.push(self.versions_of(offset + at, word, since).ok_or(at)?);
        }
        let (Some(&(oldest, _)), Some(&(_, newest))) = (spans.first(), spans.last()) else {
            return Ok(Sight::Whole);
        };
        let is_out = |&(from, to): &(usize, usize)| to < oldest || newest < from;
        if let Some(index) = spans.iter().position(is_out) {
            return Err(index * WORD_LEN);
        }
        let from = spans.iter().map(|&(from, _)| from).max();
        let to = spans.iter().map(|&(_, to)| to).min();
        Ok(if from <= to { Sight::Whole } else { Sight::Changing })
    }

    /// As [`Board::check_read`], of a read that did not end well: it has put some words of the
    /// board over what was there `before`.
    pub(crate) fn check_part(
        &self,
        offset: usize,
        (before, bytes): (&[u8], &[u8]),
        since: usize,
    ) -> Result<(), usize> {
        let [before, now] = [before, bytes].map(|it| it.as_chunks::<WORD_LEN>().0);
        for ((at, before), now) in (0..).step_by(WORD_LEN).zip(before).zip(now) {
            if before != now && self.versions_of(offset + at, now, since).is_none() {
                return Err(at);
            }
        }
        Ok(())
    }

    /// The first and the last version from `since` on in which the word at `at` was `word`.
    fn versions_of(
        &self,
        at: usize,
        word: &[u8; WORD_LEN],
        since: usize,
    ) -> Option<(usize, usize)> {
        let mut until = self.version();
        for (index, change) in self.changes.iter().enumerate().rev() {
            let version = index + 1;
            let Some(start) = at.checked_sub(change.offset) else { continue };
            let Some(there) = change.bytes.get(start..start + WORD_LEN) else { continue };
            if there == word {
                return Some((since.max(version), until));
            }
            if version <= since {
                return None;
            }
            until = version - 1;
        }
        (*word == [0; WORD_LEN]).then_some((since, until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 64;

    fn board() -> Board {
        let memory = Arc::new(Region::new(START as usize + BOARD_LEN).unwrap());
        Board::new(NodeId(1), 0, memory, START)
    }

    /// Four words, each of which was seen by a read as version so and so left it.
    fn seen(versions: [u8; 4]) -> Vec<u8> {
        versions.into_iter().flat_map(|version| [version; WORD_LEN]).collect()
    }

    /// A board of four words that changed three times.
    fn changed() -> Board {
        let mut board = board();
        (1..=3).for_each(|version| board.change(0, &seen([version; 4])));
        board
    }

    #[test]
    fn a_byte_that_lands_before_its_op_is_applied_and_one_that_is_missing_then_are_found() {
        let mut board = changed();
        assert_eq!(board.check(), Ok(()));
        let found = |at| Err(Violation::Placed { node: NodeId(1), board: 0, at });
        // All but the last word of an op of four words is there.
        board.memory.copy_in(START + 8, &[4; 16]).unwrap();
        assert_eq!(board.check(), found(8));
        // Its last word is there, and not all before it.
        board.changed(8, &[4; 32]);
        board.memory.copy_in(START + 32, &[4; 8]).unwrap();
        assert_eq!(board.check(), found(24));
        board.memory.copy_in(START + 24, &[4; 8]).unwrap();
        assert_eq!(board.check(), Ok(()));
    }

    #[test]
    fn a_read_may_see_changes_come_behind_its_first_word_and_before_its_last() {
        let board = changed();
        for (versions, sight) in [
            ([0, 0, 0, 0], Sight::Whole),
            ([3, 3, 3, 3], Sight::Whole),
            ([1, 2, 1, 3], Sight::Changing),
            ([0, 0, 0, 3], Sight::Changing),
            ([2, 3, 2, 3], Sight::Changing),
        ] {
            assert_eq!(board.check_read(0, &seen(versions), 0), Ok(sight), "{versions:?}");
        }
    }

    #[test]
    fn a_read_that_sees_the_bell_and_not_what_was_there_before_it_is_found() {
        let board = changed();
        for (versions, at) in [
            // The first word was not loaded first.
            ([3, 3, 2, 3], 16),
            ([1, 0, 1, 1], 8),
            // The last word was not loaded last.
            ([0, 1, 0, 0], 8),
            ([2, 2, 3, 2], 16),
            ([3, 3, 3, 0], 0),
            // A version that nobody has written.
            ([1, 1, 9, 1], 16),
        ] {
            assert_eq!(board.check_read(0, &seen(versions), 0), Err(at), "{versions:?}");
        }
        // A version that was gone when the read was issued.
        assert_eq!(board.check_read(0, &seen([1, 2, 2, 2]), 2), Err(0));
        assert_eq!(board.check_read(0, &seen([2, 2, 2, 2]), 2), Ok(Sight::Whole));
    }

    #[test]
    fn a_read_that_failed_has_left_what_was_there_or_words_of_the_board() {
        let (board, before) = (changed(), seen([7, 7, 7, 7]));
        let check = |versions| board.check_part(0, (&before, &seen(versions)), 1);
        assert_eq!(check([7, 7, 7, 7]), Ok(()));
        assert_eq!(check([3, 7, 1, 7]), Ok(()));
        assert_eq!(check([3, 7, 0, 7]), Err(16));
        assert_eq!(check([7, 7, 7, 9]), Err(24));
    }
}
