//! The header that all frames begin with.

use crate::{
    addr::Pid,
    command::CommandSlotId,
    crypto::{Direction, EngineId, Iv},
    error::DropReason,
    op::ClassOfService,
    region::RegionId,
    wire::{FrameType, VERSION},
};

mod field {
    use core::ops::Range;
    pub(super) const VERSION: usize = 0;
    pub(super) const FRAME_TYPE: usize = 1;
    pub(super) const CLASS: usize = 2;
    pub(super) const STATUS: usize = 3;
    pub(super) const PID: Range<usize> = 4..8;
    pub(super) const REGION: Range<usize> = PID.end..12;
    pub(super) const SLOT: Range<usize> = REGION.end..14;
    pub(super) const ENGINE: Range<usize> = SLOT.end..16;
    pub(super) const GENERATION: Range<usize> = ENGINE.end..20;
    pub(super) const COUNTER: Range<usize> = GENERATION.end..28;
    pub(super) const END: usize = COUNTER.end;
}

/// Octets of the common header.
pub const HEADER_LEN: usize = field::END;

/// The meaning of the common header. Frame type and status belong to the frames that begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The op's class of service, at initiator and responder.
    pub class: ClassOfService,
    /// The initiating process.
    pub pid: Pid,
    /// The remote region.
    pub region: RegionId,
    /// The initiator's command slot.
    pub slot: CommandSlotId,
    /// The use of the slot, so that late frames of an earlier use are known.
    pub generation: u32,
    /// The engine that sealed this frame; with the frame's direction, the sender part of its IV.
    pub engine: EngineId,
    /// The counter part of the frame's IV.
    pub counter: u64,
}

impl Header {
    /// The header of no frame.
    pub(crate) const NONE: Self = Self {
        class: ClassOfService::Latency,
        pid: Pid(0),
        region: RegionId::from_bits(0),
        slot: CommandSlotId(0),
        generation: 0,
        engine: EngineId(0),
        counter: 0,
    };

    /// Writes every octet of the common header, so that a reused buffer leaks nothing.
    pub(super) fn emit(&self, frame_type: FrameType, status: u8, out: &mut [u8; HEADER_LEN]) {
        out[field::VERSION] = VERSION;
        out[field::FRAME_TYPE] = frame_type as u8;
        out[field::CLASS] = self.class as u8;
        out[field::STATUS] = status;
        out[field::PID].copy_from_slice(&self.pid.0.to_be_bytes());
        out[field::REGION].copy_from_slice(&self.region.to_bits().to_be_bytes());
        out[field::SLOT].copy_from_slice(&self.slot.0.to_be_bytes());
        out[field::ENGINE].copy_from_slice(&self.engine.0.to_be_bytes());
        out[field::GENERATION].copy_from_slice(&self.generation.to_be_bytes());
        out[field::COUNTER].copy_from_slice(&self.counter.to_be_bytes());
    }

    /// The IV of the frame that this header begins.
    #[must_use]
    pub const fn iv(&self, direction: Direction) -> Iv {
        Iv::new(direction, self.engine, self.counter)
    }
}

/// The octets of a common header whose fields have defined values.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderView {
    frame_type: FrameType,
    status: u8,
    header: Header,
}

impl HeaderView {
    pub(super) fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let octets: &[u8; HEADER_LEN] = frame.first_chunk().ok_or(DropReason::Length)?;
        Ok(Self {
            frame_type: frame_type_of(octets)?,
            status: octets[field::STATUS],
            header: Header {
                class: ClassOfService::from_code(octets[field::CLASS]).ok_or(DropReason::Field)?,
                pid: Pid(u32::from_be_bytes(read(octets, field::PID.start))),
                region: RegionId::from_bits(u32::from_be_bytes(read(octets, field::REGION.start))),
                slot: CommandSlotId(u16::from_be_bytes(read(octets, field::SLOT.start))),
                engine: EngineId(u16::from_be_bytes(read(octets, field::ENGINE.start))),
                generation: u32::from_be_bytes(read(octets, field::GENERATION.start)),
                counter: u64::from_be_bytes(read(octets, field::COUNTER.start)),
            },
        })
    }

    pub(super) const fn frame_type(&self) -> FrameType {
        self.frame_type
    }

    pub(super) const fn status(&self) -> u8 {
        self.status
    }

    pub(super) const fn header(&self) -> Header {
        self.header
    }
}

/// The type of the frame that `octets` begin.
#[inline]
pub(super) const fn frame_type_of<const LEN: usize>(
    octets: &[u8; LEN],
) -> Result<FrameType, DropReason> {
    const { assert!(LEN >= HEADER_LEN) };
    if octets[field::VERSION] != VERSION {
        return Err(DropReason::Version);
    }
    match FrameType::from_code(octets[field::FRAME_TYPE]) {
        Some(frame_type) => Ok(frame_type),
        None => Err(DropReason::FrameType),
    }
}

/// The `N` octets at `start`. Panics if they are not there, so `LEN` must be checked by the type.
pub(super) fn read<const N: usize, const LEN: usize>(octets: &[u8; LEN], start: usize) -> [u8; N] {
    *octets[start..].first_chunk().expect("field ranges lie inside the array by construction")
}
