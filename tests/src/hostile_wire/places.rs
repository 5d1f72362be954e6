//! Memory that ops change, cut into places of which each op has one for itself, and the model of what must be there.
//!
//! A place is longer than the largest op, so that bytes around the op are watched too. It rests between two ops: what
//! then changes there is the late effect of an op that was over.

use core::ops::Range;

use rma_core::limits::GRANULE;
use rma_sim::prng::Prng;
use rma_xdp::RegisteredRegion;

/// Bytes of a place: room for the largest op, and for what must not change around it.
pub const PLACE: usize = 4096 + 512;

/// See the module's documentation.
#[derive(Debug)]
pub struct Places {
    memory: RegisteredRegion,
    model: Vec<u8>,
    free: Vec<usize>,
}

impl Places {
    /// Memory of `count` places, all at rest.
    ///
    /// # Panics
    /// If it has not that many bytes.
    #[must_use]
    pub fn new(memory: RegisteredRegion, count: usize) -> Self {
        let mut model = vec![0; count * PLACE];
        memory.read(0, &mut model).expect("so many places");
        Self { memory, model, free: (0..count).collect() }
    }

    /// The same memory, registered anew.
    pub fn set_memory(&mut self, memory: RegisteredRegion) {
        self.memory = memory;
    }

    /// The memory.
    #[must_use]
    pub const fn memory(&self) -> &RegisteredRegion {
        &self.memory
    }

    /// A place for an op, and where in the memory an op of `size` bytes may lie in it.
    ///
    /// # Panics
    /// If all are taken.
    pub fn take(&mut self, size: usize, prng: &mut Prng) -> (usize, usize) {
        let place = self.free.swap_remove(prng.below(self.free.len() as u64) as usize);
        let within = prng.between(1, (PLACE - 1 - size) as u64) as usize;
        (place, place * PLACE + within)
    }

    /// Holds a place against the model, after an op of `span` (in the memory) that brought `right` bytes or none;
    /// all of them if it was `ok`. The place rests from now on, with new bytes in it: should the op happen again, it
    /// will be seen.
    ///
    /// # Errors
    /// What is wrong.
    pub fn settle(
        &mut self,
        place: usize,
        span: Range<usize>,
        ok: bool,
        right: impl Fn(Range<usize>, &[u8]) -> bool,
        prng: &mut Prng,
    ) -> Result<(), String> {
        let start = place * PLACE;
        let there = self.there(place);
        let model = &mut self.model[start..start + PLACE];
        let span = span.start - start..span.end - start;
        let verdict = judge(model, &there, span, ok, right);
        prng.fill(model);
        self.memory.write(start as u64, model).expect("inside");
        self.free.push(place);
        verdict
    }

    /// A place at rest that has changed. It counts as changed no more.
    pub fn changed_at_rest(&mut self) -> Option<usize> {
        let place =
            self.free.iter().copied().find(|&place| {
                self.there(place) != self.model[place * PLACE..(place + 1) * PLACE]
            })?;
        let there = self.there(place);
        self.model[place * PLACE..(place + 1) * PLACE].copy_from_slice(&there);
        Some(place)
    }

    fn there(&self, place: usize) -> Vec<u8> {
        let mut there = vec![0; PLACE];
        self.memory.read((place * PLACE) as u64, &mut there).expect("inside");
        there
    }
}

/// Holds what is there against what was there before an op of `span`.
fn judge(
    before: &[u8],
    there: &[u8],
    span: Range<usize>,
    ok: bool,
    right: impl Fn(Range<usize>, &[u8]) -> bool,
) -> Result<(), String> {
    let same = |range: Range<usize>| there[range.clone()] == before[range];
    if !same(0..span.start) || !same(span.end..there.len()) {
        return Err("bytes around the op have changed".into());
    }
    for at in span.clone().step_by(GRANULE as usize) {
        let granule = at..(at + GRANULE as usize).min(span.end);
        let op = granule.start - span.start..granule.end - span.start;
        if !right(op.clone(), &there[granule.clone()]) && (ok || !same(granule)) {
            return Err(format!("bytes {op:?} of the op are wrong"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an op of 1 for 0 is well that has left `there`, of 200 bytes between guards of 8.
    fn is_well(ok: bool, change: impl Fn(&mut [u8])) -> bool {
        let before = [0; 216];
        let mut there = before;
        change(&mut there);
        let right = |_, bytes: &[u8]| bytes.iter().all(|&byte| byte == 1);
        judge(&before, &there, 8..208, ok, right).is_ok()
    }

    #[test]
    fn an_op_brings_all_if_it_is_ok_and_whole_granules_if_it_is_not() {
        let all = |there: &mut [u8]| there[8..208].fill(1);
        let granule = |there: &mut [u8]| there[72..136].fill(1);
        let last = |there: &mut [u8]| there[200..208].fill(1);
        let part = |there: &mut [u8]| there[72..100].fill(1);
        let other = |there: &mut [u8]| there[72..136].fill(2);
        let around = |there: &mut [u8]| there[7] = 1;
        assert!(is_well(true, all) && is_well(false, all));
        for some in [&granule as &dyn Fn(&mut [u8]), &last, &|_| ()] {
            assert!(is_well(false, some) && !is_well(true, some));
        }
        for wrong in [&part as &dyn Fn(&mut [u8]), &other, &around] {
            assert!(!is_well(false, wrong) && !is_well(true, wrong));
        }
    }
}
