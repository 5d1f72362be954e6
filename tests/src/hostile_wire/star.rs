//! StaR at the ends of a wire that an attacker holds, on a real kernel: whole engines over a real
//! device, and nothing between them that is not in his hands.
//!
//! | module | what it is |
//! |---|---|
//! | `cable` | the wire: it records, and delivers whatever else it is given |
//! | `party` | a host's engine, and an application that keeps to the rules |
//! | [`world`] | both, at the ends of the cable; rounds of work of which every byte is known |
//! | `bait` | a connection of which the attacker is the stateful side, with real keys |
//! | `forge` | frames that no host has sent |
//! | [`attacks`] | what the attacker does: changes, repeats, invents, floods |
//! | [`hostile_peer`] | what he does who has the real keys of a connection |
//! | [`changes`] | roles change while he loses, repeats and holds back frames |
//!
//! Everything but the kernel runs on the test's thread, in turns, so that an attack begins where
//! the test says. Clocks run on, and can be set on.
//!
//! Invariant: work requests of the honest applications all succeed, once, whatever is attacked; and
//! all memory is as it should be, to the last byte, around every span too.

pub mod attacks;
mod bait;
mod cable;
pub mod changes;
mod forge;
pub mod hostile_peer;
mod party;
pub mod world;
