//! Frames, and a network that is the attacker's.
//!
//! The network is the set of frames ever sent. Whatever is in it may be delivered at any time and
//! any number of times, or never: that is loss, delay, reordering, duplication and replay in one.
//! Only time takes a frame out of it, where somebody waits until its frames are dead.
//!
//! Sealing is symbolic: a frame names the era whose key it is under, and nobody can make a frame by
//! other means than sending it.

use super::script::{ATTEMPTS_MAX, MESSAGES_MAX, Messages, Number, Pair, Who};

/// A frame, by what its tag vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// One about a message.
    Work { kind: Work, era: Number, flow: Who, message: u8 },
    /// One about a switch.
    Switch { kind: Handover, number: Number },
}

/// The kind of a frame about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A work request of the stateless side.
    Wqep,
    /// The message's bytes, from a stateful side.
    Rd,
    /// They have landed; of RC, and the RECV is complete.
    Rda,
    /// The message's bytes, from the stateless side. The GD that asks for them has no effect but
    /// this.
    Gda,
    /// The completion of the stateless side's work request.
    Cqep,
    /// It is in its CQ.
    Ea,
    /// "gone", to an RD.
    GoneRd,
    /// "gone", to a CQEP.
    GoneCqep,
}

impl Work {
    const ALL: [Self; 8] = [
        Self::Wqep,
        Self::Rd,
        Self::Rda,
        Self::Gda,
        Self::Cqep,
        Self::Ea,
        Self::GoneRd,
        Self::GoneCqep,
    ];
}

/// The kind of a frame about a switch. All but COMMIT and its answer are under the old era's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handover {
    /// The leader asks for a switch.
    Switch,
    /// The taker says yes.
    Accepted,
    /// The taker says no.
    Refused,
    /// The part of TRANSFER about A's messages. See [`Attempt::parts`].
    TransferA,
    /// The part about B's.
    TransferB,
    /// The taker has entered the row.
    Commit,
    /// The giver has taken COMMIT.
    Committed,
    /// The taker has not, and will not.
    Abort,
}

impl Handover {
    const ALL: [Self; 8] = [
        Self::Switch,
        Self::Accepted,
        Self::Refused,
        Self::TransferA,
        Self::TransferB,
        Self::Commit,
        Self::Committed,
        Self::Abort,
    ];

    pub(crate) const fn transfer(flow: Who) -> Self {
        match flow {
            Who::A => Self::TransferA,
            Who::B => Self::TransferB,
        }
    }
}

/// The content of TRANSFER about a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    /// Messages whose bytes are known to be at their receiver.
    pub(crate) done: Messages,
    /// Those whose work request at the giver's is complete.
    pub(crate) complete: Messages,
}

/// The frames of one attempt to switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    /// The era in which it was tried.
    pub(crate) era: Number,
    sent: u8,
    /// The content of its TRANSFER, by flow.
    pub(crate) parts: Pair<Part>,
}

const ERAS_MAX: usize = ATTEMPTS_MAX + 1;
const FRAMES_OF_MESSAGE: u32 = Work::ALL.len() as u32;
const FRAMES_OF_ERA: u32 = 2 * MESSAGES_MAX as u32 * FRAMES_OF_MESSAGE;

// One bit of an era for each frame that can be.
const _: () = assert!(FRAMES_OF_ERA <= u32::BITS);

fn bit(kind: Work, flow: Who, message: u8) -> u32 {
    let message = flow as u32 * u32::from(MESSAGES_MAX) + u32::from(message);
    1 << (message * FRAMES_OF_MESSAGE + kind as u32)
}

/// All frames ever sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    work: [u32; ERAS_MAX],
    switches: [Attempt; ATTEMPTS_MAX],
}

impl Network {
    /// From now on the frame can be delivered.
    pub(crate) fn send(&mut self, frame: Frame) {
        match frame {
            Frame::Work { kind, era, flow, message } => {
                self.work[usize::from(era)] |= bit(kind, flow, message);
            }
            Frame::Switch { kind, number } => self.attempt_mut(number).sent |= 1 << kind as u8,
        }
    }

    /// From now on the frame cannot be delivered.
    pub(crate) fn forget(&mut self, frame: Frame) {
        match frame {
            Frame::Work { kind, era, flow, message } => {
                self.work[usize::from(era)] &= !bit(kind, flow, message);
            }
            Frame::Switch { kind, number } => {
                let attempt = self.attempt_mut(number);
                attempt.sent &= !(1 << kind as u8);
                match kind {
                    Handover::TransferA => attempt.parts[Who::A] = Part::default(),
                    Handover::TransferB => attempt.parts[Who::B] = Part::default(),
                    _ => {}
                }
            }
        }
    }

    /// Whether the frame was sent.
    pub(crate) fn has(&self, frame: Frame) -> bool {
        match frame {
            Frame::Work { kind, era, flow, message } => {
                self.work[usize::from(era)] & bit(kind, flow, message) != 0
            }
            Frame::Switch { kind, number } => self.attempt(number).sent & 1 << kind as u8 != 0,
        }
    }

    pub(crate) fn attempt(&self, number: Number) -> &Attempt {
        &self.switches[usize::from(number) - 1]
    }

    pub(crate) fn attempt_mut(&mut self, number: Number) -> &mut Attempt {
        &mut self.switches[usize::from(number) - 1]
    }

    /// How many switches led to an era.
    pub(crate) fn stage(&self, era: Number) -> u8 {
        if era == 0 { 0 } else { 1 + self.stage(self.attempt(era).era) }
    }

    /// Whatever was sent.
    pub(crate) fn sent(self) -> impl Iterator<Item = Frame> {
        let work = (0..).zip(self.work).flat_map(|(era, sent)| {
            let bits = (0..FRAMES_OF_ERA).filter(move |bit| sent & 1 << bit != 0);
            bits.map(move |bit| frame_of_bit(era, bit))
        });
        let switches = (1..).zip(self.switches).flat_map(|(number, attempt)| {
            let kinds = Handover::ALL.into_iter();
            let sent = kinds.filter(move |&kind| attempt.sent & 1 << kind as u8 != 0);
            sent.map(move |kind| Frame::Switch { kind, number })
        });
        work.chain(switches)
    }
}

fn frame_of_bit(era: Number, bit: u32) -> Frame {
    let kind = Work::ALL[(bit % FRAMES_OF_MESSAGE) as usize];
    let message = (bit / FRAMES_OF_MESSAGE) as u8;
    let flow = Who::ALL[usize::from(message / MESSAGES_MAX)];
    Frame::Work { kind, era, flow, message: message % MESSAGES_MAX }
}

#[test]
fn every_frame_has_a_bit_of_its_own() {
    for number in 0..FRAMES_OF_ERA {
        let Frame::Work { kind, flow, message, .. } = frame_of_bit(0, number) else {
            panic!("bit {number} is a message's");
        };
        assert_eq!(bit(kind, flow, message), 1 << number);
    }
}
