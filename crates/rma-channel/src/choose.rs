//! Choosing a channel: from what an application needs to the kinds that offer it, best first.
//!
//! There is no best channel (§1, §5): each need rules some kinds out. All that is said here follows
//! from this crate's rows of Table 2 ([`Kind::ours`]), which tests measure; a need that no row
//! speaks of is not here. `docs/CHANNELS.md` leads through the same choices in words.
//!
//! What a row tells beside its columns:
//!
//! - A message of which its sender learns by a tail alone ([`Ours::done`]) stays in the sender's
//!   memory, from where any number of receivers read it.
//! - Where messages go to a receiver whose memory does not grow with senders, these *share* what
//!   they write into.
//! - Where they share, and may need more ops than two, they *reserve* their places.

use core::{cmp::Reverse, fmt};

use crate::table::{Count, Growth, Kind, Mark, Offer, Ours};

/// A need that an application may have of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Need {
    /// Many senders for one receiver. Rules out nothing, as each sender may have a channel of its
    /// own; but kinds come first whose receiver's memory does not grow with them.
    ManySenders,
    /// Many receivers, each of which gets all messages, of one channel.
    ManyReceivers,
    /// The receiver sleeps until a message comes.
    Blocking,
    /// A message is sent from where it lies.
    ZeroCopySend,
    /// A message is received where its receiver wants it.
    ZeroCopyReceive,
    /// A short message takes less memory than a long one.
    VariableSize,
    /// Messages are longer than a word of 64 bits.
    MoreThanAWord,
    /// The receiver's memory does not grow with the number of senders.
    FixedMemory,
    /// The sender issues nothing.
    PassiveSender,
    /// The receiver issues nothing, and no events come to it.
    PassiveReceiver,
    /// Senders do not trust each other: none may use up what others need, or write over it.
    Distrust,
    /// An end that dies holds up nobody but its own peer, for no time at all.
    NoWaitForTheDead,
}

/// The cost to minimize, among the kinds that meet all needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Least {
    /// Half round trips until a message is there.
    #[default]
    Latency,
    /// Ops for a message, of both ends together.
    Ops,
}

/// A kind that meets all needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The chosen kind.
    pub kind: Kind,
    /// The way in which it meets each need, in the order in which they were given.
    pub reasons: Vec<(Need, Mark)>,
}

/// The kinds that meet an application's needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// The kinds that meet all needs, best first. Empty if these needs cannot be had together.
    pub kinds: Vec<Choice>,
    /// For each need that rules kinds out, which.
    pub ruled_out: Vec<(Need, Vec<Kind>)>,
}

/// The kinds that meet all of `needs`, and what rules the others out.
///
/// Among kinds that cost the same, those are first whose receiver has less memory, if there are
/// [many senders](Need::ManySenders), and then those that copy less. A count that may be more
/// (*at least*) is taken for one more: a look that comes too soon costs a round trip.
#[must_use]
pub fn choose(needs: &[Need], least: Least) -> Choices {
    let choice = |kind: Kind| {
        let reasons: Vec<_> =
            needs.iter().map(|&need| (need, need.is_met_by(&kind.ours(), needs))).collect();
        let meets_all = reasons.iter().all(|&(_, mark)| mark != Mark::No);
        meets_all.then_some(Choice { kind, reasons })
    };
    let mut kinds: Vec<_> = Kind::ALL.into_iter().filter_map(choice).collect();
    // It keeps the table's order where all else is equal.
    kinds.sort_by_key(|it| it.kind.ours().offer.price(needs, least));
    let ruled_out = needs.iter().map(|&need| {
        let fails = |kind: &Kind| need.is_met_by(&kind.ours(), needs) == Mark::No;
        (need, Kind::ALL.into_iter().filter(fails).collect::<Vec<_>>())
    });
    let ruled_out = ruled_out.filter(|(_, kinds)| !kinds.is_empty()).collect();
    Choices { kinds, ruled_out }
}

impl Need {
    /// All that there are.
    pub const ALL: [Self; 12] = [
        Self::ManySenders,
        Self::ManyReceivers,
        Self::Blocking,
        Self::ZeroCopySend,
        Self::ZeroCopyReceive,
        Self::VariableSize,
        Self::MoreThanAWord,
        Self::FixedMemory,
        Self::PassiveSender,
        Self::PassiveReceiver,
        Self::Distrust,
        Self::NoWaitForTheDead,
    ];

    /// Names the need, in a few words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ManySenders => "many senders",
            Self::ManyReceivers => "many receivers",
            Self::Blocking => "a receiver that sleeps",
            Self::ZeroCopySend => "no copy on send",
            Self::ZeroCopyReceive => "no copy on receive",
            Self::VariableSize => "messages of many lengths",
            Self::MoreThanAWord => "messages longer than a word",
            Self::FixedMemory => "memory that does not grow with senders",
            Self::PassiveSender => "a passive sender",
            Self::PassiveReceiver => "a passive receiver",
            Self::Distrust => "senders who do not trust each other",
            Self::NoWaitForTheDead => "nobody waits for the dead",
        }
    }

    /// Whether a channel like `row` meets it, beside others of `needs`.
    fn is_met_by(self, row: &Ours, needs: &[Self]) -> Mark {
        let offer = &row.offer;
        let mark = |is_met: bool| if is_met { Mark::Yes } else { Mark::No };
        match self {
            Self::ManySenders => Mark::Yes,
            Self::ManyReceivers => mark(row.is_read()),
            Self::Blocking => offer.blocking,
            Self::ZeroCopySend => offer.zero_copy_send,
            Self::ZeroCopyReceive => offer.zero_copy_receive,
            Self::VariableSize => mark(offer.variable_size == Mark::Yes),
            Self::MoreThanAWord => mark(offer.variable_size != Mark::Nothing),
            Self::FixedMemory => mark(offer.memory_of_receiver == Growth::Constant),
            Self::PassiveSender => mark(offer.send_requests.least == 0),
            Self::PassiveReceiver if offer.receive_requests.least > 0 => Mark::No,
            Self::PassiveReceiver => match offer.blocking {
                Mark::Yes => Mark::No,
                Mark::No => Mark::Yes,
                depends => depends,
            },
            Self::Distrust => mark(!row.is_shared()),
            // A peer that reserves, or has read a part of what others read as well, is waited for.
            Self::NoWaitForTheDead => {
                let is_read_by_many = row.is_read() && needs.contains(&Self::ManyReceivers);
                mark(!row.is_reserved() && !is_read_by_many)
            }
        }
    }
}

impl Ours {
    /// Whether messages stay with their sender, and receivers read them.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        self.done.is_none()
    }

    /// Whether senders share what they write into.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        !self.is_read() && matches!(self.offer.memory_of_receiver, Growth::Constant)
    }

    /// Whether senders reserve a place in what they share.
    #[must_use]
    pub const fn is_reserved(&self) -> bool {
        self.is_shared() && self.offer.send_requests.or_more
    }
}

impl Offer {
    /// Returns the price by which kinds are ordered, the best first.
    fn price(&self, needs: &[Need], least: Least) -> impl Ord + use<> {
        let likely = |count: Count| u32::from(count.least) + u32::from(count.or_more);
        let hops = likely(self.half_round_trips);
        let ops = likely(self.send_requests) + likely(self.receive_requests);
        let costs = match least {
            Least::Latency => [hops, ops],
            Least::Ops => [ops, hops],
        };
        let grows = needs.contains(&Need::ManySenders) && self.memory_of_receiver == Growth::Linear;
        let copies = |mark: Mark| match mark {
            Mark::Nothing => 3,
            Mark::Yes => 2,
            Mark::Depends | Mark::Appends | Mark::Prefetches => 1,
            Mark::No => 0_u32,
        };
        let saved = copies(self.zero_copy_send) + copies(self.zero_copy_receive);
        (costs, grows, Reverse(saved))
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Shows the costs, and how it meets each need: "write slot, immediate: 3 half round trips, ops
/// 1/0, memory O(N); a receiver that sleeps ✓".
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Offer { half_round_trips, send_requests, receive_requests, memory_of_receiver, .. } =
            self.kind.ours().offer;
        write!(f, "{}: {half_round_trips} half round trips, ", self.kind)?;
        write!(f, "ops {send_requests}/{receive_requests}, memory {memory_of_receiver}")?;
        for (index, (need, mark)) in self.reasons.iter().enumerate() {
            let sign = if index == 0 { ";" } else { "," };
            write!(f, "{sign} {need} {mark}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(needs: &[Need], least: Least) -> Vec<Kind> {
        choose(needs, least).kinds.iter().map(|it| it.kind).collect()
    }

    #[test]
    fn each_need_alone_can_be_had_and_all_kinds_are_chosen_or_ruled_out_by_it() {
        assert_eq!(kinds(&[], Least::Latency).len(), Kind::ALL.len());
        for need in Need::ALL {
            let choices = choose(&[need], Least::Latency);
            assert!(!choices.kinds.is_empty(), "no kind has {need}");
            let out: usize = choices.ruled_out.iter().map(|(_, kinds)| kinds.len()).sum();
            assert_eq!(choices.kinds.len() + out, Kind::ALL.len(), "{need}");
        }
    }

    #[test]
    fn a_chosen_kind_meets_every_need_and_any_other_fails_one() {
        for two in Need::ALL.into_iter().flat_map(|a| Need::ALL.map(|b| [a, b])) {
            let choices = choose(&two, Least::Ops);
            for kind in Kind::ALL {
                let is_out = choices.ruled_out.iter().any(|(_, kinds)| kinds.contains(&kind));
                let is_chosen = choices.kinds.iter().any(|it| it.kind == kind);
                assert_ne!(is_out, is_chosen, "{kind} for {two:?}");
            }
        }
    }

    #[test]
    fn an_impossible_choice_names_the_needs_that_rule_out_every_kind() {
        let needs = [Need::ManyReceivers, Need::NoWaitForTheDead];
        let Choices { kinds, ruled_out } = choose(&needs, Least::Latency);
        assert!(kinds.is_empty(), "{kinds:?}");
        assert_eq!(ruled_out.iter().map(|(need, _)| *need).collect::<Vec<_>>(), needs);
        assert!(ruled_out[1].1.contains(&Kind::ReadRingNotify));
        let alone = choose(&needs[1..], Least::Latency);
        assert!(!alone.ruled_out[0].1.contains(&Kind::ReadRingNotify), "one receiver, one channel");
    }

    #[test]
    fn rows_tell_who_shares_and_who_is_read() {
        let which = |is: fn(&Ours) -> bool| -> Vec<u8> {
            let kinds = Kind::ALL.into_iter().filter(|kind| is(&kind.ours()));
            kinds.map(|kind| kind as u8).collect()
        };
        assert_eq!(which(Ours::is_shared), [2, 3, 7, 12, 13, 17]);
        assert_eq!(which(Ours::is_reserved), [7, 12, 13]);
        assert_eq!(which(Ours::is_read), [14, 15, 16, 18, 19, 20]);
    }

    #[test]
    fn the_cheaper_comes_first_and_then_what_needs_less_memory_and_copies_less() {
        use Need::{Blocking, ManySenders, MoreThanAWord, PassiveSender, VariableSize};
        let first = |needs: &[Need], least| kinds(needs, least)[0];
        assert_eq!(first(&[Blocking], Least::Latency), Kind::SendRecvBufferless);
        assert_eq!(first(&[Blocking, MoreThanAWord], Least::Latency), Kind::WriteSlotImmediate);
        let fan_in = [ManySenders, Blocking, MoreThanAWord];
        assert_eq!(first(&fan_in, Least::Latency), Kind::SendRecvShared);
        // A look costs its receiver an op, so it is not first where ops must be few.
        assert_eq!(first(&[PassiveSender], Least::Ops), Kind::ReadSlotInlined);
        let passive = kinds(&[PassiveSender, VariableSize], Least::Latency);
        assert_eq!(passive.iter().map(|&it| it as u8).collect::<Vec<_>>(), [14, 18, 19]);
    }

    #[test]
    fn a_choice_says_what_it_costs_and_how_it_meets_needs() {
        let choices = choose(&[Need::Blocking, Need::ZeroCopySend], Least::Latency);
        let said = choices.kinds[1].to_string();
        assert_eq!(
            said,
            "write slot, immediate: 3 half round trips, ops 1/0, memory O(N); \
             a receiver that sleeps ✓, no copy on send ✓"
        );
    }
}
