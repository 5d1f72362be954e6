//! The event of an op that consumed a receive: one line of 64 octets.

use rma_shm::Line;

use super::Receive;
use crate::{
    addr::{HostAddr, Pid},
    op::OpType,
    region::RegionId,
    time::Instant,
};

/// An op that came, and was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The type of op that came: [`OpType::Send`], [`OpType::Notify`] or [`OpType::WriteWithImm`].
    pub op_type: OpType,
    /// The receive that it has consumed; it may be posted again. A SEND's bytes are in its buffer.
    pub receive: Receive,
    /// How many bytes came: into the buffer, or into the region. 0 of a NOTIFY.
    pub len: u32,
    /// The sender's immediate.
    pub immediate: u64,
    /// The host that it came from: authenticated, as its key is bound to it.
    pub initiator: HostAddr,
    /// The process there: authenticated likewise.
    pub pid: Pid,
    /// The queue; of a WRITE_WITH_IMM the region that was written.
    pub region: RegionId,
    /// The offset in the region at which bytes were written. 0 but of a WRITE_WITH_IMM.
    pub region_offset: u64,
    /// When it was applied, by the engine's clock.
    pub at: Instant,
}

impl Event {
    /// The event as the line that goes into the ring of events.
    #[must_use]
    pub fn to_line(&self) -> Line {
        let head =
            self.op_type as u64 | u64::from(self.receive.0) << 16 | u64::from(self.len) << 32;
        let octets = u128::from_le_bytes(self.initiator.to_octets());
        Line([
            head,
            self.immediate,
            octets as u64,
            (octets >> 64) as u64,
            u64::from(self.pid.0) | u64::from(self.region.to_bits()) << 32,
            self.region_offset,
            self.at.as_nanos(),
            0,
        ])
    }

    /// The event in a line of the ring of events; `None` if it holds none.
    #[must_use]
    pub fn from_line(line: &Line) -> Option<Self> {
        let [head, immediate, low, high, who, region_offset, at, _] = line.0;
        let op_type = OpType::from_code(head as u8)?;
        if !matches!(op_type, OpType::Send | OpType::Notify | OpType::WriteWithImm) {
            return None;
        }
        let octets = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
        Some(Self {
            op_type,
            receive: Receive((head >> 16) as u16),
            len: (head >> 32) as u32,
            immediate,
            initiator: HostAddr::from_octets(octets),
            pid: Pid(who as u32),
            region: RegionId::from_bits((who >> 32) as u32),
            region_offset,
            at: Instant::from_nanos(at),
        })
    }
}
