//! The lines that go through a portal's rings.

use rma_shm::Line;

use crate::{
    handover::{HANDOVER_LEN, Handover},
    names::Era,
    verbs::{WcStatus, WqeOp},
};

/// A request of an application to its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    /// A work request, new or once more.
    Wqe(Posted),
    /// The record of this QP is written: the connection begins. Answered by [`Report::Opened`].
    Open {
        /// The QP's number in the portal.
        qp: u32,
        /// Whether this host is the stateful side of it.
        is_stateful: bool,
    },
    /// The record of this QP is written: a connection begins both of whose sides are stateful (RC).
    /// Answered by [`Report::Opened`], and by [`Report::Ready`] when the peer was heard.
    OpenRc {
        /// The QP's number in the portal.
        qp: u32,
        /// Whether this host connects. Its protection domain gives K_c, which is reported; the
        /// other side's record has it.
        connects: bool,
    },
    /// The stateless side says its initial state to the stateful one (§III-C1). The latter's EA
    /// counts up [`QpWord::heard`](super::QpWord). Of the stateful side: asks for it, as it may
    /// have come before there was a connection to take it.
    Introduce {
        /// The QP's number in the portal.
        qp: u32,
    },
    /// The roles of a connection are to change. The stateful side tries to, and answers by
    /// [`Report::NotSwitched`], or [`Report::Committed`] when its peer has the connection. The
    /// stateless side asks its peer to try, once.
    Switch {
        /// The QP's number in the portal.
        qp: u32,
        /// Nobody has asked for it, but there are too many connections.
        is_automatic: bool,
    },
    /// The stateless side tells its peer what [`Report::SwitchAsked`] comes to, or that what the
    /// peer has given is not taken.
    Answer {
        /// The QP's number in the portal.
        qp: u32,
        /// The number of the change of roles.
        number: Era,
        /// Whether the roles may change. If not, they stay, whatever was said before.
        agrees: bool,
    },
    /// The stateless side becomes the stateful one, by what its peer has handed over. Answered by
    /// [`Report::TakenOver`].
    TakeOver {
        /// The QP's number in the portal.
        qp: u32,
        /// The state that was handed over.
        handover: Handover,
        /// How many work requests the application will post anew: 2^24 - 1 at most. Without room
        /// for them the connection is not taken over.
        outstanding: u32,
    },
    /// The connection ends. Answered by [`Report::Closed`], behind every other report of it.
    Close {
        /// The QP's number in the portal.
        qp: u32,
    },
}

/// A work request as it is posted: what verbs call `ibv_send_wr` and `ibv_recv_wr`, with one
/// scatter/gather entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The slot that it takes.
    pub slot: u32,
    /// The use of the slot.
    pub generation: u32,
    /// The QP's number in the portal.
    pub qp: u32,
    /// Its place in its queue: the send queue and the receive queue count for themselves.
    pub sequence: u32,
    /// How many there are before it in its queue, back to the oldest that has no completion yet.
    pub open_before: u16,
    /// The op that was posted.
    pub op: WqeOp,
    /// Whether it has been posted before, and only the frame must be sent again. Such a post has no
    /// effect once the slot is closed.
    pub again: bool,
    /// Whether it has been posted in an era that is over, and is posted anew in this one.
    pub is_moved: bool,
    /// The immediate that the peer's completion gets, if any.
    pub immediate: Option<u32>,
    /// Bytes of the message that stand in the second line: all of them, or none. At most
    /// [`INLINE_MAX`](crate::limits::INLINE_MAX).
    pub inline_len: u8,
    /// The local memory region; of no meaning if the data is inline.
    pub mr: u32,
    /// The offset in it at which the data begins, or goes.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
    /// The remote memory region, of READ and WRITE.
    pub remote_mr: u32,
    /// The offset in the remote one.
    pub remote_offset: u64,
}

impl Posted {
    /// The report that it was not done.
    pub(crate) const fn refused(&self, status: WcStatus) -> Report {
        let Self { slot, generation, qp, sequence, op, .. } = *self;
        Report::Completed {
            slot,
            generation,
            qp,
            sequence,
            op,
            status,
            byte_len: 0,
            immediate: None,
            is_of_write: false,
        }
    }
}

/// A report of an engine to its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A work request is over. Each slot that was posted gets this once.
    Completed {
        /// Its slot, which is free again.
        slot: u32,
        /// The use of the slot.
        generation: u32,
        /// Its QP.
        qp: u32,
        /// Its place in its queue.
        sequence: u32,
        /// The op.
        op: WqeOp,
        /// The status that it ended with.
        status: WcStatus,
        /// How many bytes were moved.
        byte_len: u32,
        /// The immediate that came with it.
        immediate: Option<u32>,
        /// Whether it is a RECV that a WRITE with an immediate has taken: nothing was moved into
        /// its memory then.
        is_of_write: bool,
    },
    /// A connection has begun.
    Opened {
        /// The QP.
        qp: u32,
        /// The status; anything but success: there is no connection.
        status: WcStatus,
        /// K_c, for the stateful side to be told, or in RC for the side that does not connect. Zero
        /// at that side.
        key: [u8; 16],
        /// This host's clock, in microseconds, for the stateful side to be told: the `z_clock` of
        /// its [record](super::QpRecord).
        clock: u64,
        /// W of the engine, in microseconds: for how long frames to this host are valid.
        valid_micros: u32,
    },
    /// The stateful side's engine has got the initial state, or in RC a frame of its peer: work may
    /// begin.
    Ready {
        /// The QP.
        qp: u32,
    },
    /// The peer, which is the stateful side, asks whether the roles may change. It may ask again.
    /// To be answered by [`Post::Answer`].
    SwitchAsked {
        /// The QP.
        qp: u32,
        /// The number of the change of roles.
        number: Era,
        /// Its application has not asked for it.
        is_automatic: bool,
    },
    /// The peer, which is the stateful side, has handed the connection over. It may do so again. To
    /// be answered by [`Post::TakeOver`], or [`Post::Answer`].
    HandedOver {
        /// The QP.
        qp: u32,
        /// The state that was handed over.
        handover: Handover,
    },
    /// This host is the stateful side from now on, or still the stateless one.
    TakenOver {
        /// The QP.
        qp: u32,
        /// The status; anything but success: it is still the stateless side.
        status: WcStatus,
    },
    /// The peer is the stateful side from now on, and this host the stateless one.
    Committed {
        /// The QP.
        qp: u32,
        /// The era that has begun.
        era: Era,
    },
    /// The request of [`Post::Switch`] has come to nothing: the peer has refused, or is silent.
    NotSwitched {
        /// The QP.
        qp: u32,
    },
    /// A connection has failed: the peer is silent, or has closed it, or a work request has failed.
    /// Those that are posted are reported one by one.
    Failed {
        /// The QP.
        qp: u32,
        /// The status of its failure.
        status: WcStatus,
    },
    /// A connection is no more. Nothing of it follows.
    Closed {
        /// The QP.
        qp: u32,
    },
}

const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// The first word of a line: what it is, three octets of it, and the QP.
const fn first(kind: u8, octets: [u8; 3], qp: u32) -> u64 {
    let [a, b, c] = octets;
    pair(u32::from_be_bytes([kind, a, b, c]), qp)
}

const AGAIN: u8 = 1;
const IMMEDIATE: u8 = 2;
const OF_WRITE: u8 = 4;
const MOVED: u8 = 4;

/// A line that has what was handed over behind its first word.
fn handed_over(head: u64, handover: &Handover) -> Line {
    let octets = handover.to_octets();
    let mut words = [head, 0, 0, 0, 0, 0, 0, 0];
    for (word, octets) in words[1..].iter_mut().zip(octets.as_chunks().0) {
        *word = u64::from_be_bytes(*octets);
    }
    Line(words)
}

/// Decodes the words behind the first one of such a line.
fn handover_of(words: &[u64; 7]) -> Handover {
    let mut octets = [0; HANDOVER_LEN];
    for (octets, word) in octets.as_chunks_mut().0.iter_mut().zip(words) {
        *octets = word.to_be_bytes();
    }
    Handover::from_octets(&octets)
}

impl Post {
    /// As a line.
    #[must_use]
    pub fn to_line(&self) -> Line {
        match *self {
            Self::Wqe(wqe) => {
                let mut flags = if wqe.again { AGAIN } else { 0 };
                if wqe.is_moved {
                    flags |= MOVED;
                }
                let mut immediate = 0;
                if let Some(it) = wqe.immediate {
                    flags |= IMMEDIATE;
                    immediate = it;
                }
                Line([
                    first(1, [wqe.op.code(), flags, wqe.inline_len], wqe.qp),
                    pair(wqe.slot, wqe.generation),
                    pair(wqe.sequence, wqe.length),
                    pair(wqe.mr, wqe.remote_mr),
                    wqe.offset,
                    wqe.remote_offset,
                    pair(immediate, wqe.open_before as u32),
                    0,
                ])
            }
            Self::Open { qp, is_stateful } => alone(first(2, [is_stateful as u8, 0, 0], qp)),
            Self::Introduce { qp } => alone(first(3, [0; 3], qp)),
            Self::Close { qp } => alone(first(4, [0; 3], qp)),
            Self::OpenRc { qp, connects } => alone(first(5, [connects as u8, 0, 0], qp)),
            Self::Switch { qp, is_automatic } => alone(first(6, [is_automatic as u8, 0, 0], qp)),
            Self::Answer { qp, number: Era(number), agrees } => {
                let [high, low] = number.to_be_bytes();
                alone(first(7, [agrees as u8, high, low], qp))
            }
            Self::TakeOver { qp, handover, outstanding } => {
                let [_, octets @ ..] = outstanding.to_be_bytes();
                handed_over(first(8, octets, qp), &handover)
            }
        }
    }

    /// Of any line at all. `None` if it says nothing that there is.
    #[must_use]
    pub fn from_line(line: &Line) -> Option<Self> {
        let [head, words @ ..] = line.0;
        let (head, qp) = halves(head);
        match head.to_be_bytes() {
            [1, op, flags, inline_len] => {
                let [(slot, generation), (sequence, length), (mr, remote_mr)] =
                    [halves(words[0]), halves(words[1]), halves(words[2])];
                let (immediate, open_before) = halves(words[5]);
                Some(Self::Wqe(Posted {
                    slot,
                    generation,
                    qp,
                    sequence,
                    open_before: open_before as u16,
                    op: WqeOp::from_code(op)?,
                    again: flags & AGAIN != 0,
                    is_moved: flags & MOVED != 0,
                    immediate: (flags & IMMEDIATE != 0).then_some(immediate),
                    inline_len,
                    mr,
                    offset: words[3],
                    length,
                    remote_mr,
                    remote_offset: words[4],
                }))
            }
            [2, is_stateful, ..] => Some(Self::Open { qp, is_stateful: is_stateful != 0 }),
            [3, ..] => Some(Self::Introduce { qp }),
            [4, ..] => Some(Self::Close { qp }),
            [5, connects, ..] => Some(Self::OpenRc { qp, connects: connects != 0 }),
            [6, is_automatic, ..] => Some(Self::Switch { qp, is_automatic: is_automatic != 0 }),
            [7, agrees, high, low] => {
                let number = Era(u16::from_be_bytes([high, low]));
                Some(Self::Answer { qp, number, agrees: agrees != 0 })
            }
            [8, a, b, c] => {
                let outstanding = u32::from_be_bytes([0, a, b, c]);
                Some(Self::TakeOver { qp, handover: handover_of(&words), outstanding })
            }
            _ => None,
        }
    }

    /// The QP whose side it depends on who takes it: that of work requests, and of changes of
    /// roles. `None` of any other post.
    #[must_use]
    pub const fn qp_of_either_side(&self) -> Option<u32> {
        match *self {
            Self::Wqe(Posted { qp, .. }) | Self::Switch { qp, .. } => Some(qp),
            _ => None,
        }
    }

    /// Whether a second line belongs to this one: data that is inline.
    #[must_use]
    pub const fn has_second(line: &Line) -> bool {
        let [kind, .., inline_len] = ((line.0[0] >> 32) as u32).to_be_bytes();
        kind == 1 && inline_len > 0
    }
}

/// A line that has a first word and no more.
const fn alone(head: u64) -> Line {
    Line([head, 0, 0, 0, 0, 0, 0, 0])
}

impl Report {
    /// As a line.
    #[must_use]
    pub fn to_line(&self) -> Line {
        match *self {
            Self::Completed {
                slot,
                generation,
                qp,
                sequence,
                op,
                status,
                byte_len,
                immediate,
                is_of_write,
            } => {
                let mut flags = if is_of_write { OF_WRITE } else { 0 };
                let immediate = match immediate {
                    Some(it) => {
                        flags |= IMMEDIATE;
                        it
                    }
                    None => 0,
                };
                Line([
                    first(1, [op.code(), flags, status.code()], qp),
                    pair(slot, generation),
                    pair(sequence, byte_len),
                    pair(immediate, 0),
                    0,
                    0,
                    0,
                    0,
                ])
            }
            Self::Opened { qp, status, key, clock, valid_micros } => {
                let key = u128::from_be_bytes(key);
                let head = first(2, [0, 0, status.code()], qp);
                let valid = valid_micros.into();
                Line([head, (key >> 64) as u64, key as u64, clock, valid, 0, 0, 0])
            }
            Self::Ready { qp } => alone(first(3, [0; 3], qp)),
            Self::Failed { qp, status } => alone(first(4, [0, 0, status.code()], qp)),
            Self::Closed { qp } => alone(first(5, [0; 3], qp)),
            Self::SwitchAsked { qp, number: Era(number), is_automatic } => {
                let [high, low] = number.to_be_bytes();
                alone(first(6, [is_automatic as u8, high, low], qp))
            }
            Self::HandedOver { qp, handover } => handed_over(first(7, [0; 3], qp), &handover),
            Self::TakenOver { qp, status } => alone(first(8, [0, 0, status.code()], qp)),
            Self::Committed { qp, era: Era(era) } => {
                let [high, low] = era.to_be_bytes();
                alone(first(9, [0, high, low], qp))
            }
            Self::NotSwitched { qp } => alone(first(10, [0; 3], qp)),
        }
    }

    /// Of a line of an engine. `None` if it says nothing that there is: the engine is of another
    /// version.
    #[must_use]
    pub fn from_line(line: &Line) -> Option<Self> {
        let [head, words @ ..] = line.0;
        let (head, qp) = halves(head);
        let [kind, op, flags, status] = head.to_be_bytes();
        Some(match kind {
            1 => {
                let [(slot, generation), (sequence, byte_len), (immediate, _)] =
                    [halves(words[0]), halves(words[1]), halves(words[2])];
                Self::Completed {
                    slot,
                    generation,
                    qp,
                    sequence,
                    op: WqeOp::from_code(op)?,
                    status: WcStatus::from_code(status)?,
                    byte_len,
                    immediate: (flags & IMMEDIATE != 0).then_some(immediate),
                    is_of_write: flags & OF_WRITE != 0,
                }
            }
            2 => {
                let key = u128::from(words[0]) << 64 | u128::from(words[1]);
                let status = WcStatus::from_code(status)?;
                let (clock, valid_micros) = (words[2], words[3] as u32);
                Self::Opened { qp, status, key: key.to_be_bytes(), clock, valid_micros }
            }
            3 => Self::Ready { qp },
            4 => Self::Failed { qp, status: WcStatus::from_code(status)? },
            5 => Self::Closed { qp },
            6 => {
                let number = Era(u16::from_be_bytes([flags, status]));
                Self::SwitchAsked { qp, number, is_automatic: op != 0 }
            }
            7 => Self::HandedOver { qp, handover: handover_of(&words) },
            8 => Self::TakenOver { qp, status: WcStatus::from_code(status)? },
            9 => Self::Committed { qp, era: Era(u16::from_be_bytes([flags, status])) },
            10 => Self::NotSwitched { qp },
            _ => return None,
        })
    }
}
