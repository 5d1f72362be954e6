//! Write slot + reserve slot (§4.2): slots that all senders share. A sender takes one, writes his
//! message into it by a WRITE_WITH_IMM, and the receiver lends it again when the message is given
//! back.
//!
//! Which slots are taken is a bit each, in words that a sender changes by COMPARE_SWAP: of what he
//! thinks that the word is. If it is something else he knows better now, and tries again. The
//! receiver clears a bit by an atomic of its own processor, which are one with those of the
//! network: so it issues nothing, where the paper has a second channel both ways. One sender can
//! take all slots that are free.
//!
//! # Order
//!
//! A sender has one message under way, and one slot for the next at most, which he takes meanwhile:
//! so his WRITEs follow each other without a pause, and the order of events is that of his
//! messages. The receiver knows nothing of any sender. (With more under way it would have to number
//! messages and keep those that come early in their slots: a sender who dies before one of them
//! would leave slots that nobody can tell from those of one who only sleeps.) Nobody is told what
//! is processed: a message stays [`Accepted`](crate::SendState::Accepted).
//!
//! # A sender that dies, or sleeps, with a slot
//!
//! Others have that slot less, until the receiver takes it back: [`Receiver::poll_recovery`]. If a
//! slot has been taken for [`ReserveConfig::hole_timeout`] and no message has come, the region gets
//! a key that nobody has. From then on nothing lands, so what has come is all that will; all slots
//! but those of messages are free; and the next epoch begins, for which senders have had grants
//! since they joined. Whoever was about to write is refused, and takes a slot anew: nothing of a
//! living sender is lost or doubled, but one whose op was in doubt just then is told that nobody
//! knows ([`CallStatus::Unknown`](rma_core::executor::CallStatus::Unknown)). A refusal can be
//! forged, so a refused sender first asks in which epoch he is, by a COMPARE_SWAP that changes
//! nothing: if it is the one that he had, his slot is his as before.
//!
//! Bound, from when the receiver sees that the slot is taken until another sender who has something
//! to send knows the next epoch, and takes a slot there: `hole_timeout`; until the next
//! [`Receiver::poll_recovery`], which is two Rekeys at the own host; up to [`SEARCH_MAX`], as he
//! may have looked just before; and a COMPARE_SWAP that is refused and one that is not, of two
//! round trips each. If the receiver is stopped between the Rekeys a sender may have tried all
//! epochs in vain meanwhile, and tries them in turn: `SEARCH_MAX` counts for each of them then.
//! Others may be quicker to take what is free, as ever.
//!
//! # Whom to let in
//!
//! Who has grants can take all slots and write over messages of others. What cannot be is refused,
//! and ends the channel for all; against one who means harm there is no defence but to open it anew
//! without him.

mod receiver;
mod sender;
mod slots;
#[cfg(test)]
mod tests;

pub use receiver::{Receiver, Recovery};
pub use sender::{SEARCH_MAX, Sender};
pub use slots::ReserveConfig;
