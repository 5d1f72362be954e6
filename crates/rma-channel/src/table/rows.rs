//! Table 2 as data: what each channel offers and costs, in the paper and here, and why where the
//! two differ.
//!
//! The numbers are the paper's portable metrics (§3): they depend on protocols and on no hardware.
//! What is said of ours is for an idle network, and one message that fits one op; tests measure it
//! in simulation, hop by hop.

use core::fmt;

use super::kind::Kind;

/// So many, or at least so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// How many there are at least.
    pub least: u8,
    /// Whether there may be more: where a bell, or room, is asked for again until it is there.
    pub or_more: bool,
}

/// Whether a channel has a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It has.
    Yes,
    /// It has not.
    No,
    /// That depends on the second channel that it uses (*a*).
    Depends,
    /// It has, with bytes of its own beside each message (*b*): from a place that has room for
    /// them, or as a request more.
    Appends,
    /// It has, but what is fetched in advance may have to be copied (*d*).
    Prefetches,
    /// The question makes no sense: there are no bytes.
    Nothing,
}

/// The growth of one end's memory with the number of its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Not at all: O(1).
    Constant,
    /// In proportion: O(N).
    Linear,
}

/// A row of Table 2, without the related work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Half round trips from when a message is sent until its receiver can see it.
    pub half_round_trips: Count,
    /// Requests that the sender issues for a message.
    pub send_requests: Count,
    /// Requests that the receiver issues for a message.
    pub receive_requests: Count,
    /// Whether a receiver can sleep until a message comes.
    pub blocking: Mark,
    /// Whether a message can be sent from where it lies.
    pub zero_copy_send: Mark,
    /// Whether a message can be received where its receiver wants it.
    pub zero_copy_receive: Mark,
    /// Whether a short message takes less memory than a long one.
    pub variable_size: Mark,
    /// The growth of a receiver's memory with the number of its senders (N:1).
    pub memory_of_receiver: Growth,
}

/// The properties of a channel of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ours {
    /// The row.
    pub offer: Offer,
    /// Half round trips until the sender knows that a message is in the receiver's memory; `None`
    /// where it is told by a tail alone.
    pub done: Option<u8>,
    /// The reason why it is not the paper's row. Empty if it is.
    pub reason: &'static str,
}

impl Ours {
    /// Returns the growth of the sender's memory with the number of its receivers (1:N). The paper
    /// has O(1) in every row. Here a sender that pushes has an image for each receiver, which its
    /// copies of messages are written from: the next message may be another one to each. Messages
    /// sent from where they lie ([`SendRegion`](crate::SendRegion)) do not go through it.
    #[must_use]
    pub const fn memory_of_sender(&self) -> Growth {
        let is_word = matches!(self.offer.zero_copy_send, Mark::Nothing);
        if self.done.is_none() || is_word { Growth::Constant } else { Growth::Linear }
    }
}

impl Count {
    /// Exactly so many.
    #[must_use]
    pub const fn exactly(least: u8) -> Self {
        Self { least, or_more: false }
    }

    /// So many at least.
    #[must_use]
    pub const fn at_least(least: u8) -> Self {
        Self { least, or_more: true }
    }

    /// Whether so many are within what it says.
    #[must_use]
    pub const fn admits(self, count: u64) -> bool {
        count == self.least as u64 || self.or_more && count > self.least as u64
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.or_more { "≥" } else { "" };
        f.pad(&format!("{sign}{}", self.least))
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Yes => "✓",
            Self::No => "✗",
            Self::Depends => "(✓/✗)a",
            Self::Appends => "✓b",
            Self::Prefetches => "✓d",
            Self::Nothing => "n/a",
        })
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Constant => "O(1)",
            Self::Linear => "O(N)",
        })
    }
}

/// A row as short as the table has it: half round trips, requests, marks, memory.
const fn offer(
    half_round_trips: Count,
    [send_requests, receive_requests]: [Count; 2],
    [blocking, zero_copy_send, zero_copy_receive, variable_size]: [Mark; 4],
    memory_of_receiver: Growth,
) -> Offer {
    Offer {
        half_round_trips,
        send_requests,
        receive_requests,
        blocking,
        zero_copy_send,
        zero_copy_receive,
        variable_size,
        memory_of_receiver,
    }
}

/// The reason why pushed messages come two half round trips later.
const SOLICITED: &str = "what is pushed is solicited first: its target asks for it when it has room, which takes two hops more";

/// The reason why two ops in order take twice as long.
const IN_TURN: &str = "ops have no order, so the bell is issued when the bytes are there; and both are solicited first";

impl Kind {
    /// Returns the offer and cost of the paper's channel: its row.
    #[must_use]
    pub const fn paper(self) -> Offer {
        use Growth::{Constant as O1, Linear as ON};
        use Mark::{Appends as B, Depends as A, No as N, Nothing as X, Prefetches as D, Yes as Y};
        const ZERO: Count = Count::exactly(0);
        const ONE: Count = Count::exactly(1);
        const TWO: Count = Count::exactly(2);
        const THREE: Count = Count::exactly(3);
        const PUSH: [Count; 2] = [ONE, ZERO];
        const NOTIFY: [Count; 2] = [ONE, ONE];
        const MORE: Count = Count::at_least(2);
        const FOUR: Count = Count::at_least(4);
        match self {
            Self::SendRecvNormal => offer(ONE, PUSH, [Y, Y, N, N], ON),
            Self::SendRecvShared => offer(ONE, PUSH, [Y, Y, N, N], O1),
            Self::SendRecvBufferless => offer(ONE, PUSH, [Y, X, X, X], O1),
            Self::WriteSlotDetached => offer(ONE, [TWO, ZERO], [A, Y, Y, N], ON),
            Self::WriteSlotInlined => offer(ONE, PUSH, [N, B, B, N], ON),
            Self::WriteSlotImmediate => offer(ONE, PUSH, [Y, Y, Y, N], ON),
            Self::WriteSlotReserve => offer(THREE, [MORE, ONE], [A, Y, Y, N], O1),
            Self::RingDetached => offer(ONE, [TWO, ZERO], [N, B, N, Y], ON),
            Self::RingImmediate => offer(ONE, PUSH, [Y, Y, N, Y], ON),
            Self::RingWithZeroing | Self::RingWithoutZeroing => offer(ONE, PUSH, [N, B, N, Y], ON),
            Self::SharedRingImmediate => offer(THREE, [MORE, ZERO], [Y, Y, N, Y], O1),
            Self::SharedRingWithZeroing => offer(THREE, [MORE, ZERO], [N, B, N, Y], O1),
            Self::ReadSlotDetached => offer(FOUR, [ZERO, MORE], [N, Y, Y, Y], O1),
            Self::ReadSlotInlined => offer(MORE, [ZERO, Count::at_least(1)], [N, Y, Y, N], O1),
            Self::ReadSlotNotify => offer(THREE, NOTIFY, [A, Y, Y, Y], O1),
            Self::ReadSlotIndirect => offer(TWO, NOTIFY, [A, Y, Y, N], O1),
            Self::ReadRingDetached | Self::ReadRingInlined => {
                offer(FOUR, [ZERO, MORE], [N, N, D, Y], O1)
            }
            Self::ReadRingNotify => offer(THREE, NOTIFY, [A, N, Y, Y], O1),
        }
    }

    /// Returns the offer and cost of this crate's channel.
    #[must_use]
    pub const fn ours(self) -> Ours {
        let paper = self.paper();
        match self {
            Self::SendRecvNormal
            | Self::SendRecvShared
            | Self::SendRecvBufferless
            | Self::WriteSlotInlined
            | Self::WriteSlotImmediate
            | Self::RingImmediate
            | Self::RingWithZeroing
            | Self::RingWithoutZeroing => later(paper, 3, Some(4), SOLICITED),
            Self::WriteSlotDetached | Self::RingDetached => later(paper, 7, Some(8), IN_TURN),
            Self::WriteSlotReserve => {
                let reason = "the slot is taken by an atomic, to which the receiver lends nothing but its memory; \
                              and what is written is solicited first";
                let receive_requests = Count::exactly(0);
                later(Offer { receive_requests, ..paper }, 7, Some(8), reason)
            }
            Self::SharedRingImmediate | Self::SharedRingWithZeroing => {
                later(paper, 7, Some(8), SOLICITED)
            }
            Self::ReadSlotDetached
            | Self::ReadSlotInlined
            | Self::ReadRingDetached
            | Self::ReadRingInlined => Ours { offer: paper, done: None, reason: "" },
            Self::ReadSlotNotify | Self::ReadRingNotify => later(paper, 5, None, SOLICITED),
            Self::ReadSlotIndirect => later(
                paper,
                6,
                Some(7),
                "the receiver's address and the sender's bytes are both solicited first",
            ),
        }
    }
}

const fn later(paper: Offer, hops: u8, done: Option<u8>, reason: &'static str) -> Ours {
    Ours { offer: Offer { half_round_trips: Count::exactly(hops), ..paper }, done, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_row_is_not_the_papers_there_is_a_reason_and_nowhere_else() {
        for kind in Kind::ALL {
            let Ours { offer, reason, .. } = kind.ours();
            assert_eq!(offer == kind.paper(), reason.is_empty(), "{kind}");
        }
    }

    #[test]
    fn a_count_is_exact_or_a_least() {
        let counts = [Count::exactly(2), Count::at_least(2)];
        assert_eq!(
            counts.map(|it| [1, 2, 3].map(|count| it.admits(count))),
            [[false, true, false], [false, true, true],]
        );
        assert_eq!(counts.map(|it| it.to_string()), ["2", "≥2"]);
    }
}
