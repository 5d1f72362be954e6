//! AES-128-GCM of several frames side by side, for any width of register.
//!
//! 1RMA's frames are independent (§4.2, "Line-rate operation"), and most are short: what they cost
//! is not octets but the latency of one key schedule, one hash key and a few dependent
//! multiplications. So frames share registers: each has a lane of 128 bits, with its own round keys
//! and its own powers of its own hash key. A register of 512 bits does four frames at the price of
//! one, and two registers side by side hide each other's latency.
//!
//! A long payload leaves that layout for its middle part: there all lanes of the register are
//! blocks of one frame. With registers of 512 bits, of which there are most, encrypting one frame
//! goes hand in hand with hashing another, as the two need different units of the processor.
//!
//! | module | what |
//! |---|---|
//! | `isa` | the few instructions, for registers of any width |
//! | `aes`, `ghash` | cipher and hash, one key in each lane |
//! | `shape` | which of a frame's blocks are done how |
//! | `material` | what is computed from keys, and erased |
//! | `short` | blocks of several frames, one frame in each lane |
//! | `bulk` | the middle of long payloads |
//! | `group` | sealing and opening up to a registerful of frames |
//! | `derive` | deriving keys |
//!
//! # What an observer of time learns
//!
//! Lengths, batch sizes, and verdicts. No branch and no address depends on a key, on plaintext, or
//! on how much of a tag is right: only the verdict as a whole is branched on, which whoever sent
//! the frame learns anyhow.
//!
//! # What is left in memory
//!
//! Round keys, powers of hash keys, tag masks and key streams are kept in one place on the stack,
//! which is zeroized when the batch is done. Not cleared are vector registers, and what the
//! compiler spilled of them to the stack: until the thread's next work overwrites them they may
//! hold round keys, hash keys or key stream of the last frames.
//!
//! Everything here is `#[inline(always)]`, and no closure takes, returns or makes a vector: see
//! `isa`.

mod aes;
mod bulk;
mod derive;
mod ghash;
mod group;
mod isa;
mod material;
mod shape;
mod short;

pub(crate) use self::{
    derive::{Rounds, derive, schedule},
    group::{Job, Layout},
    isa::{Block, Isa, LANES_MAX},
    material::{Expanded, Place, prepare},
};
