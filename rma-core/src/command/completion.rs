//! The end of an op, as its application is told (1RMA §4.5).

use rma_shm::Line;

use super::{CommandSlotId, lines::place};
use crate::{
    crypto::EngineId,
    op::OpStatus,
    outcome::{OpName, Verdict},
};

/// The end of an op, and its two delay measures (§4.5).
//= 1rma#4.5-delay-measures
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The slot of the command that has completed. Free again once the portal has seen this.
    pub slot: CommandSlotId,
    /// The status that it ended with.
    pub status: OpStatus,
    issue_delay_nanos: u64,
    total_delay_nanos: u64,
    ending: Ending,
}

/// How far an op got, and what its target says of it (not in the paper). As it stands in a line, so
/// that who passes it on does not look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// The facts that are present; the verdict of a SETTLE from bit [`Ending::VERDICT`] on.
    flags: u8,
    /// The result; then the name, its counter and its [`place`].
    words: [u64; 3],
}

impl Ending {
    /// Of an op of which there is no more to say.
    pub(crate) const NONE: Self = Self { flags: 0, words: [0; 3] };

    const REACHED: u8 = 1;
    const MAY_HAVE_CHANGED: u8 = 2;
    const NAMED: u8 = 4;
    const RESULT: u8 = 8;
    const VERDICT: u32 = 4;

    /// Data of the op was sent, or its solicitation had come at least.
    pub(crate) const fn reached(mut self) -> Self {
        self.flags |= Self::REACHED;
        self
    }

    /// The op may have changed its target although it is not OK.
    pub(crate) const fn may_have_changed(mut self) -> Self {
        self.flags |= Self::MAY_HAVE_CHANGED;
        self
    }

    /// Sets the name that its target gives the op.
    pub(crate) const fn named(mut self, OpName { engine, counter, number }: OpName) -> Self {
        self.flags |= Self::NAMED;
        self.words[1] = counter;
        self.words[2] = place(engine, number);
        self
    }

    /// Sets the word that an atomic found.
    pub(crate) const fn with_result(mut self, result: u64) -> Self {
        self.flags |= Self::RESULT;
        self.words[0] = result;
        self
    }

    /// The answer to a SETTLE.
    pub(crate) const fn settled(mut self, verdict: Verdict) -> Self {
        self.flags |= (verdict as u8) << Self::VERDICT;
        self
    }

    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl Completion {
    /// A completion with its delays in nanoseconds; `issue_delay` is at most `total_delay`.
    #[must_use]
    pub fn new(slot: CommandSlotId, status: OpStatus, issue_delay: u64, total_delay: u64) -> Self {
        Self {
            slot,
            status,
            issue_delay_nanos: issue_delay.min(total_delay),
            total_delay_nanos: total_delay,
            ending: Ending::NONE,
        }
    }

    /// The same, of an op of which there is more to say.
    pub(crate) const fn ending(self, ending: Ending) -> Self {
        Self { ending, ..self }
    }

    /// Whether the op's data was ever sent: its solicitation had come. A mutation whose data was
    /// not has changed nothing, and never will.
    #[must_use]
    pub const fn reached(&self) -> bool {
        self.ending.has(Ending::REACHED)
    }

    /// Whether an op that is not OK may have changed its target all the same: all of it, and of a
    /// plain WRITE, or a WRITE_WITH_IMM that is not ordered, also a part. Whatever it says, nothing
    /// changes from now on (P2).
    ///
    /// Of a TIMEOUT it means: data was sent, and what became of it is not known. A recorded op
    /// that ended so can be settled: see [`Completion::name`].
    #[must_use]
    pub const fn may_have_changed(&self) -> bool {
        self.ending.has(Ending::MAY_HAVE_CHANGED)
    }

    /// Returns the target's name for a recorded op: SEND, NOTIFY, WRITE_WITH_IMM, an ordered WRITE
    /// or an atomic, once its data was asked for. A SETTLE asks by this name; one with a verdict
    /// returns the name that it asked by.
    #[must_use]
    pub const fn name(&self) -> Option<OpName> {
        let Ending { words: [_, counter, place], .. } = self.ending;
        let (engine, number) = (EngineId(place as u16), (place >> u16::BITS) as u16);
        if self.ending.has(Ending::NAMED) { Some(OpName { engine, counter, number }) } else { None }
    }

    /// The answer to a SETTLE that is OK.
    #[must_use]
    pub const fn verdict(&self) -> Option<Verdict> {
        Verdict::from_code((self.ending.flags >> Ending::VERDICT) as u16)
    }

    /// The word that a COMPARE_SWAP or a FETCH_ADD found, before it changed it: of one that is OK,
    /// and of a SETTLE that says that it was applied.
    #[must_use]
    pub const fn result(&self) -> Option<u64> {
        if self.ending.has(Ending::RESULT) { Some(self.ending.words[0]) } else { None }
    }

    /// How long the command waited in the initiating NIC to enter service: local congestion (§4.5).
    /// Equal to `total_delay` for an op that never did.
    #[must_use]
    pub const fn issue_delay(&self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.issue_delay_nanos)
    }

    /// How long the op took in all, from its arrival in the NIC to its completion (§4.5).
    #[must_use]
    pub const fn total_delay(&self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.total_delay_nanos)
    }

    /// The network's and the remote NIC's share of the delay: the difference of the two (§6).
    //= 1rma#6-remote-delay
    #[must_use]
    pub const fn remote_delay(&self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.total_delay_nanos - self.issue_delay_nanos)
    }

    /// `issue_delay` and `total_delay` in nanoseconds, the first at most the second.
    pub(crate) const fn delays_nanos(&self) -> (u64, u64) {
        (self.issue_delay_nanos, self.total_delay_nanos)
    }

    /// The completion as the line that goes into the portal's completion ring.
    #[must_use]
    #[inline]
    pub const fn to_line(&self) -> Line {
        let Self { slot, status, issue_delay_nanos, total_delay_nanos, ending } = self;
        let head = slot.0 as u64 | (*status as u64) << 16 | (ending.flags as u64) << 24;
        let [result, counter, place] = ending.words;
        Line([head, *issue_delay_nanos, *total_delay_nanos, result, counter, place, 0, 0])
    }

    /// The completion in a line of the completion ring; `None` if the line holds no defined status.
    #[must_use]
    #[inline]
    pub fn from_line(line: &Line) -> Option<Self> {
        let [head, issue_delay, total_delay, result, counter, place, ..] = line.0;
        let status = OpStatus::from_code((head >> 16) as u8)?;
        let completion = Self::new(CommandSlotId(head as u16), status, issue_delay, total_delay);
        let ending = Ending { flags: (head >> 24) as u8, words: [result, counter, place] };
        Some(completion.ending(ending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= 1rma#6-remote-delay
    //= type=test
    #[test]
    fn a_completion_round_trips_and_its_delays_add_up() {
        let completion = Completion::new(CommandSlotId(3), OpStatus::Timeout, 40, 100);
        let read = Completion::from_line(&completion.to_line()).unwrap();
        assert_eq!(read, completion);
        assert_eq!(read.issue_delay() + read.remote_delay(), read.total_delay());
        assert_eq!(Completion::from_line(&Line([0xff << 16, 0, 0, 0, 0, 0, 0, 0])), None);
        let forged = Line([0, u64::MAX, 5, 0, 0, 0, 0, 0]);
        assert_eq!(Completion::from_line(&forged).unwrap().remote_delay().as_nanos(), 0);
    }

    #[test]
    fn a_targets_word_about_an_op_round_trips() {
        let name = OpName { engine: EngineId(0xfffe), counter: u64::MAX - 1, number: 0xfffd };
        let read = |ending| {
            let completion = Completion::new(CommandSlotId(9), OpStatus::Ok, 1, 2).ending(ending);
            let read = Completion::from_line(&completion.to_line()).unwrap();
            assert_eq!(read, completion);
            (
                (read.reached(), read.may_have_changed()),
                (read.name(), read.verdict(), read.result()),
            )
        };
        assert_eq!(read(Ending::NONE), ((false, false), (None, None, None)));
        let unknown = Ending::NONE.reached().may_have_changed().named(name);
        assert_eq!(read(unknown), ((true, true), (Some(name), None, None)));
        for verdict in Verdict::ALL {
            let settled = Ending::NONE.named(name).settled(verdict).with_result(u64::MAX);
            let all = (Some(name), Some(verdict), Some(u64::MAX));
            assert_eq!(read(settled), ((false, false), all));
        }
        assert_eq!(read(Ending::NONE.with_result(0)).1.2, Some(0));
    }
}
