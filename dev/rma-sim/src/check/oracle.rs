//! The expected content of memory: a plain model of it, beside the memory that NICs work on.
//!
//! Each command slot has an area of local memory of its own, and each write has one at its target.
//! After an op: OK means that exactly the op's bytes have been transferred; an op that had to fail
//! has changed nothing; any other op may have landed whole granules, and nothing else. From then
//! on, until the next op, an area does not change (P2).

use std::sync::Arc;

use rma_core::{limits::GRANULE, op::OpStatus};
use rma_shm::Region;

use crate::{check::violation::Violation, net::frame::NodeId};

/// The local memory of one command slot, or a part of a region that others write to.
#[derive(Debug)]
pub(crate) struct Area {
    node: NodeId,
    number: u16,
    memory: Arc<Region>,
    /// The offset in `memory` at which the area begins.
    start: u64,
    /// The expected content of the area.
    known: Vec<u8>,
}

/// The change that one op may make to its area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect<'a> {
    /// The offset of its bytes in the area.
    pub(crate) offset: usize,
    /// The bytes that it transfers; none if it must fail.
    pub(crate) data: &'a [u8],
    /// How much of them changes in one step.
    pub(crate) unit: usize,
}

impl<'a> Effect<'a> {
    /// Of an op whose bytes land granule by granule.
    pub(crate) const fn new(offset: usize, data: &'a [u8]) -> Self {
        Self { offset, data, unit: GRANULE as usize }
    }
}

impl Area {
    pub(crate) fn new(
        node: NodeId,
        number: u16,
        memory: Arc<Region>,
        start: u64,
        len: usize,
    ) -> Self {
        Self { node, number, memory, start, known: vec![0; len] }
    }

    /// Puts `data` at `offset`, as an application does that is about to write it elsewhere.
    pub(crate) fn fill(&mut self, offset: usize, data: &[u8]) {
        self.known[offset..offset + data.len()].copy_from_slice(data);
        let start = self.start + offset as u64;
        self.memory.copy_in(start, data).expect("areas lie inside their region");
    }

    /// Checks that nothing has changed since the last op completed.
    pub(crate) fn check_rest(&self) -> Result<(), Violation> {
        let Self { node, number: area, .. } = *self;
        match first_difference(&self.read(), &self.known) {
            Some(at) => Err(Violation::LateEffect { node, area, at }),
            None => Ok(()),
        }
    }

    /// Checks what an op did that ended with `status`, and remembers it.
    pub(crate) fn check_effect(
        &mut self,
        status: OpStatus,
        effect: Effect<'_>,
    ) -> Result<(), Violation> {
        let now = self.read();
        let Effect { offset, data, unit } = effect;
        let mut expected = core::mem::replace(&mut self.known, now);
        for (index, granule) in data.chunks(unit).enumerate() {
            let start = offset + index * unit;
            let span = start..start + granule.len();
            let landed = status == OpStatus::Ok || self.known[span.clone()] == *granule;
            if landed {
                expected[span].copy_from_slice(granule);
            }
        }
        let Self { node, number: area, .. } = *self;
        match first_difference(&self.known, &expected) {
            Some(at) => Err(Violation::Memory { node, area, status, at }),
            None => Ok(()),
        }
    }

    /// A part of the area as it was known to be, and as it is now.
    pub(crate) fn part(&self, offset: usize, len: usize) -> [Vec<u8>; 2] {
        let mut now = vec![0; len];
        let start = self.start + offset as u64;
        self.memory.copy_out(start, &mut now).expect("areas lie inside their region");
        [self.known[offset..offset + len].to_vec(), now]
    }

    fn read(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.known.len()];
        self.memory.copy_out(self.start, &mut bytes).expect("areas lie inside their region");
        bytes
    }
}

pub(crate) fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    if a == b { None } else { a.iter().zip(b).position(|(a, b)| a != b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area() -> Area {
        let memory = Arc::new(Region::new(8192).unwrap());
        Area::new(NodeId(0), 3, memory, 100, 4224)
    }

    #[test]
    fn right_data_is_accepted_and_a_wrong_byte_anywhere_is_found() {
        let data: Vec<u8> = (0..200).map(|i| i as u8 + 1).collect();
        let effect = Effect::new(10, &data);
        let mut fresh = area();
        fresh.memory.copy_in(110, &data).unwrap();
        assert_eq!(fresh.check_effect(OpStatus::Ok, effect), Ok(()));
        for wrong in [0, 9, 10, 209, 210, 4223] {
            let mut fresh = area();
            fresh.memory.copy_in(110, &data).unwrap();
            fresh.memory.copy_in(100 + wrong, &[0xee]).unwrap();
            let found = fresh.check_effect(OpStatus::Ok, effect);
            let at = wrong as usize;
            let (node, area, status) = (NodeId(0), 3, OpStatus::Ok);
            assert_eq!(found, Err(Violation::Memory { node, area, status, at }));
        }
    }

    #[test]
    fn a_failed_op_may_land_whole_granules_only() {
        let data = [9; 200];
        let effect = Effect::new(0, &data);
        let mut whole = area();
        whole.memory.copy_in(164, &[9; 64]).unwrap();
        assert_eq!(whole.check_effect(OpStatus::Timeout, effect), Ok(()));
        let mut part = area();
        part.memory.copy_in(164, &[9; 63]).unwrap();
        assert!(part.check_effect(OpStatus::Timeout, effect).is_err());
        assert!(area().check_effect(OpStatus::Ok, effect).is_err(), "nothing landed");
        let mut refused = area();
        refused.memory.copy_in(164, &[9; 64]).unwrap();
        let nothing = Effect::new(0, &[]);
        assert!(refused.check_effect(OpStatus::RemoteOutOfBounds, nothing).is_err());
    }

    #[test]
    fn a_change_between_ops_is_found() {
        let area = area();
        assert_eq!(area.check_rest(), Ok(()));
        area.memory.copy_in(101, &[1]).unwrap();
        assert_eq!(
            area.check_rest(),
            Err(Violation::LateEffect { node: NodeId(0), area: 3, at: 1 })
        );
    }
}
