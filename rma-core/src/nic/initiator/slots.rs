//! The command slot table: one flat entry for each op, and how a frame that claims to answer one
//! finds it.
//!
//! What is found is a claim still: the tag decides, which is bound to the op's key and to the IV of
//! the frame that was answered.

use super::{Initiator, mutation::Solicited, response::Loaded};
use crate::{
    addr::{HostAddr, Pid},
    backend::RxFrame,
    command::{Command, CommandSlotId, Ending},
    crypto::{DerivedRegionKey, Iv},
    error::{CommandError, DropReason},
    granules::Granules,
    limits::{GRANULE, TAG_LEN},
    nic::{security::RequestSeal, tenant::Presence},
    op::{Moves, OpStatus},
    path_limits::Paths,
    port::SourcePort,
    tenant::TenantIndex,
    time::Instant,
    wire::{Header, read::RESPONSE_OVERHEAD},
};

/// One entry of the command slot table. Flat, and filled in place, so that an op is not copied from
/// state to state.
pub(super) struct Slot {
    pub(super) state: State,
    /// The present use of the slot.
    pub(super) generation: u32,
    /// PID_initiator, fixed when the slot was allocated; `None` while nobody has it.
    //= 1rma#4.2-pid-immutable
    pub(super) pid: Option<Pid>,
    /// The tenant whose share of the window its reads come from.
    pub(super) tenant: TenantIndex,
    /// The amount that its read has of that share.
    pub(super) charged: u16,
    /// When the present command arrived here.
    pub(super) arrived_at: Instant,
    /// The command of an op that is queued or in service.
    pub(super) command: Command,
    /// When the op entered service.
    pub(super) entered_at: Instant,
    /// The UDP port that the op's frames go from: that of the turn in which its request went.
    pub(super) source_port: SourcePort,
    /// The seal that binds answers to the request.
    //= 1rma#A-iv-memoized
    pub(super) seal: RequestSeal,
    /// The granules of a read that have arrived.
    pub(super) arrived: Granules,
    /// Octets of the longest frame in which the data of a mutation went.
    pub(super) longest: u16,
    /// When these were loaded.
    pub(super) loaded: Loaded,
    /// The content of a mutation's solicitation.
    pub(super) solicited: Solicited,
    /// The end of an op that is no READ, until its completion is polled.
    pub(super) ending: Ending,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Queued,
    /// As that, and a tenant's share is waited for.
    Held,
    InService,
    Solicited,
    Completed,
}

impl Slot {
    /// How many octets the frames with data have at most that were sent for the op, or asked for.
    /// Of what is asked for it may be more than comes: a peer cuts its answers to its own device's
    /// MTU. So an op that is OK and one like it that is lost tell the same.
    fn longest_frame(&self) -> usize {
        let (op, most) = (&self.command.op, usize::from(self.solicited.payload_len_max));
        let size = op.op_size() as usize;
        match self.state {
            State::Solicited => self.longest.into(),
            State::InService if op.moves() == Moves::In => {
                // The first of several may be shorter than others.
                let granules = most / GRANULE as usize * GRANULE as usize;
                RESPONSE_OVERHEAD + if size <= most { size } else { granules }
            }
            _ => 0,
        }
    }

    /// Tells whoever keeps the limits of paths how an op ends that was under way.
    #[inline]
    pub(super) fn tell(&self, status: OpStatus, paths: &Paths) {
        let peer = self.command.responder;
        match (status, self.state) {
            (OpStatus::Ok, _) => paths.arrived(peer, || self.longest_frame()),
            (OpStatus::Timeout, _) => paths.lost(peer, self.longest_frame()),
            _ => {}
        }
    }
}

/// The place of a slot in this NIC's table: its number less that of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotIndex(pub(super) u16);

impl SlotIndex {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Initiator {
    /// The place of the slot that has this number, or one beyond the table if it is no slot of this
    /// NIC.
    #[inline]
    pub(super) const fn index_of(&self, CommandSlotId(number): CommandSlotId) -> SlotIndex {
        SlotIndex(number.wrapping_sub(self.first_slot))
    }

    /// The number of a slot, in frames and to applications.
    #[inline]
    pub(super) const fn number_of(&self, SlotIndex(index): SlotIndex) -> CommandSlotId {
        CommandSlotId(self.first_slot.wrapping_add(index))
    }

    pub(in crate::nic) const fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Fixes the PID of a free slot, or takes it away.
    pub(in crate::nic) fn configure_slot(
        &mut self,
        slot: CommandSlotId,
        pid: Option<Pid>,
        tenant: TenantIndex,
        presence: &mut Presence,
    ) {
        let slot = &mut self.slots[self.index_of(slot).index()];
        if slot.pid.is_some() {
            presence.leave(slot.tenant);
        }
        if pid.is_some() {
            presence.enter(tenant);
        }
        (slot.pid, slot.tenant) = (pid, tenant);
        slot.command = Command::NONE;
    }

    #[inline]
    pub(in crate::nic) fn tenant_of(&self, slot: CommandSlotId) -> TenantIndex {
        self.slots[self.index_of(slot).index()].tenant
    }

    pub(in crate::nic) fn is_free(&self, slot: CommandSlotId) -> bool {
        self.slots.get(self.index_of(slot).index()).is_some_and(|slot| slot.state == State::Free)
    }

    pub(super) fn take_slot(
        &mut self,
        now: Instant,
        number: CommandSlotId,
    ) -> Result<(SlotIndex, Pid), CommandError> {
        let foreign = CommandError::ForeignSlot { slot: number.0 };
        let id = self.index_of(number);
        let slot = self.slots.get_mut(id.index()).ok_or(foreign)?;
        let pid = slot.pid.ok_or(foreign)?;
        //= 1rma#4.3-slot-is-one-op
        if slot.state != State::Free {
            return Err(CommandError::SlotBusy { slot: number.0 });
        }
        slot.generation = slot.generation.wrapping_add(1);
        slot.arrived_at = now;
        Ok((id, pid))
    }

    /// Returns the key and seal of a frame that claims to answer the request of an op: its K_d, and
    /// the request's seal.
    pub(in crate::nic) fn request_of(
        &self,
        source: HostAddr,
        header: &Header,
    ) -> Option<(&DerivedRegionKey, &RequestSeal)> {
        let slot = &self.slots[self.find(source, header, State::InService).ok()?];
        Some((&slot.command.key, &slot.seal))
    }

    /// As [`Initiator::request_of`], of frames that follow on a solicitation, and its IV.
    pub(in crate::nic) fn solicitation_of(
        &self,
        source: HostAddr,
        header: &Header,
    ) -> Option<(&DerivedRegionKey, &Iv)> {
        let slot = &self.slots[self.find(source, header, State::Solicited).ok()?];
        Some((&slot.command.key, &slot.solicited.iv))
    }

    /// Notes the tag of a request that was just sealed.
    pub(in crate::nic) fn note_tag(&mut self, slot: CommandSlotId, tag: [u8; TAG_LEN]) {
        self.slots[self.index_of(slot).index()].seal.tag = tag;
    }

    /// The slot of the op that a frame claims to answer. The claim is not authenticated yet: the
    /// tag, which is bound to the op's key and to its request's IV, decides.
    pub(super) fn slot_of(
        &mut self,
        source: HostAddr,
        header: &Header,
        state: State,
    ) -> Result<&mut Slot, DropReason> {
        let index = self.find(source, header, state)?;
        Ok(&mut self.slots[index])
    }

    /// Learns where answers to the port of an op come to, from an authentic one. It is the port of
    /// the answer as well, unless its sender can have but one, or somebody has changed it.
    pub(in crate::nic) fn learn(&mut self, slot: CommandSlotId, frame: &RxFrame<'_>) {
        let Slot { source_port, .. } = self.slots[self.index_of(slot).index()];
        if frame.source_port != source_port {
            return;
        }
        if frame.is_handed_over {
            self.ports.forget(frame.source, source_port);
        } else {
            self.ports.learn(frame.source, source_port);
        }
    }

    /// The index of [`Initiator::slot_of`].
    fn find(&self, source: HostAddr, header: &Header, state: State) -> Result<usize, DropReason> {
        let index = self.index_of(header.slot).index();
        let slot = self.slots.get(index).ok_or(DropReason::UnknownSlot)?;
        if slot.state != state || slot.generation != header.generation {
            return Err(DropReason::LateOrUnsolicited);
        }
        if slot.command.responder != source {
            return Err(DropReason::WrongResponder);
        }
        Ok(index)
    }
}
