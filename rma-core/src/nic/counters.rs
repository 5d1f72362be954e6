//! The counters of a NIC. One thread writes, any thread may read.

use super::{
    delays::{DelayCells, DelayHistogram},
    gauges::{GaugeCells, NicGauges},
    other_version::{OtherVersion, OtherVersionCell},
};
use crate::{
    command::{CommandOp, Completion},
    error::{DropReason, NotSent},
    op::{OpStatus, OpType},
    outcome::Verdict,
    packet::sizes::{PacketSizeCells, PacketSizes},
    tally::Tally,
};

/// Counters of one NIC, written by the engine thread alone; a reader sees each counter whole, but
/// not all at one instant.
#[derive(Debug, Default)]
pub struct NicCounters {
    statuses: [Tally; OpStatus::ALL.len()],
    /// `issue_delay` and `total_delay` of the ops that ended with OK, for each type of op.
    delays: [[DelayCells; 2]; OpType::ALL.len()],
    drops: Drops,
    not_sent: [Tally; NotSent::ALL.len()],
    packets_received: PacketSizeCells,
    frames_received: Tally,
    frames_sent: Tally,
    tail_octets: Tally,
    commands_refused: Tally,
    pub(super) shed_with_room: Tally,
    pub(super) requests_abandoned: Tally,
    impossible_indexes: Tally,
    pub(super) late_effects: Tally,
    pub(super) parked: Tally,
    pub(super) parked_forgotten: Tally,
    pub(super) rekeys_held_up: Tally,
    pub(super) pushed_out: Tally,
    pub(super) seals_refused: Tally,
    pub(super) previous_keys_lost: Tally,
    settled: [Tally; Verdict::ALL.len()],
    pub(super) posts_refused: Tally,
    gauges: GaugeCells,
    other_version: OtherVersionCell,
}

/// One tally for each reason: more than arrays have a `Default` for.
#[derive(Debug)]
struct Drops([Tally; DropReason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Self(core::array::from_fn(|_| Tally::default()))
    }
}

impl NicCounters {
    /// Ops of this host that ended with `status`.
    pub fn completions(&self, status: OpStatus) -> u64 {
        self.statuses[status as usize].load()
    }

    /// How long ops of this type waited to enter service (`issue_delay`): of those that ended with
    /// OK, as what failed took as long as it took to fail.
    pub fn issue_delay(&self, op_type: OpType) -> DelayHistogram {
        self.delays[op_type.index()][0].load()
    }

    /// How long ops of this type took in all (`total_delay`): of those that ended with OK.
    pub fn total_delay(&self, op_type: OpType) -> DelayHistogram {
        self.delays[op_type.index()][1].load()
    }

    /// Returns the fill of the NIC's tables and queues when the engine last looked. An engine looks
    /// every thousand turns or so, and before it sleeps.
    pub fn gauges(&self) -> NicGauges {
        self.gauges.load()
    }

    /// For the engine thread.
    pub(super) fn publish(&self, gauges: &NicGauges) {
        self.gauges.store(gauges);
    }

    /// Frames that died for `reason`.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops.0[reason as usize].load()
    }

    /// All frames that died, with their reasons; only those that are not zero.
    pub fn all_drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL.into_iter().map(|r| (r, self.drops(r))).filter(|&(_, count)| count > 0)
    }

    /// Frames that were not sent for `reason`.
    pub fn not_sent(&self, reason: NotSent) -> u64 {
        self.not_sent[reason as usize].load()
    }

    /// Packets that the backend handed over, by their frames. The end of one in which no frames
    /// could be found counts as a frame.
    pub fn packets_received(&self) -> PacketSizes {
        self.packets_received.load()
    }

    pub(super) fn count_packet(&self, frames: usize) {
        self.packets_received.count(frames);
    }

    /// Frames that the backend handed over.
    pub fn frames_received(&self) -> u64 {
        self.frames_received.load()
    }

    /// Octets at the ends of packets that no frames could be found in. Each such end is one frame
    /// among [`NicCounters::drops`].
    pub fn tail_octets(&self) -> u64 {
        self.tail_octets.load()
    }

    pub(super) fn count_tail(&self, octets: usize) {
        self.tail_octets.add(octets as u64);
    }

    /// Returns the last sender of a frame of another version of the wire format. `None` if nobody
    /// has. How many there were is among [`NicCounters::drops`].
    pub fn other_version(&self) -> Option<OtherVersion> {
        self.other_version.load()
    }

    pub(super) fn note_other_version(&self, seen: OtherVersion) {
        self.other_version.note(seen);
    }

    /// Frames that the backend took.
    pub fn frames_sent(&self) -> u64 {
        self.frames_sent.load()
    }

    /// Commands for which no completion could be given: for slots that are not the portal's, or
    /// busy.
    pub fn commands_refused(&self) -> u64 {
        self.commands_refused.load()
    }

    /// Ops that ended with DISPATCH_TIMEOUT although the window had room for them, or they needed
    /// none. What kept them from service was no congestion: the engine did not run, its device took
    /// no frames, or no counter value was left.
    pub fn shed_with_room(&self) -> u64 {
        self.shed_with_room.load()
    }

    /// Requests that were taken and then not answered, because they had waited for so long that
    /// their initiators had given up.
    pub fn requests_abandoned(&self) -> u64 {
        self.requests_abandoned.load()
    }

    /// How often an engine found an index in a portal's rings that cannot be. Not 0: an application
    /// that has a portal here is broken or hostile. It stalls itself alone (P8).
    pub fn impossible_indexes(&self) -> u64 {
        self.impossible_indexes.load()
    }

    /// Mutations that this NIC may have applied after their initiators had reported a timeout,
    /// because this engine was not running for longer than the guard between its last look at the
    /// clock and the end of the copy: the cases in which promise P2 could not be kept.
    pub fn late_effects(&self) -> u64 {
        self.late_effects.load()
    }

    /// Mutations of others whose data had not come in time while somebody waited, and that gave
    /// their share of the solicitation window back (P13). Their data may still come, and then
    /// lands.
    pub fn parked(&self) -> u64 {
        self.parked.load()
    }

    /// Mutations of those that were forgotten as their entries were wanted for others: they end
    /// with TIMEOUT (P13). Many: initiators ask and then do not send, or are slow; or somebody
    /// replays recordings.
    pub fn parked_forgotten(&self) -> u64 {
        self.parked_forgotten.load()
    }

    /// How many Rekeys were not acknowledged, as another engine of this host stood still and had
    /// not taken the new key. Their initiators saw TIMEOUT; the region has the key.
    #[must_use]
    pub fn rekeys_held_up(&self) -> u64 {
        self.rekeys_held_up.load()
    }

    /// Requests of others that had waited in the longest list and were NACKed, so that an initiator
    /// with fewer of them found a place (P13).
    pub fn pushed_out(&self) -> u64 {
        self.pushed_out.load()
    }

    /// How often a frame that waited was not sealed because no counter value was left. Grows fast
    /// while that lasts.
    pub fn seals_refused(&self) -> u64 {
        self.seals_refused.load()
    }

    /// SETTLEs of others that were answered so. FORGOTTEN: records are kept for too short a time
    /// for these initiators, or somebody asks about what never was.
    pub fn settled(&self, verdict: Verdict) -> u64 {
        self.settled[verdict as usize - 1].load()
    }

    pub(super) fn count_settled(&self, verdict: Verdict) {
        self.settled[verdict as usize - 1].add(1);
    }

    /// Posts of receives that there are not, or that were posted already. Not 0: an application
    /// that has a receive queue here is broken or hostile.
    pub fn posts_refused(&self) -> u64 {
        self.posts_refused.load()
    }

    /// Previous keys of regions that were forgotten before two timeouts had passed since their
    /// Rekeys: a region was rekeyed more than four times, or all regions together more than 256
    /// times. The NIC treats an initiator that still uses one as a stranger.
    pub fn previous_keys_lost(&self) -> u64 {
        self.previous_keys_lost.load()
    }

    /// `op_type` matters only where the op was one.
    #[inline]
    pub(super) fn count_completion(&self, op: &CommandOp, completion: &Completion) {
        self.statuses[completion.status as usize].add(1);
        // A SETTLE is not of the type that it asks about, and takes half as long.
        if completion.status == OpStatus::Ok && !matches!(op, CommandOp::Settle { .. }) {
            let (issue_delay, total_delay) = completion.delays_nanos();
            let [issue, total] = &self.delays[op.op_type().index()];
            issue.count(issue_delay);
            total.count(total_delay);
        }
    }

    pub(super) fn count_drop(&self, reason: DropReason) {
        self.drops.0[reason as usize].add(1);
    }

    pub(super) fn count_not_sent(&self, reason: NotSent) {
        self.not_sent[reason as usize].add(1);
    }

    pub(super) fn count_received(&self) {
        self.frames_received.add(1);
    }

    pub(super) fn count_sent(&self, frames: u64) {
        self.frames_sent.add(frames);
    }

    pub(crate) fn count_refused(&self) {
        self.commands_refused.add(1);
    }

    pub(crate) fn count_impossible(&self, indexes: u64) {
        // Usually there is nothing to count, and then nothing to store.
        if indexes > 0 {
            self.impossible_indexes.add(indexes);
        }
    }
}
