//! How an op ended, as its application is told (1RMA §4.5).

use rma_shm::Line;

use super::CommandSlotId;
use crate::{
    crypto::EngineId,
    op::OpStatus,
    wire::{OpName, Verdict},
};

/// How an op ended, and its two delay measures (§4.5).
//= 1rma#4.5-delay-measures
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The slot of the command that has completed. Free again once the portal has seen this.
    pub slot: CommandSlotId,
    /// How it ended.
    pub status: OpStatus,
    issue_delay_nanos: u64,
    total_delay_nanos: u64,
    ending: Ending,
}

/// How far an op got, and what its target says of it (not in the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Whether its data was ever sent.
    pub(crate) reached: bool,
    /// Whether it may have changed its target although it is not OK.
    pub(crate) may_have_changed: bool,
    /// What its target calls it, if it is recorded there.
    pub(crate) name: Option<OpName>,
    /// The answer to a SETTLE.
    pub(crate) verdict: Option<Verdict>,
    /// What an atomic found, if that is known.
    pub(crate) result: Option<u64>,
}

impl Ending {
    /// Of an op of which there is no more to say.
    pub(crate) const NONE: Self =
        Self { reached: false, may_have_changed: false, name: None, verdict: None, result: None };

    const REACHED: u8 = 1;
    const MAY_HAVE_CHANGED: u8 = 2;
    const NAMED: u8 = 4;
    const RESULT: u8 = 8;
    /// Where the verdict begins.
    const VERDICT: u32 = 4;

    const fn flags(&self) -> u8 {
        let mut flags = match self.verdict {
            Some(verdict) => (verdict as u8) << Self::VERDICT,
            None => 0,
        };
        if self.reached {
            flags |= Self::REACHED;
        }
        if self.may_have_changed {
            flags |= Self::MAY_HAVE_CHANGED;
        }
        if self.name.is_some() {
            flags |= Self::NAMED;
        }
        if self.result.is_some() {
            flags |= Self::RESULT;
        }
        flags
    }

    fn from_words(flags: u8, [result, counter, place]: [u64; 3]) -> Self {
        let has = |flag| flags & flag != 0;
        let name =
            OpName { engine: EngineId(place as u16), counter, number: (place >> u16::BITS) as u16 };
        Self {
            reached: has(Self::REACHED),
            may_have_changed: has(Self::MAY_HAVE_CHANGED),
            name: has(Self::NAMED).then_some(name),
            verdict: Verdict::from_code((flags >> Self::VERDICT).into()),
            result: has(Self::RESULT).then_some(result),
        }
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
        self.ending.reached
    }

    /// Whether an op that is not OK may have changed its target all the same: all of it, and of a
    /// plain WRITE also a part. Whatever it says, nothing changes from now on (P2).
    ///
    /// Of a TIMEOUT it means: data was sent, and what became of it is not known. A recorded op
    /// that ended so can be settled: see [`Completion::name`].
    #[must_use]
    pub const fn may_have_changed(&self) -> bool {
        self.ending.may_have_changed
    }

    /// What the target calls a recorded op: SEND, NOTIFY, WRITE_WITH_IMM, an ordered WRITE or an
    /// atomic, once its data was asked for. It is what a SETTLE asks by. Of a SETTLE, the name that
    /// was asked by.
    #[must_use]
    pub const fn name(&self) -> Option<OpName> {
        self.ending.name
    }

    /// The answer to a SETTLE that is OK.
    #[must_use]
    pub const fn verdict(&self) -> Option<Verdict> {
        self.ending.verdict
    }

    /// The word that a COMPARE_SWAP or a FETCH_ADD found, before it changed it: of one that is OK,
    /// and of a SETTLE that says that it was applied.
    #[must_use]
    pub const fn result(&self) -> Option<u64> {
        self.ending.result
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
        let head = slot.0 as u64 | (*status as u64) << 16 | (ending.flags() as u64) << 24;
        let result = match ending.result {
            Some(result) => result,
            None => 0,
        };
        let (counter, place) = match ending.name {
            Some(OpName { engine, counter, number }) => {
                (counter, engine.0 as u64 | (number as u64) << u16::BITS)
            }
            None => (0, 0),
        };
        Line([head, *issue_delay_nanos, *total_delay_nanos, result, counter, place, 0, 0])
    }

    /// The completion in a line of the completion ring; `None` if the line holds no defined status.
    #[must_use]
    #[inline]
    pub fn from_line(line: &Line) -> Option<Self> {
        let [head, issue_delay, total_delay, result, counter, place, ..] = line.0;
        let status = OpStatus::from_code((head >> 16) as u8)?;
        let completion = Self::new(CommandSlotId(head as u16), status, issue_delay, total_delay);
        let ending = Ending::from_words((head >> 24) as u8, [result, counter, place]);
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
    fn what_a_target_says_of_an_op_round_trips() {
        let name = OpName { engine: EngineId(0xfffe), counter: u64::MAX - 1, number: 0xfffd };
        let applied = Ending {
            reached: true,
            name: Some(name),
            verdict: Some(Verdict::Applied),
            result: Some(u64::MAX),
            ..Ending::NONE
        };
        let unknown = Ending { may_have_changed: true, verdict: None, result: None, ..applied };
        let empty = Ending { result: Some(0), verdict: Some(Verdict::Forgotten), ..Ending::NONE };
        for ending in [applied, unknown, empty, Ending::NONE] {
            let completion = Completion::new(CommandSlotId(9), OpStatus::Ok, 1, 2).ending(ending);
            assert_eq!(Completion::from_line(&completion.to_line()), Some(completion));
        }
    }
}
