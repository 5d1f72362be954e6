//! COMPARE_SWAPs over a hostile wire: words that each op tries to move on, to a value that no other
//! op brings.
//!
//! What must hold, whatever the wire does: the values that a word has had are a chain, in which
//! each was brought by one op that found what it expected; all ops that are known to have done so
//! are in it, and all values that ops have found.

use std::collections::{BTreeMap, BTreeSet};

use rma_core::portal::{Change, RecordedOp};
use rma_sim::prng::Prng;
use rma_xdp::{
    Grant, OpType, Permissions, Portal, RegisteredRegion,
    ops::{ClassOfService, CommandSlotId},
};

use super::{super::lab::Ends, Effect, Known};

/// How many words there are: fewer than ops under way, so that many do not find what they expect.
const WORDS: usize = 8;

/// Words are that far apart, and nothing between them changes.
const STRIDE: u64 = 64;

/// One op that was issued: the value that it brings names it.
#[derive(Clone, Copy, Debug)]
struct Swap {
    word: usize,
    expected: u64,
    /// The end of the swap, if it has ended.
    known: Option<Known>,
}

/// Words, all values that they may have had, and what ops have found there.
#[derive(Debug)]
pub struct Swaps {
    words: RegisteredRegion,
    /// By the value that it brings.
    ops: BTreeMap<u64, Swap>,
    /// The last known value of each word.
    last: [u64; WORDS],
    found: [BTreeSet<u64>; WORDS],
}

impl Swaps {
    /// All values that a word has had, the present one first.
    fn chain(&self, word: usize) -> BTreeSet<u64> {
        let mut chain = BTreeSet::new();
        let mut value = self.words.load(word as u64 * STRIDE).expect("inside");
        while value != 0 {
            assert!(chain.insert(value), "{value:#x} came twice");
            let op = self.ops.get(&value).unwrap_or_else(|| panic!("nobody brought {value:#x}"));
            let may_have = match op.known {
                Some(Known::Applied(found)) => found == Some(op.expected),
                Some(Known::NotApplied) => false,
                Some(Known::Unknown) | None => true,
            };
            assert!(may_have && op.word == word, "{value:#x} is in word {word}: {op:?}");
            value = op.expected;
        }
        chain.insert(0);
        chain
    }
}

impl Effect for Swaps {
    const OP_TYPE: OpType = OpType::CompareSwap;

    fn new(ends: &Ends, _: &mut Prng) -> Self {
        let words = ends.server().register(4096, Permissions::ATOMIC).expect("a region");
        Self { words, ops: BTreeMap::new(), last: [0; WORDS], found: Default::default() }
    }

    fn remote(&self) -> &RegisteredRegion {
        &self.words
    }

    fn issue(
        &mut self,
        portal: &mut Portal,
        grant: &Grant,
        prng: &mut Prng,
    ) -> (CommandSlotId, u64) {
        let word = prng.below(WORDS as u64) as usize;
        // Never 0, from which each word starts.
        let (expected, new) = (self.last[word], prng.next() | 1);
        let change = Change::CompareSwap { remote_offset: word as u64 * STRIDE, expected, new };
        let op = RecordedOp { grant, change, class: prng.choose(&ClassOfService::ALL) };
        let slot = portal.issue_recorded(&op).expect("a sensible op");
        let before = self.ops.insert(new, Swap { word, expected, known: None });
        assert!(before.is_none(), "values are drawn from many");
        (slot, new)
    }

    fn ended(&mut self, op: u64, known: Known, _: &mut Prng) {
        let swap = self.ops.get_mut(&op).expect("it was issued");
        swap.known = Some(known);
        if let Known::Applied(found) = known {
            let found = found.expect("a COMPARE_SWAP has a result");
            self.found[swap.word].insert(found);
            self.last[swap.word] = if found == swap.expected { op } else { found };
        }
    }

    fn assert_at_rest(&mut self) {
        let mut bytes = vec![0; 4096];
        self.words.read(0, &mut bytes).expect("inside");
        for word in 0..WORDS {
            let chain = self.chain(word);
            let lost = self.found[word].difference(&chain).next();
            assert!(lost.is_none(), "{lost:x?} was found in word {word}, and never was there");
            for (value, op) in self.ops.iter().filter(|(_, op)| op.word == word) {
                let has_swapped = op.known == Some(Known::Applied(Some(op.expected)));
                assert!(!has_swapped || chain.contains(value), "{value:#x} is lost: {op:?}");
            }
            bytes[word * STRIDE as usize..][..8].fill(0);
        }
        assert!(bytes.iter().all(|&byte| byte == 0), "nothing else has changed");
    }
}
