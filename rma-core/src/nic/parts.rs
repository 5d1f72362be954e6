//! The parts of a host's engines: slots, entries and records are numbered host-wide, in equal
//! parts, so that the clear header of a frame names the engine that it is for (not in the paper,
//! whose host has one NIC).
//!
//! The owner of a frame has what the frame is about:
//!
//! | frame | owner |
//! |---|---|
//! | response, failure, solicitation, acknowledgements, settlement | the engine of the command slot |
//! | solicited data, SETTLE | the engine of the number |
//! | request of SEND, NOTIFY, WRITE_WITH_IMM, Rekey | the home of the region |
//! | any other request | whoever has received it |
//! | one that names nothing that there is | whoever has received it, who drops it |
//!
//! It is looked at before anything is opened, so it is a claim: its owner opens the frame.

use rma_shm::Line;

use super::{
    Nic, NicConfig,
    region_table::RegionTable,
    responder::{Asker, DoneElsewhere},
};
use crate::{
    addr::{HostAddr, Pid},
    backend::RxFrame,
    command::CommandSlotId,
    crypto::EngineId,
    outcome::Done,
    region::RegionId,
    seat::Word,
    wire::{FrameView, Mutation},
};

impl NicConfig {
    /// The number of this engine's first command slot.
    pub(crate) const fn first_slot(&self) -> u16 {
        self.index() * self.settings.command_slots as u16
    }

    /// The number of this engine's first entry of the pending-write table. Those of its records
    /// follow its entries'.
    pub(super) const fn first_number(&self) -> u16 {
        self.index() * self.numbers()
    }

    /// How many numbers each engine has: of entries and records.
    const fn numbers(&self) -> u16 {
        (self.settings.pending_writes + self.settings.outcome_records) as u16
    }

    /// The number of this engine among those of its host, from 0.
    const fn index(&self) -> u16 {
        if self.is_alone() { 0 } else { self.place.engine.0 }
    }

    /// Whether its host has no other engine.
    pub(super) const fn is_alone(&self) -> bool {
        self.place.engines == 1
    }

    const fn engine_of_slot(&self, CommandSlotId(slot): CommandSlotId) -> Option<EngineId> {
        self.engine(slot / self.settings.command_slots as u16)
    }

    /// The engine that has the entry or record of this number.
    pub(super) const fn engine_of_number(&self, number: u16) -> Option<EngineId> {
        self.engine(number / self.numbers())
    }

    const fn engine(&self, index: u16) -> Option<EngineId> {
        if index < self.place.engines { Some(EngineId(index)) } else { None }
    }

    /// The engine that `view` is for. `None`: whoever has received it.
    fn owner_of(&self, view: &FrameView, regions: &RegionTable) -> Option<EngineId> {
        match view {
            FrameView::SolicitedData(it) => self.engine_of_number(it.claims().pending),
            FrameView::SettleRequest(it) => self.engine_of_number(it.claims().name.number),
            FrameView::MutationRequest(it) => {
                let claims = it.claims();
                home(&claims.mutation, claims.header.region, regions)
            }
            FrameView::RecordedRequest(it) => {
                let claims = it.claims();
                home(&claims.mutation, claims.header.region, regions)
            }
            answer => self.engine_of_slot(slot_answered(answer)?),
        }
    }
}

/// The command slot of the op that `view` claims to answer. `None`: it is no answer.
const fn slot_answered(view: &FrameView) -> Option<CommandSlotId> {
    let header = match view {
        FrameView::ReadResponse(it) => it.claims().header,
        FrameView::Failure(it) => it.claims().header,
        FrameView::Solicitation(it) => it.claims().header,
        FrameView::Acknowledgement(it) => it.claims().header,
        FrameView::AcknowledgementWithResult(it) => it.claims().header,
        FrameView::Settlement(it) => it.claims().header,
        FrameView::ReadRequest(_)
        | FrameView::MutationRequest(_)
        | FrameView::SolicitedData(_)
        | FrameView::RecordedRequest(_)
        | FrameView::SettleRequest(_) => return None,
    };
    Some(header.slot)
}

/// The home of `region`, if that is who carries out `mutation`.
fn home(mutation: &Mutation, region: RegionId, regions: &RegionTable) -> Option<EngineId> {
    match mutation {
        Mutation::Rekey
        | Mutation::Send { .. }
        | Mutation::WriteWithImm { .. }
        | Mutation::Notify => regions.home_of(region),
        Mutation::Write { .. }
        | Mutation::OrderedWrite { .. }
        | Mutation::CompareSwap { .. }
        | Mutation::FetchAdd { .. } => None,
    }
}

/// The two halves of the octets of an address.
fn halves(address: HostAddr) -> [u64; 2] {
    let octets = u128::from_be_bytes(address.to_octets());
    [(octets >> 64) as u64, octets as u64]
}

impl Nic {
    /// The next word for another engine of the host, as of the last frames.
    #[must_use]
    pub fn poll_word(&mut self) -> Option<Word> {
        let DoneElsewhere { engine, asker, done } = self.responder.poll_done()?;
        let [high, low] = halves(asker.initiator);
        let [number, pid] = [u64::from(done.number), asker.pid.0.into()];
        let region = u64::from(asker.region.to_bits());
        let line = Line([0, done.counter, number, high, low, pid, region, 0]);
        Some(Word { to: engine, line })
    }

    /// Takes a word of another engine of the host.
    pub fn handle_word(&mut self, &Line([_, counter, number, high, low, pid, region, _]): &Line) {
        let initiator = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        let asker = Asker {
            initiator: HostAddr::from_octets(initiator),
            pid: Pid(pid as u32),
            region: RegionId::from_bits(region as u32),
        };
        self.responder.note_done_elsewhere(&asker, Done { counter, number: number as u16 });
    }

    /// Counts the packet of the frames that follow as paid for, up to the next first frame (P10).
    pub const fn note_paid(&mut self) {
        self.responder.note_paid();
    }

    /// Learns where answers come to, from a frame that was authentic. Not from a notice of failure:
    /// whoever sees a request can make one.
    #[inline(never)]
    pub(super) fn learn(&mut self, frame: &RxFrame<'_>, view: &FrameView) {
        if !matches!(view, FrameView::Failure(_))
            && let Some(slot) = slot_answered(view)
        {
            self.initiator.learn(slot, frame);
        }
    }

    /// The engine of this NIC's host that `frame` is for, by what it claims. `None`: whoever has
    /// received it.
    #[must_use]
    pub fn owner_of(&self, frame: &RxFrame<'_>) -> Option<EngineId> {
        let view = FrameView::parse(frame.bytes).ok()?;
        let is_local = self.config.place.addresses.contains(frame.destination);
        self.config.owner_of(&view, &self.regions).filter(|_| is_local)
    }
}
