//! An application that keeps to the rules, and knows what all its memory holds.

use rma_core::{
    command::CommandSlotId,
    grant::Grant,
    limits::OP_SIZE_MAX,
    op::OpStatus,
    portal::{CommandPortal, ReadOp, WriteOp},
    region::RegisteredRegion,
};

use super::CONSTANT_LEN;
use crate::script::Script;

/// Turns that a read takes when nobody is in its way: its request is sent in one, its data arrives
/// in the next.
const READ_TURNS: u32 = 2;
/// And a write: request, data, which may take two, acknowledgement.
const WRITE_TURNS: u32 = 4;

pub(super) struct Honest {
    pub(super) portal: CommandPortal,
    /// For reads and for writes.
    pub(super) grants: [Grant; 2],
    /// The memory that it uses here, and at the peer. Each begins with constants; then comes a
    /// place for each slot.
    pub(super) local: Memory,
    pub(super) remote: Memory,
    pub(super) under_way: Vec<UnderWay>,
    /// How many turns an op may take because of others.
    pub(super) turns_of_others: u32,
}

pub(super) struct UnderWay {
    slot: CommandSlotId,
    is_write: bool,
    /// The offset of the moved constants.
    from: u64,
    op_size: u32,
    turns: u32,
}

/// A region, and what it ought to hold.
pub(super) struct Memory {
    pub(super) region: RegisteredRegion,
    pub(super) content: Vec<u8>,
}

impl Memory {
    /// Whether the bytes at `offset` are as they ought to be.
    fn is_right(&self, offset: usize, len: usize) -> bool {
        let mut bytes = vec![0; len];
        self.region.read(offset as u64, &mut bytes).expect("inside the region");
        bytes == self.content[offset..][..len]
    }
}

impl Honest {
    pub(super) fn issue(&mut self, script: &mut Script<'_>) {
        let Some(slot) = self.portal.next_slot() else { return };
        let op_size = 1 + script.wide() as u32 % OP_SIZE_MAX;
        let from = script.number() as u64 % (CONSTANT_LEN - u64::from(op_size) + 1);
        let (place, class) = (self.place(slot), Default::default());
        let is_write = script.number() & 1 == 1;
        let issued = if is_write {
            let (grant, source) = (&self.grants[1], &self.local.region);
            let (remote_offset, source_offset) = (place, from);
            let op = WriteOp { grant, remote_offset, source, source_offset, op_size, class };
            self.portal.issue_write(&op)
        } else {
            let (grant, sink) = (&self.grants[0], &self.local.region);
            let (remote_offset, sink_offset) = (from, place);
            let op = ReadOp { grant, remote_offset, sink, sink_offset, op_size, class };
            self.portal.issue_read(&op)
        };
        assert_eq!(issued, Ok(slot), "an honest op is issued");
        self.under_way.push(UnderWay { slot, is_write, from, op_size, turns: 0 });
    }

    fn place(&self, slot: CommandSlotId) -> u64 {
        let index = slot.0 - self.portal.slots().start;
        CONSTANT_LEN + u64::from(index) * u64::from(OP_SIZE_MAX)
    }

    /// After a turn. Returns how many ops have completed.
    pub(super) fn poll(&mut self) -> u64 {
        let mut done = 0;
        while let Some(completion) = self.portal.poll() {
            let index = self.under_way.iter().position(|op| op.slot == completion.slot);
            let op = self.under_way.remove(index.expect("one completion for each op"));
            assert_eq!(completion.status, OpStatus::Ok);
            let (place, len) = (self.place(op.slot) as usize, op.op_size as usize);
            let (from, to) = if op.is_write {
                (&self.local, &mut self.remote)
            } else {
                (&self.remote, &mut self.local)
            };
            to.content[place..][..len].copy_from_slice(&from.content[op.from as usize..][..len]);
            assert!(to.is_right(place, len), "an honest op moved wrong bytes");
            done += 1;
        }
        for op in &mut self.under_way {
            op.turns += 1;
            let alone = if op.is_write { WRITE_TURNS } else { READ_TURNS };
            assert!(op.turns < alone + self.turns_of_others, "an honest op was held up");
        }
        done
    }

    /// How many turns its ops may still take.
    pub(super) fn turns_left(&self) -> u32 {
        if self.under_way.is_empty() { 0 } else { WRITE_TURNS + self.turns_of_others }
    }

    /// While no op is under way: nobody has touched its memory.
    pub(super) fn check(&self) {
        for memory in [&self.local, &self.remote] {
            let untouched = memory.is_right(0, memory.content.len());
            assert!(untouched, "somebody wrote to memory that is not theirs");
        }
    }
}
