//! Frames, and a network that is the attacker's.
//!
//! The network is the set of frames ever sent. Whatever is in it may be delivered at any time and
//! any number of times, or never: that is loss, delay, reordering, duplication and replay in one.
//! It keeps no order.
//!
//! Sealing is symbolic. A frame names the op whose K_d and header it carries, and the solicitation
//! whose IV it is curried with; who receives it compares these names, and nobody can make a frame
//! by other means than sending it. The one exception is a failure notice under the reserved key: it
//! can be made by whoever has seen the request, so it counts as sent as soon as the request is.

use crate::four_hop_model::{
    script::{
        GRANULES_MAX, Key, OPS_MAX, OpId, SETTLE_KEYS_MAX, SOLICITATIONS_MAX, SolicitationId,
    },
    settle::Verdict,
};

/// A frame, by what its tag vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Hop 1. Its IV1 is as good as the op's name: an op has one request.
    Request { op: OpId },
    /// Hop 2. IV2, the pending index and the request it answers come with the solicitation's name.
    Solicitation { by: SolicitationId },
    /// Hop 3: a granule of `op`, curried with the IV of a solicitation.
    Data { op: OpId, by: SolicitationId, granule: u8 },
    /// Hop 4, curried with the IV of a solicitation.
    Acknowledgement { by: SolicitationId, status: Status },
    /// A failure notice under K_d, curried with IV1.
    Nack { op: OpId },
    /// The same: no receive is posted.
    NotReady { op: OpId },
    /// A failure notice under the reserved key, curried with IV1 and the request's tag.
    AuthenticationFailure { op: OpId },
    /// Asks what became of an op, under the K_d that follows from `key`. That it is asked once more
    /// changes nothing that the network could not do: the answers are the same.
    Settle { op: OpId, key: Key },
    /// The answer to a SETTLE of that op, curried with the request's IV.
    Settlement { op: OpId, verdict: Verdict },
}

/// The status in hop 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    AuthenticationFailure,
    NotReady,
}

impl Status {
    const ALL: [Self; 3] = [Self::Ok, Self::AuthenticationFailure, Self::NotReady];
}

const STATUSES: u8 = Status::ALL.len() as u8;
const VERDICTS: u8 = Verdict::ALL.len() as u8;

const NACKS: u8 = OPS_MAX as u8;
const NOT_READY: u8 = NACKS + OPS_MAX as u8;
const SOLICITATIONS: u8 = NOT_READY + OPS_MAX as u8;
const ACKNOWLEDGEMENTS: u8 = SOLICITATIONS + SOLICITATIONS_MAX as u8;
const DATA: u8 = ACKNOWLEDGEMENTS + STATUSES * SOLICITATIONS_MAX as u8;
const SETTLES: u8 = DATA + (OPS_MAX * SOLICITATIONS_MAX) as u8 * GRANULES_MAX;
const SETTLEMENTS: u8 = SETTLES + OPS_MAX as u8 * SETTLE_KEYS_MAX;
const END: u8 = SETTLEMENTS + OPS_MAX as u8 * VERDICTS;

// One bit of a `Network` for each frame that can be.
const _: () = assert!(END <= u64::BITS as u8);

impl Frame {
    /// The frame's bit.
    fn bit(self) -> u64 {
        let number = match self {
            Self::Request { op } | Self::AuthenticationFailure { op } => op,
            Self::Nack { op } => NACKS + op,
            Self::Solicitation { by } => SOLICITATIONS + by,
            Self::NotReady { op } => NOT_READY + op,
            Self::Acknowledgement { by, status } => ACKNOWLEDGEMENTS + STATUSES * by + status as u8,
            Self::Settle { op, key } => SETTLES + SETTLE_KEYS_MAX * op + key,
            Self::Settlement { op, verdict } => SETTLEMENTS + VERDICTS * op + verdict as u8,
            Self::Data { op, by, granule } => {
                DATA + (op * SOLICITATIONS_MAX as u8 + by) * GRANULES_MAX + granule
            }
        };
        1 << number
    }

    fn of_number(number: u8) -> Self {
        match number {
            0..NACKS => Self::Request { op: number },
            NACKS..NOT_READY => Self::Nack { op: number - NACKS },
            NOT_READY..SOLICITATIONS => Self::NotReady { op: number - NOT_READY },
            SOLICITATIONS..ACKNOWLEDGEMENTS => Self::Solicitation { by: number - SOLICITATIONS },
            ACKNOWLEDGEMENTS..DATA => {
                let number = number - ACKNOWLEDGEMENTS;
                let status = Status::ALL[usize::from(number % STATUSES)];
                Self::Acknowledgement { by: number / STATUSES, status }
            }
            DATA..SETTLES => {
                let (number, granule) =
                    ((number - DATA) / GRANULES_MAX, (number - DATA) % GRANULES_MAX);
                let solicitations = SOLICITATIONS_MAX as u8;
                Self::Data { op: number / solicitations, by: number % solicitations, granule }
            }
            SETTLES..SETTLEMENTS => {
                let number = number - SETTLES;
                Self::Settle { op: number / SETTLE_KEYS_MAX, key: number % SETTLE_KEYS_MAX }
            }
            SETTLEMENTS.. => {
                let number = number - SETTLEMENTS;
                let verdict = Verdict::ALL[usize::from(number % VERDICTS)];
                Self::Settlement { op: number / VERDICTS, verdict }
            }
        }
    }
}

/// All frames ever sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Network(u64);

impl Network {
    /// From now on the frame can be delivered.
    pub(crate) fn send(&mut self, frame: Frame) {
        self.0 |= frame.bit();
    }

    /// From now on the frame cannot be delivered.
    pub(crate) fn forget(&mut self, frame: Frame) {
        self.0 &= !frame.bit();
    }

    /// Whether there is a hop 2 or 4 of that solicitation.
    pub(crate) fn names(self, by: SolicitationId) -> bool {
        let mut answers =
            Status::ALL.map(|status| Frame::Acknowledgement { by, status }).into_iter();
        self.has(Frame::Solicitation { by }) || answers.any(|answer| self.has(answer))
    }

    /// Whether the frame was sent.
    pub(crate) fn has(self, frame: Frame) -> bool {
        self.0 & frame.bit() != 0
    }

    /// Whatever was sent.
    pub(crate) fn sent(self) -> impl Iterator<Item = Frame> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let number = rest.trailing_zeros() as u8;
            rest &= rest.checked_sub(1)?;
            Some(Frame::of_number(number))
        })
    }

    /// Whatever can be delivered: what was sent, and what an attacker can make of it.
    pub(crate) fn deliverable(self) -> impl Iterator<Item = Frame> {
        self.sent().flat_map(|frame| {
            let notice = match frame {
                Frame::Request { op } => Some(Frame::AuthenticationFailure { op }),
                _ => None,
            };
            [Some(frame), notice].into_iter().flatten()
        })
    }
}

#[test]
fn every_frame_has_a_bit_of_its_own() {
    for number in 0..END {
        assert_eq!(Frame::of_number(number).bit(), 1 << number);
    }
}
