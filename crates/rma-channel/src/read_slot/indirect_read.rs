//! Read slot, indirect read (§4.5): the receiver lends a buffer of its own to a sender and tells it
//! the address, by a NOTIFY; the sender writes a message into it by a WRITE_WITH_IMM, as into a
//! [write slot](crate::write_slot::immediate). So the receiver says from whom the next messages
//! will come, and where each must lie; and buffers are one pool for all senders.
//!
//! # Offers
//!
//! The offers to a sender are numbered, and its message n goes into the buffer of offer n: so its
//! messages are in order, whatever order ops are applied in. Of a sender [`IndirectConfig::lent`]
//! buffers at most are lent, or hold messages that are not given back, at a time. So the offers say
//! what is processed, too: offer n that message n - `lent` is. A sender that is offered nothing is
//! [full](crate::SendError::Full).
//!
//! A NOTIFY that failed, or of which nobody knows, is told again: an offer that comes twice is no
//! news. A WRITE_WITH_IMM is not repeated but if it was refused, and so not applied.
//!
//! # Who lends
//!
//! Either the [receiver](Receiver::open) does, out of a pool, as soon as a buffer is free: to
//! whoever has fewest, and one buffer for each sender that there can be is kept for it, so that
//! none waits for another. Or the application [offers](Receiver::offer) each, and says to whom and
//! where in its memory: then any number of senders share any amount of memory, and whoever is
//! offered nothing sends nothing. In both cases a message lies where it has landed until it is
//! given back ([`Receiver::place`]).
//!
//! # A sender that never writes
//!
//! What was lent to it stays lent, and the others have that much less: a sender that has nothing
//! to send looks the same. The application, which knows better, takes it back:
//! [`Receiver::take_back`]. It is a fence: the memory gets a key that nobody has, so what has come
//! is all that will; then that of the next epoch, for which all senders have had grants since they
//! joined. They are offered anew what they had, and write again what was refused meanwhile:
//! nothing of theirs is lost or doubled. One whose op was in doubt just then is told that nobody
//! knows ([`CallStatus::Unknown`](rma_core::executor::CallStatus::Unknown)). The sender itself is
//! out, and is told so ([`SendError::Revoked`](crate::SendError::Revoked)): as well as may be, for
//! as long as a refusal is tried again. If its host did not run for longer than that, it finds out
//! when it writes; or not at all, if it has no buffer, and stays full. It is admitted anew if it is
//! to be in.
//!
//! # Whom to let in
//!
//! Who has grants can write over messages of others, as the memory is one for all. It can pass for
//! nobody else, and what it says that cannot be costs it its seat ([`Standing::Malformed`]), and
//! nobody else anything.

mod farewell;
mod offers;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use offers::{Borrower, IndirectConfig, OfferError, Standing};
pub use receiver::Receiver;
pub use sender::Sender;
