//! The report of a run.

use core::fmt;

use rma_core::{
    error::{DropReason, NotSent},
    nic::NicCounters,
    op::{OpStatus, OpType},
    outcome::Verdict,
    time::Instant,
};

use crate::{
    check::history::Checked,
    load::workload::BoardCounts,
    net::{
        frame::NodeId,
        trace::{Digest, Place, Seen, What},
    },
};

/// Frames that were dropped by NICs, by reason code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drops(pub [u64; DropReason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Self([0; DropReason::ALL.len()])
    }
}

impl core::ops::Deref for Drops {
    type Target = [u64; DropReason::ALL.len()];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl core::ops::DerefMut for Drops {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// The report of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of ops by their end, by op type, in the order of [`OpType::ALL`], and status
    /// code. Without SETTLEs.
    pub statuses: [[u64; OpStatus::ALL.len()]; OpType::ALL.len()],
    /// Frames that were dropped by NICs, by reason code.
    pub drops: Drops,
    /// Frames that were not sent by NICs, by reason code.
    pub not_sent: [u64; NotSent::ALL.len()],
    /// Commands that were refused because their slot was busy.
    pub refused: u64,
    /// Frames that NICs sent.
    pub frames: u64,
    /// Packets that they were in.
    pub packets: u64,
    /// Frames that shared their packets with others.
    pub shared: u64,
    /// Frames that no packet took.
    pub unpaid: u64,
    /// Ends of packets that no frames could be found in.
    pub tails: u64,
    /// Copies of frames that NICs received.
    pub received: u64,
    /// Copies of frames that switches, or devices of nodes that did not run, had no room for.
    pub lost: u64,
    /// Pauses of nodes.
    pub pauses: u64,
    /// Crashes of nodes.
    pub crashes: u64,
    /// Changes of regions and keys by their owners.
    pub changes: u64,
    /// Bursts of frames in the midst of which a node was stopped.
    pub stalls: u64,
    /// Bursts of more than one frame that NICs received.
    pub bursts: u64,
    /// Turns in which requests waited for others.
    pub gathers: u64,
    /// Changes at a target that may have come after their ops were reported, as NICs counted them.
    pub late_effects: u64,
    /// Mutations that were parked, and those of them whose entries were given to others; requests
    /// that made room for others.
    pub made_room: [u64; 3],
    /// The number of SETTLEs by their end, by status code.
    pub settles: [u64; OpStatus::ALL.len()],
    /// Answers to SETTLEs, in the order of [`Verdict::ALL`].
    pub verdicts: [u64; Verdict::ALL.len()],
    /// Words whose histories were checked.
    pub words: u64,
    /// Atomics on them, those of their own hosts among them, and how many of these were judged as
    /// of unknown outcome.
    pub atomics: [u64; 2],
    /// Changes of boards by ordered ops; reads of boards that saw them as they were at one time,
    /// and those in the midst of which they changed.
    pub boards: [u64; 3],
    /// Keys of receive queues that other hosts have installed.
    pub queue_rekeys: u64,
    /// Frames that engines gave to others of their hosts, and keys that they took from others.
    pub handed: [u64; 2],
    /// Events that the simulator took from its heap.
    pub steps: u64,
    /// The most solicited payload that was ever on its way to one node.
    pub peak_in_flight: u64,
    /// When the last thing happened.
    pub end: Instant,
    /// All of it in one number.
    pub digest: Digest,
    /// The last burst of frames.
    burst: Burst,
}

/// Frames that one node received at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Burst {
    at: Option<(NodeId, Instant)>,
    frames: u64,
    is_stalled: bool,
}

impl Report {
    /// Adds another run: counts are summed, the peak and the end are the largest, and the digest is
    /// one of all digests in the order in which they were added.
    pub fn add(&mut self, other: &Self) {
        let counts = self.statuses.iter_mut().flatten();
        counts.zip(other.statuses.as_flattened()).for_each(|(sum, count)| *sum += count);
        self.drops.iter_mut().zip(*other.drops).for_each(|(sum, count)| *sum += count);
        self.not_sent.iter_mut().zip(other.not_sent).for_each(|(sum, count)| *sum += count);
        self.refused += other.refused;
        self.frames += other.frames;
        self.packets += other.packets;
        self.shared += other.shared;
        self.unpaid += other.unpaid;
        self.tails += other.tails;
        self.received += other.received;
        self.lost += other.lost;
        self.pauses += other.pauses;
        self.crashes += other.crashes;
        self.changes += other.changes;
        self.stalls += other.stalls;
        self.bursts += other.bursts;
        self.gathers += other.gathers;
        self.late_effects += other.late_effects;
        self.made_room.iter_mut().zip(other.made_room).for_each(|(own, other)| *own += other);
        self.verdicts.iter_mut().zip(other.verdicts).for_each(|(own, other)| *own += other);
        self.settles.iter_mut().zip(other.settles).for_each(|(own, other)| *own += other);
        self.words += other.words;
        self.atomics.iter_mut().zip(other.atomics).for_each(|(own, other)| *own += other);
        self.boards.iter_mut().zip(other.boards).for_each(|(own, other)| *own += other);
        self.queue_rekeys += other.queue_rekeys;
        self.handed.iter_mut().zip(other.handed).for_each(|(own, other)| *own += other);
        self.steps += other.steps;
        self.peak_in_flight = self.peak_in_flight.max(other.peak_in_flight);
        self.end = self.end.max(other.end);
        self.digest.fold(other.digest);
    }

    /// Frames sent and received: each is parsed, sealed or opened, and checked.
    #[must_use]
    pub const fn frame_events(&self) -> u64 {
        self.frames + self.received
    }

    /// Takes in one thing that happened.
    pub(super) fn take(&mut self, seen: &Seen) {
        self.digest.take(seen);
        match &seen.what {
            What::Left { packet, .. } => {
                self.packets += 1;
                self.shared += if packet.frames.len() > 1 { packet.frames.len() as u64 } else { 0 };
            }
            What::Sent { .. } => self.frames += 1,
            What::Unpaid { .. } => self.unpaid += 1,
            What::Tail { .. } => self.tails += 1,
            What::Received { stalled, .. } => {
                self.received += 1;
                let at = Some((seen.node, seen.at));
                if self.burst.at != at {
                    self.burst = Burst { at, ..Burst::default() };
                }
                self.burst.frames += 1;
                self.bursts += u64::from(self.burst.frames == 2);
                let is_stalled = !stalled.is_zero();
                self.stalls += u64::from(is_stalled && !self.burst.is_stalled);
                self.burst.is_stalled = is_stalled;
            }
            What::Lost { place, .. } => self.lost += u64::from(*place != Place::Unfound),
            What::Paused => self.pauses += 1,
            What::Crashed => self.crashes += 1,
            What::Handed { .. } => self.handed[0] += 1,
            What::KeyTaken { .. } => self.handed[1] += 1,
            What::Came { .. }
            | What::Issued { .. }
            | What::Completed(_)
            | What::Resumed
            | What::Restarted => {}
        }
    }

    /// Takes in what a NIC has counted over its life.
    pub(super) fn take_counters(&mut self, counters: &NicCounters) {
        for (reason, count) in counters.all_drops() {
            self.drops[reason as usize] += count;
        }
        for reason in NotSent::ALL {
            self.not_sent[reason as usize] += counters.not_sent(reason);
        }
        self.late_effects += counters.late_effects();
        let made_room = [counters.parked(), counters.parked_forgotten(), counters.pushed_out()];
        self.made_room.iter_mut().zip(made_room).for_each(|(own, other)| *own += other);
    }

    /// How many ops of all types ended with `status`.
    #[must_use]
    pub fn ended_with(&self, status: OpStatus) -> u64 {
        self.statuses.iter().map(|counts| counts[status as usize]).sum()
    }

    /// How many ops of `op_type` ended with `status`.
    #[must_use]
    pub fn ended(&self, op_type: OpType, status: OpStatus) -> u64 {
        OpType::ALL
            .iter()
            .position(|&it| it == op_type)
            .map_or(0, |row| self.statuses[row][status as usize])
    }

    /// Takes in what was found in order.
    pub(super) fn take_checked(&mut self, checked: &Checked) {
        self.words += checked.words as u64;
        self.atomics[0] += checked.ops as u64;
        self.atomics[1] += checked.unknown as u64;
    }

    /// Takes in what was seen of boards.
    pub(super) const fn take_boards(&mut self, seen: BoardCounts) {
        let BoardCounts { changes, whole, changing } = seen;
        self.boards = [changes, whole, changing];
    }

    pub(super) fn count_settle(&mut self, status: OpStatus, verdict: Option<Verdict>) {
        self.settles[status as usize] += 1;
        if let Some(place) = verdict.and_then(|it| Verdict::ALL.iter().position(|&of| of == it)) {
            self.verdicts[place] += 1;
        }
    }

    pub(super) fn count_end(&mut self, op_type: OpType, status: OpStatus) {
        if let Some(row) = OpType::ALL.iter().position(|&it| it == op_type) {
            self.statuses[row][status as usize] += 1;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, received, lost, steps, digest, .. } = self;
        let Self { peak_in_flight, refused, pauses, crashes, end, .. } = self;
        writeln!(f, "digest {digest}, {steps} events, {} ns", end.as_nanos())?;
        writeln!(f, "{frames} frames sent, {received} copies received, {lost} had no room")?;
        let Self { packets, shared, unpaid, tails, .. } = self;
        writeln!(f, "{packets} packets, {shared} frames in shared ones, {unpaid} in none")?;
        writeln!(f, "{tails} tails without frames")?;
        let Self { bursts, gathers, changes, stalls, late_effects, .. } = self;
        writeln!(f, "{bursts} bursts received, {gathers} turns with requests that gathered")?;
        writeln!(f, "{pauses} pauses, {crashes} crashes, {changes} changes, {stalls} stalls")?;
        writeln!(f, "{late_effects} late effects counted")?;
        let [parked, forgotten, pushed_out] = self.made_room;
        writeln!(f, "{parked} parked, {forgotten} of them forgotten; {pushed_out} pushed out")?;
        let [atomics, unknown] = self.atomics;
        writeln!(f, "{} words, {atomics} ops on them, {unknown} unknown", self.words)?;
        let [changes, whole, changing] = self.boards;
        writeln!(f, "{changes} changes of boards, read {whole} times, and {changing} meanwhile")?;
        writeln!(f, "{} rekeys of receive queues", self.queue_rekeys)?;
        if let [frames @ (1..), keys] = self.handed {
            writeln!(f, "{frames} frames handed from engine to engine, {keys} keys")?;
        }
        for (verdict, count) in Verdict::ALL.into_iter().zip(self.verdicts) {
            writeln!(f, "{count:>8} settled: {verdict}")?;
        }
        for status in OpStatus::ALL.into_iter().filter(|&s| self.settles[s as usize] > 0) {
            writeln!(f, "{:>8} SETTLE {status}", self.settles[status as usize])?;
        }
        writeln!(f, "at most {peak_in_flight} B solicited and in flight; {refused} refused")?;
        for (op_type, counts) in OpType::ALL.into_iter().zip(&self.statuses) {
            for status in OpStatus::ALL.into_iter().filter(|&s| counts[s as usize] > 0) {
                writeln!(f, "{:>8} {op_type:?} {status}", counts[status as usize])?;
            }
        }
        for reason in DropReason::ALL.into_iter().filter(|&r| self.drops[r as usize] > 0) {
            writeln!(f, "{:>8} dropped: {reason:?}", self.drops[reason as usize])?;
        }
        for reason in NotSent::ALL.into_iter().filter(|&r| self.not_sent[r as usize] > 0) {
            writeln!(f, "{:>8} not sent: {reason:?}", self.not_sent[reason as usize])?;
        }
        Ok(())
    }
}
